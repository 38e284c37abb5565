"""The store's clock steps back: what was found due or planned before is not forgotten, nor does it stand still."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.kernel.agenda import Agenda
from mainspring.kernel.settings import EngineSettings
from tests.support.engine_cluster import Cluster, done, simulate
from tests.support.troubled_store import TroubledStore

HOUR_MS = 3_600_000


async def _nobody_else_wrote() -> int:
    return 7


def _step(cluster: Cluster, by_ms: int) -> None:
    cluster.clock.align(cluster.clock.now_ms() + by_ms)


@pytest.mark.parametrize("notices", [True, False])
def test_what_was_left_in_the_store_is_sent_after_a_small_step_back(notices: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.05, done())
        if notices:
            cluster.foreign_writes = _nobody_else_wrote
        await cluster.join("a")
        for number in range(400):
            await cluster.create(f"t{number}", in_ms=5980, url=f"http://h{number % 40}")
        await asyncio.sleep(5.9)
        _step(cluster, -500)  # noticed with the renewal at 6.0 s, when the window is full and the others are left
        await asyncio.sleep(60)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == 400

    simulate(scenario, EngineSettings(window_limit=64))


@pytest.mark.parametrize("step_ms", [-2000, -60_000, pytest.param(-HOUR_MS, marks=pytest.mark.slow)])
def test_what_was_left_is_sent_once_it_is_due_again(step_ms: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        cluster.lane_limit = 4
        cluster.foreign_writes = _nobody_else_wrote
        await cluster.join("a")
        for number in range(120):
            await cluster.create(f"t{number}", in_ms=-1000 * (number % 60), url=f"http://h{number % 3}")
        await asyncio.sleep(1)
        _step(cluster, step_ms)
        await asyncio.sleep(-step_ms / 1000 + 120)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == 120

    simulate(scenario, EngineSettings(window_limit=8))


@pytest.mark.slow
def test_what_lies_after_a_step_back_is_not_read_again_and_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (3.0, done())
        cluster.foreign_writes = _nobody_else_wrote
        member = await cluster.join("a")
        for number in range(100):
            await cluster.create(f"t{number}", in_ms=100, url=f"http://h{number % 10}")
        await asyncio.sleep(1)
        _step(cluster, -HOUR_MS)
        await asyncio.sleep(600)
        rows_read, pages = store.rows_read, member.engine.dispatcher.window.pages
        await asyncio.sleep(600)
        assert store.rows_read == rows_read
        assert member.engine.dispatcher.window.pages == pages

    simulate(scenario, EngineSettings(window_limit=8))


def test_a_backlog_that_is_being_read_does_not_wait_for_the_clock_to_catch_up() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.latency_seconds = 0.02
        cluster.foreign_writes = _nobody_else_wrote
        for number in range(3000):
            await cluster.create(f"t{number}", in_ms=-3 * HOUR_MS, announce=False)
        await cluster.join("a")
        await asyncio.sleep(1)
        assert 0 < len(cluster.ledger.sendings) < 3000
        _step(cluster, -HOUR_MS)
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == 3000

    simulate(scenario, EngineSettings(page_size=5))


def test_what_could_not_be_begun_is_tried_again_soon_although_the_clock_stepped_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.foreign_writes = _nobody_else_wrote
        await cluster.join("a")
        store.read_only = {0, 1, 2, 3}
        for number in range(20):
            await cluster.create(f"t{number}", in_ms=-3 * HOUR_MS)
        await asyncio.sleep(0.2)
        _step(cluster, -HOUR_MS)
        await asyncio.sleep(5)
        store.read_only = set()
        await asyncio.sleep(5)
        assert len(cluster.ledger.sendings) == 20

    simulate(scenario)


def test_what_could_not_be_read_is_read_again_soon_although_the_clock_stepped_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.foreign_writes = _nobody_else_wrote
        store.bad_shards = {0, 1, 2, 3}
        for number in range(20):
            await cluster.create(f"t{number}", in_ms=-3 * HOUR_MS, announce=False)
        await cluster.join("a")
        await asyncio.sleep(0.2)
        _step(cluster, -HOUR_MS)
        await asyncio.sleep(5)
        store.bad_shards = set()
        await asyncio.sleep(5)
        assert len(cluster.ledger.sendings) == 20

    simulate(scenario)


def test_an_agenda_is_bounded_by_its_shards_however_often_it_changes() -> None:
    agenda = Agenda()
    agenda.add(0, 1)
    agenda.add(1, 1)
    now, far = 0, 10**12
    agenda.look(0, far - 1000)
    agenda.look(1, far)
    for _ in range(10_000):
        now += 10
        agenda.note(1, now)
        assert [shard.shard_id for shard in agenda.take_due(now, now / 1000)] == [1]
        agenda.look(1, far)
        agenda.look_soon(1, now / 1000 + 10**6)
    assert agenda.size < 100
    assert [shard.shard_id for shard in agenda.take_due(far, now / 1000)] == [0, 1]
