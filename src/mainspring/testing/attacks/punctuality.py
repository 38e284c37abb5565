"""Timers and fetches to a healthy host, on their own address, while others are under attack: how late they arrive."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mainspring.client import CreateTimer, RetryPolicy
from mainspring.errors import MainspringError
from mainspring.testing.attacks.attack import Victim
from mainspring.testing.target import TargetServer

ADDRESS: Final = "127.0.0.2"
"""Not that of any attacker."""
NEVER: Final = float("inf")
_TIMERS_PER_SECOND: Final = 10
_BETWEEN_FETCHES_SECONDS: Final = 0.25
_ONCE: Final = RetryPolicy(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Punctuality:
    """Of many calls to a healthy host."""

    lateness: tuple[float, ...]
    """Seconds from when each was due to when it arrived; infinite for one that did not."""

    @property
    def worst(self) -> float:
        return max(self.lateness, default=0.0)

    @property
    def missing(self) -> int:
        return self.lateness.count(NEVER)


class Healthy:
    """A host that answers at once, and the calls that were requested to it."""

    def __init__(self, target: TargetServer) -> None:
        self._target = target
        self._due: dict[str, float] = {}

    async def plan_timers(self, victim: Victim, *, seconds: float) -> None:
        """Timers that are due throughout the next seconds; they are stored before anything happens."""
        begin = time.time() + 1.0
        count = max(1, int(seconds * _TIMERS_PER_SECOND))
        due = {f"timer-{number}": begin + number / _TIMERS_PER_SECOND for number in range(count)}
        async with victim.client() as client:
            await client.timers.create_batch([self._timer(name, at) for name, at in due.items()])
        self._due |= due

    async def fetch(self, victim: Victim, *, seconds: float) -> None:
        """Fetches, one after another; each is due when it has been accepted."""
        until = time.monotonic() + seconds
        number = 0
        async with victim.client() as client:
            while time.monotonic() < until:
                name = f"fetch-{number}"
                number += 1
                self._due[name] = time.time()
                try:
                    await client.fetches.create(self._url(name), req_id=name)
                    self._due[name] = time.time()
                except MainspringError:
                    pass  # it stays due, and never arrives
                await asyncio.sleep(_BETWEEN_FETCHES_SECONDS)

    async def probe(self, victim: Victim, name: str, *, within: float) -> bool:
        """Whether a new timer arrives in time."""
        try:
            async with victim.client() as client:
                at = time.time() + 0.2
                await client.timers.create_batch([self._timer(name, at)])
        except MainspringError:
            return False
        await asyncio.sleep(0.2 + within)
        return name in self._arrived()

    async def arrived(self, *, seconds: float) -> None:
        """Wait for those that are still due, but not for ever."""
        until = time.monotonic() + seconds
        while self._due.keys() - self._arrived().keys() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    def punctuality(self, kind: str) -> Punctuality:
        """Of the timers (`timer-`) or the fetches (`fetch-`), so far."""
        arrived = self._arrived()
        due = {name: at for name, at in self._due.items() if name.startswith(kind)}
        return Punctuality(
            tuple(max(0.0, arrived[name] - at) if name in arrived else NEVER for name, at in due.items())
        )

    def _arrived(self) -> dict[str, float]:
        wall = time.time() - time.monotonic()
        return {request.id: wall + request.arrived_at for request in reversed(self._target.requests)}

    def _timer(self, name: str, at: float) -> CreateTimer:
        due = datetime.fromtimestamp(at, UTC)
        return CreateTimer(timer_id=name, execute_at=due, callback_url=self._url(name), retry_policy=_ONCE)

    def _url(self, name: str) -> str:
        return f"{self._target.url}/?id={name}"
