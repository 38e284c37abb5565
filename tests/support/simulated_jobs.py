"""A whole instance in simulated time, whose jobs call functions: years of instants take seconds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.delivery.sender import MakesSenders, Sender
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.messages import CreateJob, JobRef, ListRuns, RunView
from mainspring.store import Store
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import EPOCH_MS, SimulatedClock, SimulatedLoop, run_simulated
from mainspring.wire.instants import to_instant

START = to_instant(EPOCH_MS)
"""2027-01-15 08:00:00 UTC, a Friday."""

RARE: Final[dict[str, Any]] = {"lease_seconds": 60.0, "renew_seconds": 20.0, "look_seconds": 10.0}
"""What an idle instance does again and again, hour after hour, it does seldom."""


class World:
    """Simulated time, one store that survives its instances, and the calls that were made."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.clock = SimulatedClock(loop)
        self.store: Store = MemoryStore(self.clock)
        self.calls: list[tuple[int, DueJob]] = []
        self.behave: Callable[[DueJob], Awaitable[object]] | None = None
        self.instance: Instance

    @asynccontextmanager
    async def running(
        self, *, store: Store | None = None, senders: MakesSenders = Sender, **settings: Any
    ) -> AsyncIterator[Instance]:
        """An instance with a handler `work`, for as long as the block lasts. `senders` makes what calls others."""
        config = Config(allow_loopback=True, store="memory://", drain_seconds=0.1, **{**RARE, **settings})
        self.instance = Instance(
            config,
            store=store or self.store,
            surroundings=Surroundings(clock=self.clock, randomness=random.Random(1), senders=senders),
            allow_handlers=True,
        )
        self.instance.jobs_assembly.run_carrier.handlers["work"] = self._work
        async with self.instance:
            yield self.instance

    async def _work(self, due: DueJob) -> object:
        self.calls.append((self.clock.now_ms(), due))
        return await self.behave(due) if self.behave is not None else None

    async def create(self, name: str = "job", schedule: str = "0 * * * *", **fields: Any) -> None:
        await self.instance.jobs.create(CreateJob(name=name, schedule=schedule, url="handler:work", **fields))

    async def delete(self, name: str = "job") -> None:
        await self.instance.jobs.delete(JobRef(name=name))

    async def until(self, seconds: float) -> None:
        """Let time pass up to so many seconds after the start."""
        await asyncio.sleep(max(0.0, seconds - self.loop.time()))

    async def runs(self, name: str = "job", **wanted: Any) -> list[RunView]:
        """The ledger, oldest first."""
        page = await self.instance.jobs.runs(ListRuns(name=name, limit=1000, **wanted))
        assert page.next_cursor is None
        return list(reversed(page.runs))

    async def told(self, name: str = "job") -> list[tuple[str, str, str]]:
        """When by the clock, what, and why: the ledger in short."""
        return [(run.scheduled_at.strftime("%H:%M:%S"), run.state, run.reason) for run in await self.runs(name)]


def simulate(main: Callable[[World], Awaitable[None]]) -> None:
    async def run(loop: SimulatedLoop) -> None:
        await main(World(loop))

    run_simulated(run)


def clock_time(instant: datetime) -> str:
    return instant.strftime("%H:%M:%S")
