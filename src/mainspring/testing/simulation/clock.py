"""The clock of a simulated machine."""

from __future__ import annotations

from typing import Final

from mainspring.testing.simulation.loop import SimulatedLoop

EPOCH_MS: Final = 1_800_000_000_000
"""Where simulated time starts."""


class SimulatedClock:
    """A `Clock` of the simulated loop; `skew_ms` is how wrong this machine's wall clock is, which it goes by until it
    has asked the store."""

    def __init__(self, loop: SimulatedLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self._offset_ms = EPOCH_MS + skew_ms
        self._is_aligned = False

    def now_ms(self) -> int:
        return self._offset_ms + self._loop.now_us // 1000

    def monotonic(self) -> float:
        return self._loop.now_us / 1_000_000

    def align(self, store_ms: int) -> None:
        self._offset_ms = store_ms - self._loop.now_us // 1000
        self._is_aligned = True

    def step_wall(self, by_ms: int) -> None:
        """The machine's wall clock was moved."""
        if not self._is_aligned:
            self._offset_ms += by_ms
