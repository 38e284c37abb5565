"""`mainspring executor`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

import click

from mainspring.cli.config_flags import load, some_config_options
from mainspring.cli.parameters import Whole

SETTINGS: Final = (
    "host",
    "advertise_url",
    "data_dir",
    "store",
    "token_file",
    "allow_targets",
    "allow_loopback",
    "ca_file",
    "proxy_url",
    "allow_hosts",
    "log_level",
    "log_format",
    "store_wait_seconds",
    "lease_seconds",
    "renew_seconds",
    "drain_seconds",
    "fetch_drain_seconds",
    "connect_seconds",
    "host_limit",
    "fetch_answer_bytes",
    "fetch_memory_bytes",
    "fetch_retention_days",
    "request_seconds",
    "max_connections",
    "max_tokenless_connections",
)
"""The settings of a server that apply to an executor."""


def _pool(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", value) or value == "in-process":
        raise click.BadParameter("Expected lower-case letters, digits and dashes, but not in-process.")
    return value


@click.command()
@click.option("--port", type=Whole(0, 65535), default=0, show_default=True, help="0 picks a free one.")
@click.option(
    "--pool", default="default", show_default=True, callback=_pool, help="Pool whose fetches it makes calls for."
)
@click.option("--limit", type=Whole(1, 1_000_000), help="Calls in flight. [default: fetch_limit, 2000]")
@some_config_options(SETTINGS)
def executor(file: Path | None, port: int, pool: str, limit: int | None, **flags: Any) -> None:
    """Run an executor: a process that makes the calls of fetches, until SIGTERM or Ctrl-C.

    It uses the same store as the servers, which find it there and, while it has room, hand it the fetches of its
    pool. Several executors may share a pool. Its settings are those of a server; give both the same values.

    \b
    Examples:
      mainspring executor --pool uploads
      mainspring executor --pool uploads --port 8720 --limit 200 --store postgresql://ms@db/mainspring
      mainspring fetch create https://example.com/upload --body-file photo.jpg -X PUT --executor uploads
    """
    config = load({**flags, "port": port, "fetch_limit": limit}, file)
    if config.store_url.startswith("memory:"):
        raise click.UsageError("Expected a store that a server can share, got memory://.")
    # A wrong configuration is reported before any of this is loaded.
    from mainspring.processes.executor import run  # noqa: PLC0415

    sys.exit(run(config, pool))
