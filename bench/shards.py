"""Many owned shards on a store that is a round trip away: how late timers are that are spread over all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from bench.figures import Aim, Figure, Setting
from bench.timers import now_ms, pending_timer
from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.model import Timer
from mainspring.namespaces.messages import CreateNamespace
from mainspring.store import BATCH_LIMIT, DuePage, Position, Put
from mainspring.stores.memory import MemoryStore

FEW, MANY = 16, 1_024
RATE = 1_000
ROUND_TRIP_SECONDS = 0.002
WIDTH = 4
"""How many reads are under way at once, as on the stores for database servers."""
NAMESPACE = "spread"
HANDLER = "note"
LEAD_MS = 1_500
"""So long before the first one is due, timers are written."""


class RemoteStore(MemoryStore):
    """Due rows are read over a wire: each read takes a while, and only a few are under way at once."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._width = asyncio.Semaphore(WIDTH)
        self.reads = 0

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        async with self._width:
            self.reads += 1
            await asyncio.sleep(ROUND_TRIP_SECONDS)
            return await super().load_due(shard_id, until=until, after=after, limit=limit)

    async def load_due_of(
        self, places: Sequence[tuple[int, Position]], *, until: int, limit: int
    ) -> list[DuePage | None]:
        """In one statement, as on PostgreSQL and MySQL."""
        async with self._width:
            self.reads += 1
            await asyncio.sleep(ROUND_TRIP_SECONDS)
            load = super().load_due
            return [await load(shard_id, until=until, after=after, limit=limit) for shard_id, after in places]


async def shards(setting: Setting) -> list[Figure]:
    """A steady rate of timers over many shards, and over few, in turn."""
    rounds, count = setting.size(3, 1), setting.size(10, 1) * RATE
    late: dict[int, list[list[float]]] = {FEW: [], MANY: []}
    reads: dict[int, list[float]] = {FEW: [], MANY: []}
    for turn in range(rounds):
        for shard_count in (FEW, MANY):
            setting.say(f"round {turn + 1} of {rounds}: {RATE} timers a second over {shard_count:,} shards")
            store = RemoteStore()
            late[shard_count].append(await _lateness(store, shard_count, count))
            reads[shard_count].append(store.reads / count)
    what = f"late at {RATE}/s over {MANY:,} shards (limit: {FEW})"
    half, most = (
        {shard_count: median(each[len(each) * percent // 100] for each in times) for shard_count, times in late.items()}
        for percent in (50, 99)
    )
    return [
        Figure(benchmark="shards", what=f"half at most {what}", unit="ms", measured=half[MANY], limit=half[FEW]),
        Figure(
            benchmark="shards",
            what=f"99 % at most {what}",
            unit="ms",
            measured=most[MANY],
            limit=most[FEW],
            aim=Aim("measured", "most", 50),
        ),
        Figure(
            benchmark="shards",
            what="reads for each timer",
            unit="",
            measured=median(reads[MANY]),
            limit=median(reads[FEW]),
        ),
    ]


async def _lateness(store: RemoteStore, shard_count: int, count: int) -> list[float]:
    """How late each timer is carried, in milliseconds, the least first."""
    late: list[float] = []
    over = asyncio.Event()

    async def note(due: Timer) -> None:
        late.append(time.time() * 1000 - due.detail.execute_at)
        if len(late) == count:
            over.set()

    config = Config(store="memory://", log_level="error")
    async with Instance(config, store=store, allow_handlers=True) as instance:
        instance.timers_assembly.carrier.handlers[HANDLER] = note
        await instance.namespaces.create(CreateNamespace(name=NAMESPACE, shard_count=shard_count))
        namespace = await instance.namespaces.find(NAMESPACE)
        engine = instance.engine
        assert engine is not None, "Expected an instance that is running"
        while engine.owned_shards < shard_count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        first = now_ms() + LEAD_MS
        timers = [pending_timer(namespace, f"timer-{index}", first + index * 1_000 // RATE) for index in range(count)]
        called = [replace(timer, detail=replace(timer.detail, callback_url=f"handler:{HANDLER}")) for timer in timers]
        for start in range(0, count, BATCH_LIMIT):
            batch = called[start : start + BATCH_LIMIT]
            await store.write([Put(replace(timer, version=1), 0) for timer in batch])
            for timer in batch:
                engine.wake(timer.shard_id, timer.due_at)
        async with asyncio.timeout((LEAD_MS + count * 1_000 / RATE) / 1_000 + 60):
            await over.wait()
    return sorted(late)
