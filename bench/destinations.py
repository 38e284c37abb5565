"""Many destinations, and dead ones: how long the event loop stands still, and whether the healthy are called in time.

One process, SQLite, and a network that is simulated: a host answers after a moment, or never.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from bench.figures import Aim, Figure, Setting
from bench.timers import now_ms, pending_timer
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply, failed
from mainspring.processes.startup import spare_collector
from mainspring.store import BATCH_LIMIT, Put

DEAD = "dead"
ANSWER_SECONDS = 0.002
TIMEOUT_MS = 5_000
TICK_SECONDS = 0.005
DEAD_HOSTS = 50
LEAD_MS = 4_000
"""So long before they are due, timers are written."""
PATIENCE_SECONDS = 300.0
PACE_MS = 20
"""From one timer of the healthy host to the next."""


class Network:
    """Hosts whose names begin with `dead` never answer. Notes how late the calls of all others are."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.arrived = asyncio.Event()

    def __call__(self, **_: object) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is kept open."""

    async def send(self, call: Call) -> Reply:
        if call.url.startswith(f"http://{DEAD}"):
            await asyncio.sleep(call.timeout_ms / 1000)
            return failed("timeout", "no answer", sent=True, duration_ms=call.timeout_ms)
        due_at = next(int(value) for name, value in call.headers if name == "mainspring-scheduled-at")
        self.late_ms.append(time.time() * 1000 - due_at)
        self.arrived.set()
        await asyncio.sleep(ANSWER_SECONDS)
        return Reply(200, {}, b"", False, "", "", True, round(ANSWER_SECONDS * 1000))

    async def wait_for(self, count: int) -> None:
        while len(self.late_ms) < count:
            self.arrived.clear()
            await self.arrived.wait()


async def destinations(setting: Setting) -> list[Figure]:
    """Timers that are all due at once, each to a host of its own; then dead hosts beside a healthy one."""
    count = setting.size(20_000, 500)
    setting.say(f"{count:,} timers to as many hosts")
    network = Network()
    async with _running(setting.directory / "many", network) as instance:
        pauses = await _pauses(instance, network, count)
    setting.say(f"a healthy host beside {DEAD_HOSTS} dead ones with {count:,} due timers")
    network = Network()
    async with _running(setting.directory / "dead", network) as instance:
        late, beside = await _beside_the_dead(instance, network, count, calls=setting.size(500, 20))
    aim, pause_aim = Aim("measured", "most", 500), Aim("measured", "most", 50)
    what = f"of a healthy host beside {DEAD_HOSTS} dead ones with {count:,} due timers"
    return [
        Figure(
            benchmark="destinations",
            what=f"longest pause of the loop, {count:,} hosts",
            unit="ms",
            measured=pauses[-1],
            aim=pause_aim,
        ),
        Figure(benchmark="destinations", what="99 % of its steps within", unit="ms", measured=_share(pauses, 99)),
        Figure(benchmark="destinations", what=f"half late at most, {what}", unit="ms", measured=_share(late, 50)),
        Figure(benchmark="destinations", what=f"the latest {what}", unit="ms", measured=late[-1], aim=aim),
        Figure(
            benchmark="destinations",
            what="longest pause of the loop then",
            unit="ms",
            measured=beside[-1],
            aim=pause_aim,
        ),
    ]


def _share(sorted_ms: list[float], percent: int) -> float:
    return sorted_ms[len(sorted_ms) * percent // 100]


@asynccontextmanager
async def _running(directory: Path, network: Network) -> AsyncIterator[Instance]:
    config = Config(data_dir=str(directory), allow_loopback=True, log_level="error", drain_seconds=0.5)
    async with Instance(config, surroundings=Surroundings(senders=network)) as instance:
        thresholds = gc.get_threshold()
        spare_collector()
        try:
            yield instance
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()


async def _fill(instance: Instance, name: str, hosts: Sequence[str], instants: Sequence[int]) -> None:
    """Write a timer for each host and instant, as a create does."""
    namespace = await instance.namespaces.find("default")
    assert instance.engine is not None, "Expected an instance that is running"
    wanted = list(zip(hosts, instants, strict=True))
    for start in range(0, len(wanted), BATCH_LIMIT):
        puts: list[Put] = []
        for index, (host, instant) in enumerate(wanted[start : start + BATCH_LIMIT], start):
            timer = pending_timer(namespace, f"{name}-{index}", instant)
            detail = replace(timer.detail, callback_url=f"http://{host}/", callback_timeout_ms=TIMEOUT_MS)
            puts.append(Put(replace(timer, version=1, detail=detail), 0))
        await instance.store.write(puts)
        for put in puts:
            instance.engine.wake(put.timer.shard_id, put.timer.due_at)


@asynccontextmanager
async def _watching() -> AsyncIterator[list[float]]:
    """How long the steps of the event loop take, in milliseconds; the least first, when it is over."""
    pauses: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            pauses.append((time.perf_counter() - before - TICK_SECONDS) * 1000)

    watcher = asyncio.create_task(watch())
    try:
        yield pauses
    finally:
        watcher.cancel()
        pauses.sort()


async def _pauses(instance: Instance, network: Network, count: int) -> list[float]:
    await _fill(instance, "host", [f"h{index}.example" for index in range(count)], [now_ms() + LEAD_MS] * count)
    async with _watching() as pauses, asyncio.timeout(PATIENCE_SECONDS):
        await network.wait_for(count)
    return pauses


async def _beside_the_dead(
    instance: Instance, network: Network, count: int, *, calls: int
) -> tuple[list[float], list[float]]:
    """How late the calls of the healthy host are, and the pauses meanwhile."""
    dead = [f"{DEAD}{index % DEAD_HOSTS}.example" for index in range(count)]
    due_at = now_ms() + LEAD_MS
    await _fill(instance, "dead", dead, [due_at] * count)
    await _fill(instance, "well", ["well.example"] * calls, [due_at + index * PACE_MS for index in range(calls)])
    async with _watching() as pauses, asyncio.timeout(PATIENCE_SECONDS):
        await network.wait_for(calls)
    return sorted(network.late_ms), pauses
