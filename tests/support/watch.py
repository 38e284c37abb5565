"""A clock that a test sets."""

from __future__ import annotations

from mainspring.clock import SystemClock


class Watch(SystemClock):
    """Time that passes when it is told to."""

    seconds = 0.0
    offset_ms = 0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return round(self.seconds * 1000) + self.offset_ms

    def align(self, store_ms: int) -> None:
        self.offset_ms = store_ms - round(self.seconds * 1000)
