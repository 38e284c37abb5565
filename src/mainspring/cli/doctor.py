"""`mainspring admin doctor` and `drop-namespace`: they open the store themselves, so no server has to start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.cli.config_flags import config_options, load
from mainspring.cli.globals import settings
from mainspring.cli.output import say, show_document, show_table
from mainspring.errors import ConfigError, NotFound, StoreUnavailable
from mainspring.text import counted

if TYPE_CHECKING:
    from mainspring.doctor import Findings
    from mainspring.store import Store

T = TypeVar("T")

FILE = "sqlite:///"
MEMORY = "memory://"
SHOWN = 20
"""Of many shards, this many are named."""


@click.command()
@click.option("--remove-unreadable", is_flag=True, help="Remove what cannot be read. Make a backup first.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), help="Output format.")
@config_options
@click.pass_context
def doctor(ctx: click.Context, /, remove_unreadable: bool, output: str | None, file: Path | None, **flags: Any) -> None:
    """Check the whole store for unreadable rows and records, shards without an owner, and a damaged file.

    Reads everything once and changes nothing, even while servers are running. A SQLite file is also checked by SQLite
    itself (PRAGMA quick_check).

    \b
    Exit codes:
      0  nothing was found
      1  something was found, even if it has been removed since
      2  the configuration is wrong
      3  there is no database file
      6  the database cannot be reached

    \b
    Examples:
      mainspring admin doctor
      mainspring admin doctor --store sqlite:////var/lib/mainspring/timers.db --output json
    """
    from mainspring.doctor import damaged, discard, examine  # noqa: PLC0415  (heavy)

    async def work(store: Store) -> Findings:
        findings = await examine(store)
        if remove_unreadable:
            removed = await discard(store, findings.unreadable)
            say(f"Removed {removed} of {len(findings.unreadable)} that cannot be read.")
        return findings

    url = load(flags, file).store_url
    try:
        findings = _with_store(url, work)
    except StoreUnavailable as error:
        if not url.startswith(FILE):
            raise
        findings = damaged(error.detail)
    if not show_document(findings, output or settings(ctx).output):
        _show(ctx, findings)
    sys.exit(0 if findings.healthy else 1)


def _show(ctx: click.Context, findings: Findings) -> None:
    counts = {
        "instances alive": findings.instances,
        "namespaces": findings.namespaces,
        "timers": findings.timers,
        "rows of jobs and fetches": findings.internal_rows,
        "shards of all these": findings.shards,
    }
    unowned = ", ".join(map(str, findings.unowned_shards[:SHOWN]))
    more = len(findings.unowned_shards) - SHOWN
    found = [
        *([("shards without an owner", f"{unowned} and {more} more" if more > 0 else unowned)] if unowned else []),
        *(("cannot be read", f"{one.kind} {one.name}: {one.reason}") for one in findings.unreadable),
        *(("damage", line) for line in findings.damage),
    ]
    rows = [(name, "unknown" if count is None else str(count)) for name, count in counts.items()]
    show_table(("LOOKED AT", ""), rows, settings(ctx))
    click.echo()
    show_table(("FOUND", ""), found or [("nothing", "")], settings(ctx))


@click.command("drop-namespace")
@click.argument("names", nargs=-1, required=True)
@config_options
def drop_namespace(names: tuple[str, ...], file: Path | None, **flags: Any) -> None:
    """Remove namespaces without timers, and their shards. All servers that use the store must be stopped.

    \b
    Example:
      mainspring admin drop-namespace bulk-1 bulk-2
    """
    from mainspring.doctor import drop_namespace as drop  # noqa: PLC0415  (heavy)

    async def work(store: Store) -> None:
        for name in names:
            shards = await drop(store, name)
            say(f"Removed {name} and its {counted(shards, 'shard')}.")

    _with_store(load(flags, file).store_url, work)


def _with_store(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    """To open a SQLite file makes one: what is not there is no store to look at."""
    from mainspring.clock import SystemClock  # noqa: PLC0415
    from mainspring.stores import timer_store_from_url  # noqa: PLC0415

    if url.startswith(FILE) and not Path(path := url.removeprefix(FILE)).exists():
        raise NotFound(f"There is no database at {path}. Say where it is with --store or --data-dir.")
    if url.startswith(FILE) and Path(path).stat().st_size == 0 and not Path(f"{path}-wal").exists():
        raise StoreUnavailable(f"The file {path} is empty: a database has at least one page")
    if url == MEMORY:
        raise ConfigError("Expected a persistent store, got memory://, which is private to each process")

    async def run() -> T:
        store = timer_store_from_url(url, clock=SystemClock())
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
