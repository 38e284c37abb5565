"""A database whose clock is set ahead while work runs: what the guide says of it, and no worse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mainspring.idempotency import NotDone, Unresolved
from mainspring.idempotency.errors import LostClaim, UnknownOutcome
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.idempotency.waiting import AsyncIdempotentProcessor
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated


class World:
    """One database, and processes of which each has a clock of its own. The work takes a little longer than a lease."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.clock = SimulatedClock(loop)
        self.database = MemoryStore(self.clock)
        self.runs: list[str] = []

    def process(self, name: str, *, resolves: bool) -> Awaitable[str]:
        async def work(_: object) -> str:
            self.runs.append(name)
            await asyncio.sleep(50)
            return name

        async def not_done(_: object, __: Unresolved) -> NotDone:
            return NotDone()

        store = RecordsStore(self.database, clock=SimulatedClock(self.loop))
        processor = AsyncIdempotentProcessor(
            store, work, scope="s", resolve=not_done if resolves else None, wait_seconds=5
        )

        async def ask() -> str:
            return (await processor.process({"x": 1}, key="k")).result

        return ask()


def simulate(main: Callable[[World], Awaitable[None]]) -> None:
    async def run(loop: SimulatedLoop) -> None:
        await main(World(loop))

    run_simulated(run)


def test_work_under_way_looks_unknown_to_others_and_is_recorded_all_the_same() -> None:
    async def main(world: World) -> None:
        first = asyncio.ensure_future(world.process("A", resolves=False))
        await asyncio.sleep(15)
        world.clock.align(world.clock.now_ms() + 40_000)
        with pytest.raises(UnknownOutcome):
            await world.process("B", resolves=False)
        assert await first == "A"
        assert await world.process("C", resolves=False) == "A"
        assert world.runs == ["A"]

    simulate(main)


def test_with_resolve_it_runs_again_and_the_first_overwrites_nothing() -> None:
    async def main(world: World) -> None:
        first = asyncio.ensure_future(world.process("A", resolves=True))
        await asyncio.sleep(15)
        world.clock.align(world.clock.now_ms() + 40_000)
        second = asyncio.ensure_future(world.process("B", resolves=True))
        with pytest.raises(LostClaim):
            await first
        assert await second == "B"
        assert await world.process("C", resolves=True) == "B"
        assert world.runs == ["A", "B"]

    simulate(main)
