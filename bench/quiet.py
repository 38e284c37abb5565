"""What an instance costs that has nothing to do: how soon it is up, and what it asks of its store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import apsw

from bench.figures import Aim, Figure, Setting
from bench.processes import server
from bench.scale import fill
from mainspring.cluster.instance import Instance
from mainspring.config import Config


async def start_up(setting: Setting) -> list[Figure]:
    """From the start of the process to the first answer, with and without a database that exists already."""
    rounds = setting.size(7, 1)
    kept = setting.directory / "kept"
    pending = setting.size(10_000, 1_000)
    setting.say(f"filling in {pending:,} timers")
    await fill(kept, pending)
    fresh: list[float] = []
    existing: list[float] = []
    for turn in range(rounds):
        setting.say(f"round {turn + 1} of {rounds}")
        async with server(setting.directory / f"fresh-{turn}") as running:
            fresh.append(running.started_in)
        async with server(kept) as running:
            existing.append(running.started_in)
    aim = Aim("measured", "most", 0.5)
    return [
        Figure(benchmark="start-up", what="no database yet", unit="s", measured=median(fresh), aim=aim),
        Figure(benchmark="start-up", what=f"{pending:,} timers pending", unit="s", measured=median(existing), aim=aim),
    ]


async def idle(setting: Setting) -> list[Figure]:
    """The statements that reach SQLite while timers are pending and none is due, extrapolated to an hour."""
    seconds = setting.size(20, 2)
    config = Config(allow_loopback=True, data_dir=str(setting.directory), log_level="error")
    await fill(setting.directory, 1_000)
    statements: Counter[str] = Counter()
    with seeing_statements(lambda sql: statements.update([kind_of(sql)])):
        async with Instance(config):
            # The instance that filled in the timers counts as a neighbour for as long as its lease would have run.
            await asyncio.sleep(1 if setting.quick else config.lease_seconds + 2 * config.renew_seconds)
            setting.say(f"watching an idle instance for {seconds} s")
            statements.clear()
            await asyncio.sleep(seconds)
            counted = sorted(statements.items())
    renewals = sum(count for kind, count in counted if "records" in kind)
    reads = sum(count for kind, count in counted if "timers" in kind or "history" in kind or "shards" in kind)
    per_hour = 3600 / seconds
    return [
        Figure(
            benchmark="idle",
            what="statements on timers, shards, history",
            unit="/h",
            measured=reads * per_hour,
            aim=Aim("measured", "most", 0),
        ),
        Figure(benchmark="idle", what="statements on the lease record", unit="/h", measured=renewals * per_hour),
        *(
            Figure(benchmark="idle", what=f"of all: {kind}", unit="/h", measured=count * per_hour)
            for kind, count in counted
        ),
    ]


@contextmanager
def seeing_statements(see: Callable[[str], None]) -> Iterator[None]:
    """Show every statement of every connection that is opened meanwhile. Costs the product nothing elsewhere."""

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: see(event["sql"]))

    apsw.connection_hooks.append(watch)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(watch)


def kind_of(sql: str) -> str:
    """The verb and the table of a statement."""
    words = sql.replace("(", " ").split()
    verb = words[0].upper()
    tables = [word for word in words if word in ("timers", "shards", "history", "records")]
    return f"{verb} {tables[0]}" if tables else verb
