"""A store with a bad connection, for tests of one part: the dice of its seed are thrown for each call."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any

from mainspring.errors import StoreUnavailable
from mainspring.store import Store


class FaultyStore:
    """Stands before any store and answers late, fails before the write, or fails after it, so that nobody knows what
    happened. `cut` makes it unreachable, as from one frozen or partitioned instance."""

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
