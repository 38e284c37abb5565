"""Ends fetches that nobody has begun in time, because all places are taken, so that none waits without bound.

A fetch that is begun too late ends when somebody comes to begin it. Those behind it may not be reached for a long time:
while calls have to wait for a place, and only then, the pending rows are looked through, a number at a time. A place is
one of the executor's, or a slot of the engine: these may all be taken by offers to origins that do not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from mainspring import telemetry
from mainspring.background import guarded
from mainspring.clock import Clock
from mainspring.errors import Conflict, StoreUnavailable
from mainspring.fetches.outcome import of_no_room
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.rows import begin_by
from mainspring.model import Timer
from mainspring.store import START, Position, TimerFilter, TimerStore

LOOK_SECONDS: Final = 2.0
PAGE: Final = 200
PAGES: Final = 4
"""How many of them one look reads at most from each shard; the next look continues from there."""
ENDED_AT_ONCE: Final = 10
"""Of each shard."""
WAITED_MS: Final = 1_000
"""A call that has waited this long has waited for a place."""
CROWDED_SECONDS: Final = 10.0
"""How long it is believed that others wait, too."""
_SOON_MS: Final = 5_000
"""Rows that were tried in vain are due again within it."""


class Sweeper:
    def __init__(
        self,
        *,
        timers: TimerStore,
        registry: FetchRegistry,
        clock: Clock,
        owned: Callable[[], Iterable[int]],
        is_full: Callable[[], bool],
    ) -> None:
        """`owned`: shards. `is_full`: nothing can be begun at this moment."""
        self._timers = timers
        self._registry = registry
        self._clock = clock
        self._owned = owned
        self._is_full = is_full
        self._crowded_until = 0.0
        self._next_look = 0.0
        self._after: dict[int, Position] = {}
        """How far each shard has been looked through."""

    def waited(self, milliseconds: int) -> None:
        """A call has waited this long to be begun."""
        if milliseconds >= WAITED_MS:
            self._crowded_until = self._clock.monotonic() + CROWDED_SECONDS

    async def look(self) -> None:
        monotonic = self._clock.monotonic()
        if monotonic < self._next_look or not (self._is_full() or monotonic < self._crowded_until):
            return
        self._next_look = monotonic + LOOK_SECONDS
        shards = sorted(self._owned())
        self._after = {shard_id: self._after.get(shard_id, START) for shard_id in shards}
        # Each on its own: one that cannot be reached, or hangs, is no reason to keep the others waiting.
        await asyncio.gather(*(self._look_through(shard_id) for shard_id in shards))

    async def _look_through(self, shard_id: int) -> None:
        with guarded("the search for fetches that were not started failed", shard=shard_id):
            for _ in range(PAGES):
                where = TimerFilter(labels=(("state", "pending"),), due_to=self._clock.now_ms() + _SOON_MS)
                after = self._after[shard_id]
                rows, end = await self._timers.list_timers([shard_id], where, after=after, limit=PAGE)
                if not await self._end_overdue(shard_id, rows):
                    return
                self._after[shard_id] = START if end is None else end
                if end is None:
                    return

    async def _end_overdue(self, shard_id: int, rows: list[Timer]) -> bool:
        """False as soon as something could not be reached. The next look begins after it."""
        now = self._clock.now_ms()
        for first in range(0, len(rows), ENDED_AT_ONCE):
            some = rows[first : first + ENDED_AT_ONCE]
            self._after[shard_id] = Position(some[-1].due_at, some[-1].uuid)
            if not all(await asyncio.gather(*(self._end(row) for row in some if begin_by(row) <= now))):
                return False
        return True

    async def _end(self, row: Timer) -> bool:
        """False if something could not be reached: it comes up again in a later round."""
        complaint = "a fetch that was not started could not be ended"
        outcome = of_no_room(created_at=row.detail.created_at, now=self._clock.now_ms())
        with guarded(complaint, req_id=row.timer_id):
            try:
                fetch = await self._registry.give_up(row.timer_id, outcome)
                if fetch is not None:
                    await self._registry.move(fetch)
            except Conflict:
                pass  # the record cannot be read, which was logged when it was set aside
            except StoreUnavailable as error:
                telemetry.warning(complaint, req_id=row.timer_id, reason=error.detail)
                return False
        return True
