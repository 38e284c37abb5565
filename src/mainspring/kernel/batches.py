"""Fenced writes in batches, so that a hanging shard does not hold up others.

One batch at a time: what arrives during a commit shares the next one. When a batch takes longer than
`PATIENCE_SECONDS`, one of its shards may hang, and nobody can tell which. From then on, until everything has been
quick for a while, each shard has batches of its own and waits for nobody else's. A batch is bounded in bytes, too,
because users' writes wait for the commit that is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.store import BATCH_LIMIT

Item = TypeVar("Item")
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

BATCH_BYTES: Final = 2_000_000
"""A batch ends after this many."""
PATIENCE_SECONDS: Final = 0.2
CARE_SECONDS: Final = 30.0


class Batches(Generic[Item]):
    def __init__(
        self,
        work: Callable[[list[Item]], Coroutine[Any, Any, None]],
        *,
        size_of: Callable[[Item], int],
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        """`work` does a batch and raises nothing; `size_of` tells how many bytes of an item are written."""
        self._work = work
        self._size_of = size_of
        self._clock = clock
        self._spawn = spawn
        self._waiting: dict[int, deque[Item]] = {}
        self._busy: dict[int, None] = {}
        self._careful_until = 0.0
        self._wake = asyncio.Event()

    def put(self, shard_id: int, item: Item) -> None:
        queue = self._waiting.get(shard_id)
        if queue is None:
            queue = self._waiting[shard_id] = deque()
        queue.append(item)
        self._wake.set()

    async def loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._take():
                if self._clock.monotonic() < self._careful_until:
                    for shard_id, items in batch.items():
                        self._spawn(self._run({shard_id: items}))
                else:
                    _, late = await asyncio.wait({self._spawn(self._run(batch))}, timeout=PATIENCE_SECONDS)
                    if late:
                        self._careful_until = self._clock.monotonic() + CARE_SECONDS

    def _take(self) -> dict[int, list[Item]]:
        """What waits in shards that have no batch under way."""
        batch: dict[int, list[Item]] = {}
        room, bytes_left = BATCH_LIMIT, BATCH_BYTES
        for shard_id in [shard_id for shard_id in self._waiting if shard_id not in self._busy]:
            queue = self._waiting.pop(shard_id)
            items = batch[shard_id] = []
            while queue and room and bytes_left > 0:
                item = queue.popleft()
                items.append(item)
                room -= 1
                bytes_left -= self._size_of(item)
            if queue:
                self._waiting[shard_id] = queue  # behind all others
            if not room or bytes_left <= 0:
                break
        self._busy.update(dict.fromkeys(batch))
        return batch

    async def _run(self, batch: dict[int, list[Item]]) -> None:
        began = self._clock.monotonic()
        try:
            await self._work([item for items in batch.values() for item in items])
        except Exception:  # noqa: BLE001 - it does not raise; if it does, only these items are lost to memory
            telemetry.exception("a batch ended with an unforeseen error")
        finally:
            now = self._clock.monotonic()
            if now - began > PATIENCE_SECONDS:
                self._careful_until = now + CARE_SECONDS
            for shard_id in batch:
                self._busy.pop(shard_id, None)
            if self._waiting:
                self._wake.set()
