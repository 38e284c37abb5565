"""`mainspring serve`. Start-up time matters here: nothing is imported that only other commands need."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from mainspring.cli.config_flags import config_options, load


@click.command()
@config_options
def serve(file: Path | None, **flags: Any) -> None:
    """Run an instance: the API and the engine, until SIGTERM or Ctrl-C.

    Settings come from flags, then MAINSPRING_* variables, then the TOML file of --config. By default, data is kept in
    .mainspring, together with a generated token that the other commands find on their own.

    \b
    Examples:
      mainspring serve
      mainspring serve --port 9000 --data-dir /var/lib/mainspring
      mainspring serve --store sqlite:////var/lib/mainspring/timers.db --allow-target 10.1.0.0/16
      mainspring serve --workers 4
      MAINSPRING_LOG_LEVEL=debug mainspring serve --config mainspring.toml
    """
    config = load(flags, file)
    # A wrong configuration is reported before any of this is loaded.
    if config.workers > 1:
        from mainspring.processes.supervisor import supervise  # noqa: PLC0415

        sys.exit(supervise(config))
    from mainspring.processes.server import run  # noqa: PLC0415

    sys.exit(run(config))
