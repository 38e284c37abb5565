"""`mainspring completion`: scripts by which a shell completes commands, options and choices.

click asks the program itself what may come next, so the scripts know every command and never grow old.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MAINSPRING_COMPLETE"
"""By which the scripts ask the program, as click names it."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets a SHELL complete commands, options and choices with the Tab key.

    \b
    Examples:
      source <(mainspring completion bash)                # now, or as a line of ~/.bashrc
      source <(mainspring completion zsh)                 # now, or as a line of ~/.zshrc, after compinit
      mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"Expected a shell that click knows, got {shell}"
    root = ctx.find_root()
    script = kind(root.command, {}, "mainspring", VARIABLE)
    # `source()` of bash would run bash to ask for its version, and complain on stderr about one that is not there.
    click.echo((script.source_template % script.source_vars()).strip())
