"""Time that can be moved ahead, and between moves either flows or stands still.

Only the store's time is virtual. Leases, deadlines of calls and durations go by the machine's monotonic clock as ever:
a jump of a month ends no call that is under way.
"""

from __future__ import annotations

from mainspring.clock import SystemClock, wall_ms


class VirtualClock:
    """A `Clock` for one instance on a store in memory, which has no time of its own."""

    def __init__(self, *, at_ms: int | None = None, flows: bool = False) -> None:
        """Starts at `at_ms`, or now."""
        self.flows = flows
        self._machine = SystemClock()
        self._at_ms = wall_ms() if at_ms is None else at_ms
        self._since = self._machine.monotonic()

    def now_ms(self) -> int:
        if not self.flows:
            return self._at_ms
        return self._at_ms + int((self._machine.monotonic() - self._since) * 1000)

    def monotonic(self) -> float:
        return self._machine.monotonic()

    def align(self, store_ms: int) -> None:
        """The store has its time from here."""

    def move_to(self, at_ms: int) -> None:
        """It is `at_ms` now, unless that has passed: time never goes back."""
        if at_ms > self.now_ms():
            self._at_ms, self._since = at_ms, self._machine.monotonic()
