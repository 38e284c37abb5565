"""A database whose clock is set, ahead or back, while work runs: what the guide says of it, and no worse."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from mainspring.idempotency import NotDone, Unresolved
from mainspring.idempotency.async_processor import AsyncIdempotentProcessor
from mainspring.idempotency.errors import InProgress, LostClaim, NotRecorded, UnknownOutcome
from mainspring.idempotency.stores.records import RecordsStore, TimedRecords
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import FaultyStore, SimulatedClock, SimulatedLoop, run_simulated

HOUR_MS = 3_600_000


class World:
    """One database, and processes of which each has a clock of its own. The work takes a little longer than a lease."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.clock = SimulatedClock(loop)
        self.database = MemoryStore(self.clock)
        self.runs: list[str] = []

    def jump(self, hours: float) -> None:
        self.clock.align(self.clock.now_ms() + round(hours * HOUR_MS))

    def process(self, name: str, *, resolves: bool = False, records: TimedRecords | None = None) -> Awaitable[str]:
        async def work(_: object) -> str:
            self.runs.append(name)
            await asyncio.sleep(50)
            return name

        async def not_done(_: object, __: Unresolved) -> NotDone:
            return NotDone()

        store = RecordsStore(records or self.database, clock=SimulatedClock(self.loop))
        processor = AsyncIdempotentProcessor(
            store, work, scope="s", resolve=not_done if resolves else None, wait_seconds=0
        )
        processor._model.monotonic = self.loop.time

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


@pytest.mark.parametrize("hours", [3, -3, -30])
def test_work_under_way_is_recorded_and_replayed_whenever_the_clock_says_that_was(hours: int) -> None:
    async def main(world: World) -> None:
        first = asyncio.ensure_future(world.process("A"))
        await asyncio.sleep(15)
        world.jump(hours)
        with pytest.raises(UnknownOutcome if hours > 0 else InProgress):
            await world.process("B")
        assert await first == "A"
        await asyncio.sleep(20 * 3600)
        assert await world.process("C") == "A"
        assert world.runs == ["A"]

    simulate(main)


def test_when_the_clock_jumps_back_the_key_of_a_dead_process_is_in_progress_for_so_much_longer() -> None:
    async def main(world: World) -> None:
        records = FaultyStore(world.database, random.Random(0), fault_rate=0.0, latency_seconds=0.0)
        first = asyncio.ensure_future(world.process("A", records=records))
        await asyncio.sleep(15)
        world.jump(-3)
        records.cut = True  # as good as dead
        await asyncio.sleep(3 * 3600 - 60)
        with pytest.raises(InProgress):
            await world.process("B")
        await asyncio.sleep(120)
        with pytest.raises(UnknownOutcome):
            await world.process("C")
        assert world.runs == ["A"]
        with pytest.raises(NotRecorded):
            await first

    simulate(main)


@pytest.mark.parametrize("hours", [23, 25])
@pytest.mark.parametrize("seconds", [15, 60])
def test_a_result_is_kept_by_the_databases_clock_also_when_that_jumps_ahead(hours: int, seconds: int) -> None:
    """Also one that comes right after the jump, when its process has not asked for the time again."""

    async def main(world: World) -> None:
        first = asyncio.ensure_future(world.process("A"))
        await asyncio.sleep(seconds)
        world.jump(hours)
        assert await first == "A"
        assert await world.process("B") == ("A" if hours < 24 else "B")

    simulate(main)
