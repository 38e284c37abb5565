"""Every database behind the same server process, each measured in turn with SQLite, which stands in for the limit.

The database servers are those of the tests, obtained and started by `tests.servers`, but with commits that wait for the
disk. Only one of them runs at a time. What a figure means, and what it does not, is told in docs/benchmarks.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import click
from tests.servers.catalogue import SERVERS
from tests.servers.server import Server
from tests.servers.sources import Unobtainable

from bench.creates import CONNECTIONS, create_load
from bench.figures import Figure, Setting
from bench.firing import fire, fire_steadily
from bench.processes import Running, server
from bench.relay import Relay, relay
from bench.sink import RunningSink, sink
from bench.timers import batch_requests, create_all, now_ms

DATABASES = ("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")
STEADY_RATE = 50
SLOWEST_CREATES = 100.0
SOON_MS = 20
"""So soon are timers due whose round trips are counted."""
WRITTEN_SECONDS = 0.15
"""From the arrival of a call to the end of everything that is written about it, generously."""


@dataclass(slots=True)
class Subject:
    """A server process on one database, and what it did in each round."""

    name: str
    product: Running
    burst: int = 0
    """So many timers are due at once."""
    creates: list[float] = field(default_factory=list)
    answered_ms: list[float] = field(default_factory=list)
    fires: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    @property
    def creates_per_second(self) -> float:
        """A low guess, to choose instants that lie behind the creates."""
        return max(SLOWEST_CREATES, self.creates[-1]) / 2


@dataclass(frozen=True, slots=True)
class Sinks:
    counting: RunningSink
    timed: RunningSink


async def databases(setting: Setting, names: Sequence[str] = DATABASES) -> list[Figure]:
    """SQLite by itself, then every database in turn with it. One that cannot be obtained is named and left out."""
    async with (
        server(setting.directory / "sqlite") as product,
        sink() as counting,
        sink(timed=True) as timed,
    ):
        sinks = Sinks(counting, timed)
        alone = Subject("sqlite", product)
        await _compare(setting, [alone], sinks)
        await _be_punctual(setting, alone, sinks)
        figures = _figures(alone, None)
        for name in names:
            try:
                with SERVERS[name](durable=True) as database:
                    setting.say(f"starting {name}")
                    await asyncio.to_thread(database.obtain)
                    await asyncio.to_thread(database.start)
                    figures += await _measure(setting, database, alone, sinks)
            except Unobtainable as error:
                click.echo(f"{name} was not measured: {error}", err=True)
    return figures


async def _measure(setting: Setting, database: Server, alone: Subject, sinks: Sinks) -> list[Figure]:
    name = database.name
    async with server(setting.directory / name, store=database.fresh()) as product:
        subject, beside = Subject(name, product), Subject("sqlite", alone.product, late=alone.late)
        await _compare(setting, [beside, subject], sinks)
        await _be_punctual(setting, subject, sinks)
    return [*_figures(subject, beside), *await _cost(setting, database, sinks.counting)]


async def _compare(setting: Setting, subjects: list[Subject], sinks: Sinks) -> None:
    """Creates, then a burst of as many timers as the slowest creates in two seconds; in turn, round after round."""
    rounds, seconds = setting.size(3, 1), 2.0 if not setting.quick else 0.5
    for turn in range(rounds):
        setting.say(f"{subjects[-1].name}, round {turn + 1} of {rounds}")
        label = f"{subjects[-1].name}-{turn}"
        for subject in subjects:
            load = await create_load(subject.product, f"create-{label}", seconds)
            subject.creates.append(load.rate)
            subject.answered_ms.append(load.p99_ms)
        subjects[-1].burst = subjects[-1].burst or _burst(setting, subjects[-1])
        for subject in subjects:
            subject.fires.append(await _fire(subject, sinks, f"burst-{label}", subjects[-1].burst))


def _burst(setting: Setting, subject: Subject) -> int:
    """In hundreds, so that it can be told in a table."""
    return min(setting.size(5_000, 200), int(max(SLOWEST_CREATES, subject.creates[-1]) * 2) // 100 * 100)


async def _fire(subject: Subject, sinks: Sinks, name: str, count: int) -> float:
    guess = subject.creates_per_second
    return count / await fire(subject.product, sinks.counting, name, count, creates_per_second=guess)


async def _be_punctual(setting: Setting, subject: Subject, sinks: Sinks) -> None:
    seconds = setting.size(6, 1)
    setting.say(f"{subject.name}: {STEADY_RATE} timers a second for {seconds} s")
    count = STEADY_RATE * seconds
    subject.late.extend(
        await fire_steadily(
            *(subject.product, sinks.timed, f"late-{subject.name}", count),
            rate=STEADY_RATE,
            creates_per_second=subject.creates_per_second,
        )
    )


def _figures(subject: Subject, beside: Subject | None) -> list[Figure]:
    late = f"late at {STEADY_RATE}/s"
    kinds: list[tuple[str, str, Callable[[Subject], float]]] = [
        (f"creates, {CONNECTIONS} connections", "/s", lambda one: median(one.creates)),
        ("99 % answered within", "ms", lambda one: median(one.answered_ms)),
        (f"callbacks of {subject.burst:,} due at once", "/s", lambda one: median(one.fires)),
        (f"half at most, {late}", "ms", lambda one: one.late[len(one.late) // 2]),
        (f"99 % at most, {late}", "ms", lambda one: one.late[len(one.late) * 99 // 100]),
    ]
    return [
        Figure(
            benchmark=subject.name,
            what=what,
            unit=unit,
            measured=value_of(subject),
            limit=None if beside is None else value_of(beside),
        )
        for what, unit, value_of in kinds
    ]


# What a timer costs the database


async def _cost(setting: Setting, database: Server, target: RunningSink) -> list[Figure]:
    """Round trips, counted by a relay in between: of an idle instance, of a timer by itself, of one of many."""
    setting.say(f"{database.name}: counting round trips")
    turns, size = setting.size(21, 3), setting.size(500, 50)
    async with relay(database.port, frames=database.name == "cassandra") as between:
        through = through_relay(database.fresh(), database, between)
        async with server(setting.directory / f"{database.name}-counted", store=through) as product:
            await asyncio.sleep(setting.size(3, 1))  # what belongs to the start is over
            idle = await _idle(setting, between)
            by_itself = [await _life(between, product, target, f"one-{turn}", 1) for turn in range(turns)]
            started_at = time.monotonic()
            together = await _life(between, product, target, "many", size)
            together -= idle * (time.monotonic() - started_at)
    return [
        # The median: now and then the lease is renewed meanwhile.
        _count(database, "round trips of a timer, create to finish, alone", median(by_itself)),
        _count(database, f"round trips of a timer that is one of {size}", max(0.0, together) / size),
        _count(database, "round trips of an idle instance", idle, unit="/s"),
    ]


def through_relay(url: str, database: Server, between: Relay) -> str:
    """A driver that asks a replica set for its members would go around the relay."""
    return url.replace(f":{database.port}", f":{between.port}").replace("replicaSet=rs0", "directConnection=true")


def _count(database: Server, what: str, measured: float, *, unit: str = "") -> Figure:
    return Figure(benchmark=database.name, what=what, unit=unit, measured=measured)


async def _idle(setting: Setting, between: Relay) -> float:
    before, started_at = between.round_trips, time.monotonic()
    await asyncio.sleep(setting.size(8, 2))
    return (between.round_trips - before) / (time.monotonic() - started_at)


async def _life(between: Relay, product: Running, target: RunningSink, name: str, size: int) -> float:
    """The round trips from the create of timers, all in one request, until they are called and done with."""
    before = between.round_trips
    await target.reset()
    await create_all(product, batch_requests(name, [now_ms() + SOON_MS] * size, target.url))
    await target.wait_for(size, seconds=60)
    await asyncio.sleep(WRITTEN_SECONDS)
    return between.round_trips - before
