"""Ends fetches that nobody has begun in time, because all places are taken, so that none waits without bound.

A fetch that is begun too late ends when somebody comes to begin it. Those behind it may not be reached for long: while
calls have to wait for a place, and only then, the pending rows are looked through, so many at a time. A place is one of
the executor, or one of the engine, whose slots may all be taken by offers to origins that do not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.fetches.ledger import Ledger
from mainspring.fetches.outcome import of_no_room
from mainspring.fetches.rows import begin_by
from mainspring.model import Timer
from mainspring.store import START, Position, TimerFilter, TimerStore

LOOK_SECONDS: Final = 2.0
PAGE: Final = 500
PAGES: Final = 10
"""How many of them one look reads at most; the next goes on behind."""
ENDED_AT_ONCE: Final = 50
WAITED_MS: Final = 1_000
"""Who has waited so long has waited for a place."""
CROWDED_SECONDS: Final = 10.0
"""How long it is believed that others wait, too."""
_SOON_MS: Final = 5_000
"""Rows that were tried in vain are due again within it."""


class Overdue:
    def __init__(
        self,
        *,
        timers: TimerStore,
        ledger: Ledger,
        clock: Clock,
        owned: Callable[[], Iterable[int]],
        is_full: Callable[[], bool],
    ) -> None:
        """`owned`: shards. `is_full`: nothing can be begun at this moment."""
        self._timers = timers
        self._ledger = ledger
        self._clock = clock
        self._owned = owned
        self._is_full = is_full
        self._crowded_until = 0.0
        self._next_look = 0.0
        self._after = START

    def waited(self, milliseconds: int) -> None:
        """A call has waited so long to be begun."""
        if milliseconds >= WAITED_MS:
            self._crowded_until = self._clock.monotonic() + CROWDED_SECONDS

    async def look(self) -> None:
        monotonic = self._clock.monotonic()
        if monotonic < self._next_look or not (self._is_full() or monotonic < self._crowded_until):
            return
        self._next_look = monotonic + LOOK_SECONDS
        shards = sorted(self._owned())
        for _ in range(PAGES):
            now = self._clock.now_ms()
            where = TimerFilter(labels=(("state", "pending"),), due_to=now + _SOON_MS)
            rows = await self._timers.list_timers(shards, where, after=self._after, limit=PAGE)
            self._after = Position(rows[-1].due_at, rows[-1].uuid) if rows else START
            overdue = [row for row in rows if begin_by(row) <= now]
            for first in range(0, len(overdue), ENDED_AT_ONCE):
                async with asyncio.TaskGroup() as ending:
                    for row in overdue[first : first + ENDED_AT_ONCE]:
                        ending.create_task(self._end(row))
            if self._after == START:
                return

    async def _end(self, row: Timer) -> None:
        outcome = of_no_room(created_at=row.detail.created_at, now=self._clock.now_ms())
        try:
            fetch = await self._ledger.give_up(row.timer_id, outcome)
            if fetch is not None:
                await self._ledger.move(fetch)
        except StoreUnavailable as error:  # it is met again in the next round
            telemetry.warning("a fetch that nobody begins was not ended", req_id=row.timer_id, reason=error.detail)
