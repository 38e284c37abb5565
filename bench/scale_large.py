"""Whether ten million pending timers on SQLite, or a million on PostgreSQL, cost more than ten thousand.

A server with many timers and one with few do the same in turn, round after round. The one with few has a new database
in each round, since every round leaves thousands of timers behind.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import apsw
import click
from tests.servers.catalogue import SERVERS
from tests.servers.server import Server
from tests.servers.sources import Unobtainable

from bench.creates import BATCH_CONNECTIONS, create_load
from bench.figures import Aim, Figure, Setting
from bench.firing import fire
from bench.processes import Running, processor_seconds, server
from bench.scale import MONTH_MS, fill
from bench.sink import RunningSink, sink
from bench.timers import BATCH, FAR_MS, NOWHERE, batches_of, create_all, now_ms, pending_timer
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.model import Namespace
from mainspring.stores.sqlite.connection import insert_rows
from mainspring.stores.sqlite.rows import TIMER_COLUMNS, timer_row

FEW = 10_000
STARTS = 3
PASSES = 4
CHUNK = 200_000
FILL_CACHE_KIB = 2_000_000
SLOW_CREATES = 1_000.0
"""So many are created a second at least, even through a database server."""


class Place(NamedTuple):
    """Where the data of a server is; without a URL in a file in the directory."""

    directory: Path
    store: str = ""


@dataclass(slots=True)
class Subject:
    """A server with so many pending timers, and what it did in each round."""

    pending: int
    starts: list[float] = field(default_factory=list)
    measured: dict[str, list[float]] = field(default_factory=dict)

    def add(self, what: str, value: float) -> None:
        self.measured.setdefault(what, []).append(value)


async def scale_large(setting: Setting) -> list[Figure]:
    """SQLite, then PostgreSQL, which is named and left out if it cannot be obtained."""

    async def new_file(name: str, count: int) -> Place:
        await fill_file(setting.directory / name, count, setting.say)
        return Place(setting.directory / name)

    figures = await _compare(setting, "sqlite", setting.size(10_000_000, 5_000), new_file, None)
    try:
        with SERVERS["postgresql"](durable=True) as database:
            setting.say("starting postgresql")
            await asyncio.to_thread(database.obtain)
            await asyncio.to_thread(database.start)

            async def new_database(name: str, count: int) -> Place:
                setting.say(f"filling in {count:,} timers")
                place = Place(setting.directory / f"postgresql-{name}", await asyncio.to_thread(database.fresh))
                await fill(place.directory, count, store=place.store)
                return place

            figures += await _compare(setting, "postgresql", setting.size(1_000_000, 2_000), new_database, database)
    except Unobtainable as error:
        click.echo(f"postgresql was not measured: {error}", err=True)
    return figures


async def fill_file(directory: Path, count: int, say: Callable[[str], None]) -> None:
    """Write pending timers into the file of an instance that is not running, without waiting for the disk."""
    async with Instance(Config(allow_loopback=True, data_dir=str(directory), log_level="error")) as instance:
        namespace = await instance.namespaces.find("default")
    await asyncio.to_thread(_fill_file, directory / "mainspring.db", namespace, count, say)


def _fill_file(path: Path, namespace: Namespace, count: int, say: Callable[[str], None]) -> None:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{FILL_CACHE_KIB}"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    first = now_ms() + FAR_MS
    written = 0
    # In several passes over the month: pages that were filled in one go would be full, as they never are in use.
    for start in (start for offset in range(PASSES) for start in range(offset, count, PASSES * CHUNK)):
        say(f"filling in {count:,} timers: {written:,} so far")
        rows = [
            timer_row(pending_timer(namespace, f"fill-{number}", first + number * MONTH_MS // count))
            for number in range(start, min(start + PASSES * CHUNK, count), PASSES)
        ]
        written += len(rows)
        connection.execute("BEGIN")
        insert_rows(connection, f"INSERT INTO timers ({TIMER_COLUMNS})", rows)
        connection.execute("COMMIT")
    connection.close()
    with path.open("rb") as file:  # so that nothing of this is still on its way to the disk later
        os.fsync(file.fileno())


async def _compare(
    setting: Setting,
    name: str,
    many: int,
    new_place: Callable[[str, int], Awaitable[Place]],
    database: Server | None,
) -> list[Figure]:
    few, rounds = setting.size(FEW, 500), setting.size(5, 1)
    small, large = Subject(few), Subject(many)
    place = await new_place("many", many)
    for turn in range(setting.size(STARTS, 1)):
        setting.say(f"{name}: start {turn + 1} with {many:,} pending")
        async with server(place.directory, store=place.store) as product:
            large.starts.append(product.started_in)
    async with server(place.directory, store=place.store) as product, sink() as target:
        for turn in range(rounds):
            fresh = await new_place(f"few-{turn}", few)
            setting.say(f"{name}: round {turn + 1} of {rounds}")
            async with server(fresh.directory, store=fresh.store) as beside:
                small.starts.append(beside.started_in)
                await _round(setting, small, Costs(beside, database), target, f"{name}-{turn}")
            await _round(setting, large, Costs(product, database), target, f"{name}-{turn}")
        resident, highest = product.memory_mb(), product.memory_mb("VmHWM")
    return [*_figures(name, small, large), *_memory(name, many, resident, highest)]


class Costs:
    """The processor time that a server has used, and its database if that is another process."""

    def __init__(self, product: Running, database: Server | None) -> None:
        self.product = product
        self._pids = [product.pid] if database is None else [product.pid, database.pid]
        self._before = 0.0

    def start(self) -> None:
        self._before = sum(map(processor_seconds, self._pids))

    def microseconds(self) -> float:
        return (sum(map(processor_seconds, self._pids)) - self._before) * 1e6


async def _round(setting: Setting, subject: Subject, costs: Costs, target: RunningSink, name: str) -> None:
    product = costs.product
    seconds, count, bulk = (0.5, 200, 1_000) if setting.quick else (2.0, 5_000, 10_000)
    costs.start()
    load = await create_load(product, f"create-{name}", seconds)
    subject.add("a create", 1000 / load.rate)
    subject.add("a create: processor", costs.microseconds() / load.requests)
    first = now_ms() + FAR_MS
    spread = random.Random(name)
    numbered = [f"bulk-{name}-{index}" for index in range(bulk)]
    in_order = [first + index for index in range(bulk)]
    bulks = {
        "one of 1,000 created together": (numbered, in_order),
        "the same with random ids": ([spread.randbytes(16).hex() for _ in range(bulk)], in_order),
        "the same, due at any time of a month": (
            [f"any-{name}-{index}" for index in range(bulk)],
            [first + spread.randrange(MONTH_MS) for _ in range(bulk)],
        ),
    }
    for what, (ids, instants) in bulks.items():
        requests = batches_of(ids, instants, NOWHERE)
        costs.start()
        rate = await create_all(product, requests, connections=BATCH_CONNECTIONS) * BATCH
        subject.add(what, 1000 / rate)
        subject.add(f"{what}: processor", costs.microseconds() / bulk)
    costs.start()
    lasted = await fire(product, target, f"fire-{name}", count, creates_per_second=SLOW_CREATES)
    subject.add("a callback", 1000 * lasted / count)
    subject.add("a callback and its create in bulk: processor", costs.microseconds() / count)


def _figures(name: str, small: Subject, large: Subject) -> list[Figure]:
    beside = f"with {large.pending:,} pending (limit: {small.pending:,})"
    compared = [
        Figure(
            benchmark=name,
            what=f"{what}, {beside}",
            unit="µs" if what.endswith("processor") else "ms",
            measured=median(values),
            limit=median(small.measured[what]),
            aim=None if what.endswith("processor") else Aim("ratio", "most", 1.3),
        )
        for what, values in large.measured.items()
    ]
    start = Figure(
        benchmark=name,
        what=f"start {beside}",
        unit="s",
        measured=median(large.starts),
        limit=median(small.starts),
        aim=Aim("measured", "most", 1.0),
    )
    return [*compared, start]


def _memory(name: str, many: int, resident: float, highest: float) -> list[Figure]:
    what = f"with {many:,} pending"
    aim = Aim("measured", "most", 200)
    return [
        Figure(benchmark=name, what=f"resident {what}", unit="MB", measured=resident, aim=aim),
        Figure(benchmark=name, what=f"highest {what}", unit="MB", measured=highest),
    ]
