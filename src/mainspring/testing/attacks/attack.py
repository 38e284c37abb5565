"""What an attack is, and whom it is against."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from mainspring.client import AsyncClient

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Victim:
    """A server on this machine."""

    port: int
    token: str = ""

    def client(self) -> AsyncClient:
        """A client that asks once, so that what it waits for is what the server took."""
        return AsyncClient(f"http://{HOST}:{self.port}", self.token, retries=0, timeout=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Lasts about as long as it is told to, and returns how much it got through."""

    name: str
    what: str
    """For people, in one sentence."""
    run: Callable[[Victim, float, int], Coroutine[Any, Any, int]]
    """Against whom, for how many seconds, with how many of what it uses: connections, timers, hosts."""
    size: int
    """How many, unless told otherwise."""
    counts: str
    """What the number that it returns means."""
    most_per_second: float | None = None
    """If it gets through more than this for each of its size, it has succeeded, whatever others noticed."""
    most_growth_bytes: int = 150_000_000
    """What the server may grow by."""
    restarts: bool = False
    """Whether it is aimed at the next start of the server."""


async def crowd(member: Callable[[float], Awaitable[int]], size: int, seconds: float) -> int:
    """This many at once, each until the same moment; returns the sum of what they achieved."""
    until = time.monotonic() + seconds
    return sum(await asyncio.gather(*(member(until) for _ in range(size))))
