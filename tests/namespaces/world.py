"""Instances in simulated time that share one store, what they called, and a store whose user dies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.model import Timer
from mainspring.store import Store
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from mainspring.timers.messages import CreateTimer


class World:
    """Simulated time, one store, and the ids of the timers that were called."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.clock = SimulatedClock(loop)
        self.store: Store = MemoryStore(self.clock)
        self.called: list[str] = []

    @asynccontextmanager
    async def running(self, seed: int = 1, *, store: Store | None = None) -> AsyncIterator[Instance]:
        instance = Instance(
            Config(store="memory://", drain_seconds=0.1),
            store=store or self.store,
            surroundings=Surroundings(clock=self.clock, randomness=random.Random(seed)),
            allow_handlers=True,
        )
        instance.timers_assembly.carrier.handlers["h"] = self._call
        async with instance:
            yield instance

    async def _call(self, timer: Timer) -> None:
        self.called.append(timer.timer_id)


def simulate(main: Callable[[World], Awaitable[None]]) -> None:
    async def run(loop: SimulatedLoop) -> None:
        await main(World(loop))

    run_simulated(run)


def timer_in(namespace: str, name: str, seconds: float) -> CreateTimer:
    return CreateTimer(namespace=namespace, timer_id=name, delay_seconds=seconds, callback_url="handler:h")


class Killed(Exception):
    pass


class Mortal(MemoryStore):
    """A store whose user dies at one of its calls, before or after it is carried out."""

    lives: float = float("inf")

    async def _live(self, call: Awaitable[Any]) -> Any:
        self.lives -= 1
        if self.lives == 0:
            asyncio.ensure_future(call).cancel()
            raise Killed
        answer = await call
        self.lives -= 1
        if self.lives == 0:
            raise Killed
        return answer

    async def put_record(self, *args: Any, **options: Any) -> Any:
        return await self._live(super().put_record(*args, **options))

    async def delete_record(self, *args: Any, **options: Any) -> Any:
        return await self._live(super().delete_record(*args, **options))

    async def write(self, *args: Any, **options: Any) -> Any:
        return await self._live(super().write(*args, **options))

    async def claim_shards(self, *args: Any, **options: Any) -> Any:
        return await self._live(super().claim_shards(*args, **options))

    async def prune_history(self, *args: Any, **options: Any) -> Any:
        return await self._live(super().prune_history(*args, **options))
