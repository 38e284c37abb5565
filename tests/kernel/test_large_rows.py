"""The window is bounded in bytes: large payloads fill no memory, take no place of others, and are all sent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from mainspring.kernel.batches import BATCH_BYTES
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Timer
from mainspring.store import Begin, Finish, Verdict
from tests.kernel.lateness import lateness, slow_by_name
from tests.support.engine_cluster import Cluster, Member, done, simulate
from tests.support.troubled_store import TroubledStore

LARGE = '"' + "x" * 9_998 + '"'
HUGE = '"' + "x" * 299_998 + '"'
ROW = 11_000
"""More than a row with it takes."""


class CountingStore(TroubledStore):
    """The most attempts that were begun, or finished, at once."""

    most = 0

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        self.most = max(self.most, len(items))
        return await super().begin(items)

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        self.most = max(self.most, len(items))
        return await super().finish(items)


class Measured(dict[str, Timer]):
    """Rows, and the most bytes that their payloads ever had."""

    most = 0

    def __setitem__(self, uuid: str, timer: Timer) -> None:
        super().__setitem__(uuid, timer)
        self.most = max(self.most, sum(len(known.payload or "") for known in self.values()))


def measured(member: Member) -> Measured:
    member.engine.dispatcher.window.rows = rows = Measured()
    return rows


def test_rows_in_memory_take_no_more_bytes_than_they_may() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        rows = measured(await cluster.join("a"))
        for number in range(300):
            await cluster.create(f"t{number}", in_ms=100, url=f"http://host{number % 20}", payload=LARGE)
        await asyncio.sleep(60)
        assert len(cluster.ledger.sendings) == 300
        assert await cluster.rows() == []
        assert 200_000 < rows.most < 400_000 + ROW

    simulate(scenario, EngineSettings(window_bytes=400_000))


def test_large_rows_that_take_the_place_of_small_ones_take_no_more_bytes_than_there_are() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = slow_by_name(2.0)  # type: ignore[assignment]
        rows = measured(await cluster.join("a"))
        for number in range(400):
            await cluster.create(f"small{number}", url="http://slow", payload='"' + "x" * 400 + '"')
        await asyncio.sleep(1)
        for number in range(200):
            await cluster.create(f"large{number}", url=f"http://slow{number}", payload=LARGE)
        await asyncio.sleep(100)
        assert len(cluster.ledger.sendings) == 600
        assert rows.most < 200_000 + ROW

    simulate(scenario, EngineSettings(window_bytes=200_000))


def test_what_is_begun_at_once_is_bounded_in_bytes() -> None:
    """What users write meanwhile waits for it."""

    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = CountingStore(cluster.store)
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        for number in range(100):
            await cluster.create(f"t{number}", in_ms=100, url=f"http://host{number % 4}", payload=HUGE)
        await asyncio.sleep(60)
        assert len(cluster.ledger.sendings) == 100
        assert 1 < store.most <= BATCH_BYTES // len(HUGE) + 1

    simulate(scenario)


def test_payloads_are_measured_by_what_they_take_in_memory() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        rows = measured(await cluster.join("a"))
        for number in range(100):
            await cluster.create(f"t{number}", url=f"http://host{number}", payload=LARGE[:-2] + '😀"')
        await asyncio.sleep(60)
        assert len(cluster.ledger.sendings) == 100
        assert 4 * rows.most < 400_000 + 4 * ROW

    simulate(scenario, EngineSettings(window_bytes=400_000))


@pytest.mark.parametrize(
    ("window", "in_flight", "size"),
    [*itertools.product((1, 3, 8192), (1, 3, 1024), (1, 15_000, 100_000))],
)
def test_however_few_bytes_there_are_everything_that_is_due_is_sent(window: int, in_flight: int, size: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.01, done())
        rows = measured(await cluster.join("a"))
        for number in range(60):
            payload = LARGE if number % 2 else None
            await cluster.create(f"t{number}", in_ms=number % 3, url=f"http://host{number % 12}", payload=payload)
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == 60
        assert await cluster.rows() == []
        assert rows.most < size + ROW

    simulate(scenario, EngineSettings(window_limit=window, in_flight_limit=in_flight, window_bytes=size))


def test_large_rows_for_destinations_that_hang_hold_back_no_small_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = slow_by_name(30.0)  # type: ignore[assignment]
        rows = measured(await cluster.join("a"))
        for number in range(10):
            await cluster.create(f"known{number}", url=f"http://known{number}")
        await asyncio.sleep(1)
        for number in range(300):
            await cluster.create(f"large{number}", url=f"http://slow{number % 30}", payload=LARGE)
        await asyncio.sleep(1)
        for number in range(200):
            await cluster.create(f"good{number}", url=f"http://known{number % 10}")
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        late = lateness(cluster, "good")
        assert len(late) == 200
        assert max(late) < 500
        assert rows.most < 1_000_000 + ROW

    simulate(scenario, EngineSettings(window_bytes=1_000_000))


def test_large_rows_wait_for_slots_without_keeping_small_ones_from_theirs() -> None:
    """Calls in flight cannot give way: they have three quarters of the bytes for large rows, and leave some."""

    async def scenario(cluster: Cluster) -> None:
        cluster.behave = slow_by_name(30.0)  # type: ignore[assignment]
        member = await cluster.join("a")
        await cluster.create("known", url="http://good")
        await asyncio.sleep(1)
        for number in range(500):
            await cluster.create(f"large{number}", url=f"http://slow{number}", payload=LARGE)
        await asyncio.sleep(1)
        flying = [member.engine.dispatcher.window.rows[uuid] for uuid in member.engine.dispatcher._calls]
        assert 250_000 < sum(len(timer.payload or "") for timer in flying) < 562_500 + ROW
        await cluster.create("good", url="http://good")
        await asyncio.sleep(1)
        assert lateness(cluster, "good")[0] < 500

    simulate(scenario, EngineSettings(window_bytes=1_000_000))


@pytest.mark.parametrize(
    ("payload", "settings"),
    [(LARGE, EngineSettings(window_bytes=400_000)), ('""', EngineSettings(window_limit=28, in_flight_limit=14))],
    ids=["bytes", "places"],
)
def test_rows_of_busy_destinations_do_not_take_the_place_of_one_another_again_and_again(
    payload: str, settings: EngineSettings
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        member = await cluster.join("a")
        for number in range(200):
            await cluster.create(f"t{number}", in_ms=100, url=f"http://host{number % 20}", payload=payload)
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == 200
        assert member.engine.dispatcher.window.admitted < 3 * 200

    simulate(scenario, settings)
