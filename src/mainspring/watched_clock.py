"""A clock that speaks up when the store's time jumps.

Timers fire by the store's clock. If that goes wrong by days, calls are made that nobody meant for today, and no engine
can tell that from a night in which everything stood still: it can only say so, loudly, to somebody who can.
"""

from __future__ import annotations

from collections.abc import Callable

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.config import DAY_MS


class WatchedClock:
    """`clock`, with a word about every jump by more than a day."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_ms: Callable[[], int] = clock.now_ms
        self.monotonic: Callable[[], float] = clock.monotonic

    def align(self, store_ms: int) -> None:
        jump = store_ms - self._clock.now_ms()
        if abs(jump) > DAY_MS:
            direction = "forward" if jump > 0 else "backward"
            telemetry.clock_jumps.add(direction)
            telemetry.error(
                "the store's clock has jumped ahead: timers fire by it, and those it skipped are due now"
                if jump > 0
                else "the store's clock has jumped back: timers fire by it, and nothing is due until it has caught up",
                days=round(jump / DAY_MS, 3),
                store_ms=store_ms,
            )
        self._clock.align(store_ms)
