"""The command line. This module knows the names of the commands and loads the rest when one is run.

So `mainspring --help` is quick, and `mainspring serve` carries nothing that only the other commands need.
Every error of Mainspring ends here, as a line on stderr and an exit code; no traceback reaches the user.

The commands:

    serve, executor     what runs
    timer               timers; `bulk` acts on those that match a `selection`, `transfer` imports and exports
    job, job_runs       jobs one by one; what they will do, do and did
    job_apply           a registry made equal to a `job_file`, maybe a `yaml_file`, by way of its `job_difference`
    job_export          such a file, made from a registry
    fetch, namespace    fetches; namespaces
    key                 idempotency keys, as far as a person has to decide about them
    admin, doctor       for operators; those that open the store themselves
    dev, dev_serve      for trying things out: a `receiver`, a `benchmark`; an emulator and its clock
    completion          for the shell

What they share:

    config_flags        every setting as a flag
    globals             which server, which token, which output
    timed_transport     what time it is there, if it is an emulator
    parameters, policy  kinds of values; the retry policy as options
    output, progress    how answers and long work are shown; instants as `instants` writes them
    watching            the same list again and again; new entries as they come
    lines, export_file  timers as lines of a file, and where an export goes
    confirmation        asking before something is done
    failure             an error → lines for people and an exit code
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from mainspring import __version__

COMMANDS = {
    "serve": ("mainspring.cli.serve:serve", "Run an instance: the API and the engine."),
    "executor": ("mainspring.cli.executor:executor", "Run an executor: a process that makes the calls of fetches."),
    "timer": ("mainspring.cli.timer:timer", "Create, inspect, change, import and export timers."),
    "job": ("mainspring.cli.job:job", "HTTP calls on a calendar: create, change, run, apply from a file."),
    "fetch": ("mainspring.cli.fetch:fetch", "HTTP calls made at most once: create, wait for, inspect, cancel."),
    "key": ("mainspring.cli.key:key", "Idempotency keys with an unknown outcome: list, settle, forget."),
    "namespace": (
        "mainspring.cli.namespace:namespace",
        "Create, inspect, change and delete namespaces; add shards.",
    ),
    "admin": ("mainspring.cli.admin:admin", "Health, configuration, migrations, instances, shards, metrics."),
    "dev": (
        "mainspring.cli.dev:dev",
        "Tools for trying things out: an emulator, a receiver, sample data, a load test.",
    ),
    "completion": ("mainspring.cli.completion:completion", "Let the shell complete commands and options."),
}

EPILOG = """\b
Examples:
  mainspring serve
  mainspring dev receive
  mainspring timer create hello --in 5s --callback-url http://127.0.0.1:8711/
  mainspring timer list --output json
  mainspring job apply jobs.toml --dry-run

\b
Exit codes:
  0    done; --watch or --follow, ended by Ctrl-C
  1    error, or a question was answered with no
  2    what you gave is not valid: an option, a value, a file, the configuration
  3    not found
  4    not authenticated, or not allowed
  5    conflict
  6    the server is unavailable or cannot be reached
  7    `job apply --dry-run`: the registry differs from the file
  8    `fetch create --wait`: no response; the target has certainly not acted
  9    `fetch create --wait`: no response; the target may have acted
  130  interrupted by Ctrl-C
"""


class Commands(click.Group):
    """Loads a command when it is needed; the list of commands comes from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like that of a group that has its commands at hand, which proposes similar names."""
        if args[0] in COMMANDS or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if args[0] == "help":
            raise click.UsageError("No such command 'help'. Did you mean '--help'?", ctx)
        raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        _stand_in_for_closed_streams()
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OSError as error:  # of --help and --version
            from mainspring.cli.failure import report_output  # noqa: PLC0415  (loads what --help does not need)

            report_output(error)
            sys.exit(1)
        except click.UsageError as error:
            from mainspring.cli.failure import report_usage  # noqa: PLC0415  (loads what --help does not need)

            report_usage(error)
            sys.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> object:
        from mainspring.cli.failure import reported_as_exit_code  # noqa: PLC0415  (loads what --help does not need)

        with reported_as_exit_code(verbose=bool(ctx.params["verbose"])):
            result: object = super().invoke(ctx)
            return result


def _stand_in_for_closed_streams() -> None:
    """A command that is started without one of them finds an empty input, or writes to nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  (open as long as the process runs)


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring", message="%(prog)s %(version)s")
@click.option("--url", metavar="URL", help="URL of the server. [default: MAINSPRING_URL, then http://127.0.0.1:8700]")
@click.option(
    "--token",
    metavar="TOKEN",
    help="Token of the API. Visible in process lists: prefer the variable or --token-file. [default: MAINSPRING_TOKEN]",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the token. [default: MAINSPRING_TOKEN_FILE, then, for a local server, its data directory]",
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), help="Output format. [default: table]")
@click.option(
    "--no-color", is_flag=True, help="Use no colours, even on a terminal. So does the variable NO_COLOR, if it is set."
)
@click.option("-v", "--verbose", is_flag=True, help="Log requests and responses to stderr.")
@click.pass_context
def main(
    ctx: click.Context,
    *,
    url: str | None,
    token: str | None,
    token_file: str | None,
    output: str | None,
    no_color: bool,
    verbose: bool,
) -> None:
    """Mainspring: durable timers, jobs and fetches over HTTP.

    Request an HTTP call at a given time; it survives crashes, is made on time and is never forgotten.
    """
    from mainspring.cli.globals import Globals  # noqa: PLC0415

    no_color = no_color or bool(os.environ.get("NO_COLOR"))
    ctx.color = False if no_color else None
    ctx.obj = Globals(url=url, token=token, token_file=token_file, output=output, no_color=no_color, verbose=verbose)
