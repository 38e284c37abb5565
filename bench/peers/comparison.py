"""Everybody's turn in every round: creates, bulk creates, a burst, a steady rate, memory. The median of the rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import click
from tests.servers.sources import Unobtainable

from bench.databases import Sinks
from bench.figures import Aim, Figure, Setting
from bench.firing import LATENESS_RATE
from bench.peers.contenders import BULLMQ, ENTRIES, OURS, Contender, Entry
from bench.sink import RunningSink, sink
from bench.timers import FAR_MS, NOWHERE, now_ms

BURST_BULK = 10_000
"""So many jobs are created at a time for a burst and for the bulk figure, and are due at once."""


@dataclass(slots=True)
class Rounds:
    """What one contender did, round by round."""

    creates: list[float] = field(default_factory=list)
    bulk: list[float] = field(default_factory=list)
    fires: list[float] = field(default_factory=list)
    late_half: list[float] = field(default_factory=list)
    late_99: list[float] = field(default_factory=list)
    server_mb: list[float] = field(default_factory=list)
    store_mb: list[float] = field(default_factory=list)


async def peers(setting: Setting, entries: Sequence[Entry] = ENTRIES) -> list[Figure]:
    """A contender that cannot be obtained is named, and left out."""
    rounds = setting.size(3, 1)
    compared = [entry for entry in entries if await _is_there(entry, setting)]
    results = {entry: Rounds() for entry in compared}
    async with sink() as counting, sink(timed=True) as timed:
        for turn in range(rounds):
            for entry, result in results.items():
                setting.say(f"round {turn + 1} of {rounds}: {title(entry)}")
                directory = setting.directory / f"{compared.index(entry)}-{turn}"
                directory.mkdir()
                async with entry.run(directory) as contender:
                    await _measure(entry, contender, result, Sinks(counting, timed), setting)
    setting.notes.append(f"Limit here: what {title(BULLMQ)} did in the same run, the peer with the same durability.")
    return _figures(results, setting)


async def _is_there(entry: Entry, setting: Setting) -> bool:
    setting.say(f"obtaining {entry.name}")
    try:
        await asyncio.to_thread(entry.obtain, setting.directory)
    except Unobtainable as error:
        setting.notes.append(f"NOT COMPARED: {title(entry)}: {error}")
        click.echo(setting.notes[-1], err=True)
        return False
    return True


async def _measure(entry: Entry, contender: Contender, result: Rounds, sinks: Sinks, setting: Setting) -> None:
    count = setting.size(BURST_BULK, 200)
    far = count if entry.has_bulk else count // 10  # one by one, it is not measured, and only says how long it takes
    await contender.create("warm", 0.5)  # before anybody counts: compilers and connections
    await contender.bulk("warm", far, first=now_ms() + FAR_MS, rate=0, url=NOWHERE)
    result.creates.append(await contender.create("create", setting.size(3, 1)))
    rate = await contender.bulk("bulk", far, first=now_ms() + FAR_MS, rate=0, url=NOWHERE)
    result.bulk.append(rate)
    result.fires.append(count / await _burst(contender, sinks.counting, count, rate))
    late = await _steady(contender, sinks.timed, LATENESS_RATE * setting.size(10, 1), rate)
    result.late_half.append(late[len(late) // 2])
    result.late_99.append(late[len(late) * 99 // 100])
    memory = contender.memory()
    result.server_mb.append(memory.server)
    result.store_mb.append(memory.store)


async def _burst(contender: Contender, target: RunningSink, count: int, rate: float) -> float:
    """Seconds from the instant at which all jobs are due to the arrival of the last call."""
    await target.reset()
    due_at = _after(count, rate)
    await contender.bulk("burst", count, first=due_at, rate=0, url=target.url)
    if now_ms() >= due_at:
        raise RuntimeError("Expected all jobs to be created before they are due, got a machine that is too slow")
    report = await target.wait_for(count, seconds=count / 100 + 60)
    return (report.last_at_ms - due_at) / 1000


async def _steady(contender: Contender, target: RunningSink, count: int, rate: float) -> list[float]:
    """How late each call was, in milliseconds, the least first."""
    await target.reset()
    first = _after(count, rate)
    await contender.bulk("steady", count, first=first, rate=LATENESS_RATE, url=target.url)
    await target.wait_for(count, seconds=(first - now_ms()) / 1000 + count / 100 + 60)
    return sorted((await target.report()).lateness_ms)


def _after(count: int, rate: float) -> int:
    """An instant when so many jobs have been created, even if it takes three times as long as before."""
    return now_ms() + 2_000 + int(3 * count / rate * 1_000)


def title(entry: Entry) -> str:
    return f"{entry.name} ({entry.durability})"


def _figures(results: dict[Entry, Rounds], setting: Setting) -> list[Figure]:
    count = setting.size(BURST_BULK, 200)
    late = f"late at {LATENESS_RATE}/s"
    kinds: list[tuple[str, str, Callable[[Rounds], list[float]], Aim | None]] = [
        ("creates, 64 callers", "/s", lambda one: one.creates, Aim("ratio", "least", 1.2)),
        ("bulk creates", "/s", lambda one: one.bulk, None),
        (f"calls of {count:,} due at once", "/s", lambda one: one.fires, Aim("ratio", "least", 2.0)),
        (f"half at most, {late}", "ms", lambda one: one.late_half, None),
        (f"99 % at most, {late}", "ms", lambda one: one.late_99, Aim("ratio", "most", 0.1)),
        ("memory, server or worker", "MB", lambda one: one.server_mb, None),
        ("memory, store", "MB", lambda one: one.store_mb, None),
    ]
    beside = results.get(BULLMQ)
    return [
        Figure(
            benchmark=what,
            what=title(entry),
            unit=unit,
            measured=median(rounds_of(result)),
            limit=None if beside is None or entry is not OURS else median(rounds_of(beside)),
            aim=aim if entry is OURS and beside is not None else None,
        )
        for what, unit, rounds_of, aim in kinds
        for entry, result in results.items()
        if entry.has_bulk or rounds_of(result) is not result.bulk
    ]
