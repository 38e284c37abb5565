"""The clock of a simulated machine."""

from __future__ import annotations

from typing import Final

from mainspring.testing.simulation.loop import SimulatedLoop

EPOCH_MS: Final = 1_800_000_000_000
"""Where simulated time starts."""


class SimulatedClock:
    """A `Clock` of the simulated loop; `skew_ms` is how wrong this machine's wall clock is before it asks the store."""

    def __init__(self, loop: SimulatedLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self._offset_ms = EPOCH_MS + skew_ms

    def now_ms(self) -> int:
        return self._offset_ms + self._loop.now_us // 1000

    def monotonic(self) -> float:
        return self._loop.now_us / 1_000_000

    def align(self, store_ms: int) -> None:
        self._offset_ms = store_ms - self._loop.now_us // 1000
