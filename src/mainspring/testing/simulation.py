"""Simulated time: a whole cluster in one thread, in no time, the same for the same seed.

`run_simulated` runs a coroutine on an event loop whose clock jumps to the next timer whenever nothing is ready.
`FaultyStore` stands before any store and, by the dice of its seed, answers late, fails before the write,
or fails after it, so that nobody knows what happened.
"""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.store import Store

T = TypeVar("T")
EPOCH_MS = 1_800_000_000_000
"""Where simulated time starts."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Time stands still while there is work, and jumps when there is none."""

    def __init__(self) -> None:
        self.simulated_seconds = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.simulated_seconds


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("Expected something to wait for, got a simulation in which nothing will ever happen")
        if not ready and timeout:
            self._loop.simulated_seconds += timeout
        return ready


class SimulatedClock:
    """A `Clock` of the simulated loop; `skew_ms` is how wrong this machine's wall clock is before it asks the store."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self._offset_ms = EPOCH_MS + skew_ms

    def now_ms(self) -> int:
        return self._offset_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def align(self, store_ms: int) -> None:
        self._offset_ms = store_ms - int(self._loop.time() * 1000)


def run_simulated(main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)` in simulated time."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class FaultyStore:
    """A store with a bad connection. `cut` makes it unreachable, as from one frozen or partitioned instance."""

    def __init__(self, inner: Store, dice: random.Random, *, fault_rate: float, latency_seconds: float) -> None:
        self._inner = inner
        self._dice = dice
        self.fault_rate = fault_rate
        self.latency_seconds = latency_seconds
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name in ("open", "close"):
            return verb
        return functools.partial(self._call, verb)

    async def _call(self, verb: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self._dice.random() * self.latency_seconds)
        if self.cut or self._dice.random() < self.fault_rate / 2:
            raise StoreUnavailable("simulated: the request was lost")
        answer = await verb(*args, **kwargs)
        await asyncio.sleep(self._dice.random() * self.latency_seconds)
        if self._dice.random() < self.fault_rate / 2:
            raise StoreUnavailable("simulated: the answer was lost")
        return answer
