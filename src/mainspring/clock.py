"""The only reader of real time.

Engine time is the store's time plus a monotonic delta, so a jump of this machine's wall clock moves nothing
until the store itself says so. Simulations put another `Clock` in its place.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

ASK_TRIES: Final = 3
SLOW_SECONDS: Final = 0.5
"""How old the time in an answer may be."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Engine time: milliseconds since the epoch, as the store counts them."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; for leases, deadlines and durations."""
        ...

    def align(self, store_ms: int) -> None:
        """Take over the time that the store has just reported."""
        ...


async def follow(clock: Clock, ask: Callable[[], Awaitable[int]], *, is_aligned: bool) -> float:
    """Align `clock` with the store's time, which `ask` asks for. Returns when that was asked for, by the monotonic
    clock.

    An answer that was long on its way, or found this process frozen, tells an old time: then it is asked for again, a
    few times. That is not needed if the clock `is_aligned` and may well agree with the store's by now.
    """
    for _ in range(ASK_TRIES):
        asked_at = clock.monotonic()
        told = await ask()
        age = clock.monotonic() - asked_at
        if age <= SLOW_SECONDS:
            break
        if is_aligned and told <= clock.now_ms() <= told + age * 1000:
            return asked_at
    clock.align(told)
    return asked_at


# CLOCK_BOOTTIME goes on while a machine is suspended; where it does not exist, the ordinary monotonic clock serves.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_ms() -> int:
    """The machine's wall clock, for an embedded store that has no other."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """Real time: starts at the machine's wall clock and follows the store from its first answer on."""

    def __init__(self) -> None:
        self._offset_ms = wall_ms() - self._monotonic_ms()

    @staticmethod
    def _monotonic_ms() -> int:
        return time.clock_gettime_ns(_CLOCK) // 1_000_000

    def now_ms(self) -> int:
        return self._offset_ms + time.clock_gettime_ns(_CLOCK) // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)

    def align(self, store_ms: int) -> None:
        self._offset_ms = store_ms - self._monotonic_ms()
