"""Whether a million pending timers cost more than ten thousand, in time and in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

from bench.creates import create_load
from bench.figures import Aim, Figure, Setting
from bench.firing import fire
from bench.processes import server
from bench.sink import sink
from bench.timers import FAR_MS, now_ms, pending_timer
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.store import BATCH_LIMIT, Put

MONTH_MS = 30 * 86_400_000
PARALLEL_WRITES = 4


async def scale(setting: Setting) -> list[Figure]:
    """Create and fire with few and with many pending, in turn; then look at the memory of the server with many."""
    few, many = setting.size(10_000, 1_000), setting.size(1_000_000, 10_000)
    rounds, count = setting.size(5, 1), setting.size(5_000, 1_000)
    seconds = 2.0 if not setting.quick else 0.5
    places = {few: setting.directory / "few", many: setting.directory / "many"}
    for pending, place in places.items():
        setting.say(f"filling in {pending:,} timers")
        await fill(place, pending)
    creates: dict[int, list[float]] = {few: [], many: []}
    fires: dict[int, list[float]] = {few: [], many: []}
    async with server(places[few]) as small, server(places[many]) as large, sink() as target:
        for turn in range(rounds):
            for pending, product in ((few, small), (many, large)):
                setting.say(f"round {turn + 1} of {rounds} with {pending:,} pending")
                creates[pending].append((await create_load(product, f"scale-{turn}", seconds)).rate)
                fires[pending].append(await fire(product, target, f"fire-{turn}", count))
        resident, highest = large.memory_mb(), large.memory_mb("VmHWM")
    create_ms = {pending: 1000 / median(rates) for pending, rates in creates.items()}
    fire_ms = {pending: 1000 * median(times) / count for pending, times in fires.items()}
    what = f"with {many:,} pending"
    aim = Aim("ratio", "most", 1.3)
    memory_aim = Aim("measured", "most", 200)
    return [
        Figure(
            benchmark="scale",
            what=f"a create {what} (limit: {few:,})",
            unit="ms",
            measured=create_ms[many],
            limit=create_ms[few],
            aim=aim,
        ),
        Figure(
            benchmark="scale",
            what=f"a callback {what} (limit: {few:,})",
            unit="ms",
            measured=fire_ms[many],
            limit=fire_ms[few],
            aim=aim,
        ),
        Figure(benchmark="memory", what=f"resident {what}", unit="MB", measured=resident, aim=memory_aim),
        Figure(benchmark="memory", what=f"highest {what}", unit="MB", measured=highest),
    ]


async def fill(directory: Path, count: int, *, store: str = "") -> None:
    """Write pending timers through the store, as an instance would, without the HTTP in between."""
    config = Config(allow_loopback=True, data_dir=str(directory), store=store, log_level="error")
    async with Instance(config) as instance:
        namespace = await instance.namespaces.find("default")
        first = now_ms() + FAR_MS

        async def write(start: int) -> None:
            stop = min(start + BATCH_LIMIT, count)
            # A fixed step that shares no factor with the count: the rows arrive in no order of their instants.
            instants = [first + (index * 7_919 % count) * MONTH_MS // count for index in range(start, stop)]
            await instance.store.write(
                [Put(pending_timer(namespace, f"fill-{start + i}", at), 0) for i, at in enumerate(instants)]
            )

        for start in range(0, count, PARALLEL_WRITES * BATCH_LIMIT):
            starts = range(start, min(start + PARALLEL_WRITES * BATCH_LIMIT, count), BATCH_LIMIT)
            await asyncio.gather(*map(write, starts))
