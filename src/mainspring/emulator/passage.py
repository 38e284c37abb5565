"""From one instant to a later one, with everything that is due in between.

Time stops at each instant at which something is due, and goes on when all of it was called and its end is on record. So
timers fire in order and at their own instants, a retry follows when its policy says, and every instant of a job is run,
as if the time had really passed. Nothing is skipped, and nothing is late.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mainspring.background import repeat
from mainspring.cluster.instance import Instance
from mainspring.emulator.clock import VirtualClock

LOOK_SECONDS: Final = 0.001
ATTEND_SECONDS: Final = 0.25
EAGER_LOOKS: Final = 50
"""So many looks follow each other without a pause: most of what is due ends at once."""
QUIET_LOOKS: Final = 5
"""How often nothing must be found to do: whoever waited for the end of a call first gets to act on it."""


class Passage:
    def __init__(self, instance: Instance, clock: VirtualClock) -> None:
        self._instance = instance
        self._clock = clock
        self._moving = asyncio.Lock()

    async def go_to(self, target_ms: int, *, seconds: float) -> bool:
        """Move the clock to an instant. False if it has not got there after this many seconds of the machine's time:
        then it has stopped at what is still being called, and whoever asks again continues from there."""
        deadline = self._clock.monotonic() + seconds
        async with self._moving:
            while await self._settle(deadline):
                if self._clock.now_ms() >= target_ms:
                    return True
                due_at = await self._next_due()
                self._clock.move_to(target_ms if due_at is None else min(due_at, target_ms))
                self._wake()
        return False

    async def attend(self) -> None:
        """Whoever deletes or reshards a namespace waits some seconds for others to notice. Where time stands still,
        nobody else would let them pass."""
        await repeat(self._let_pass, seconds=ATTEND_SECONDS, complaint="the clock was not moved for a namespace")

    async def _let_pass(self) -> None:
        namespaces = [] if self._clock.flows else self._instance.namespaces.known
        awaited = [each.deletion.closed_at for each in namespaces if each.deletion] + [
            each.since for each in namespaces
        ]
        latest = max((at_ms for at_ms in awaited if at_ms is not None), default=0)
        if latest > self._clock.now_ms():
            await self.go_to(latest, seconds=ATTEND_SECONDS)

    async def _settle(self, deadline: float) -> bool:
        """Wait until everything due by now has been called and has ended; False if that takes too long."""
        at_ms, looks, quiet = self._clock.now_ms(), 0, 0
        while quiet < QUIET_LOOKS:
            if self._clock.monotonic() >= deadline:
                return False
            quiet = quiet + 1 if await self._is_quiet(at_ms) else 0
            looks += 1
            await asyncio.sleep(0 if quiet or looks < EAGER_LOOKS else LOOK_SECONDS)
        return True

    async def _is_quiet(self, at_ms: int) -> bool:
        instance, engine = self._instance, self._instance.engine
        assert engine is not None, "Expected an instance that is running"
        if instance.calls_in_flight or engine.dispatcher.queued or instance.fetches_assembly.executor.is_busy:
            return False
        if not all(engine.owns(shard_id) for shard_id in self._shard_ids()):
            return False  # a new namespace: its shards are about to be claimed
        due_at = await self._next_due()
        return due_at is None or due_at > at_ms

    async def _next_due(self) -> int | None:
        """A row whose attempt is in flight is still due."""
        found = await self._instance.store.next_due(self._shard_ids())
        return min((due_at for due_at in found if due_at is not None), default=None)

    def _shard_ids(self) -> list[int]:
        namespaces = self._instance.namespaces.known
        return [shard_id for each in namespaces if each.deletion is None for shard_id in each.shards]

    def _wake(self) -> None:
        assert self._instance.engine is not None, "Expected an instance that is running"
        self._instance.engine.dispatcher.wake_reader.set()
