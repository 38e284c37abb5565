"""The store's time, as a program hears of it: late, or after it was frozen."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainspring.clock import ASK_TRIES, follow
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.idempotency.claims import StoreClock
from mainspring.processes.executor import RemoteExecutor
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from tests.support.engine_cluster import Cluster, simulate
from tests.support.watch import Watch


class Server:
    """Goes by the seconds of `watch`. Its answers are so many seconds on their way."""

    def __init__(self, watch: Watch, *answers: float) -> None:
        self.watch = watch
        self.answers = list(answers)
        self.asked = 0

    async def time(self) -> int:
        self.asked += 1
        told = round(self.watch.seconds * 1000)
        self.watch.seconds += self.answers.pop(0)
        return told


async def test_an_answer_that_finds_the_program_frozen_is_not_taken_for_the_time() -> None:
    watch = Watch()
    watch.offset_ms = 2000
    server = Server(watch, 3.6, 0.01)
    clock = StoreClock(watch)
    await clock.ask(server.time)
    assert server.asked == 2
    assert abs(clock.now_ms() - watch.seconds * 1000) < 50


async def test_a_store_that_is_always_slow_is_asked_a_few_times_and_then_believed() -> None:
    watch = Watch()
    server = Server(watch, *[2.0] * ASK_TRIES)
    clock = StoreClock(watch)
    assert await clock.ask(server.time) == 2000 * (ASK_TRIES - 1)
    assert server.asked == ASK_TRIES
    assert not clock.is_stale


@pytest.mark.parametrize("wrong_ms", [-1900, -1000, 0])
async def test_a_clock_that_may_well_be_right_stays_as_it_is_and_a_slow_store_is_asked_once(wrong_ms: int) -> None:
    watch = Watch()
    watch.offset_ms = wrong_ms
    server = Server(watch, *[2.0] * 10)
    asked_at = await follow(watch, server.time, is_aligned=True)
    assert server.asked == 1
    assert watch.offset_ms == wrong_ms
    assert asked_at == 0.0


@pytest.mark.parametrize("step_ms", [-60_000, 60_000])
async def test_a_clock_that_the_store_contradicts_is_set_right_by_an_answer_that_comes_soon(step_ms: int) -> None:
    watch = Watch()
    watch.offset_ms = -step_ms
    server = Server(watch, 2.0, 0.01)
    asked_at = await follow(watch, server.time, is_aligned=True)
    assert server.asked == 2
    assert watch.offset_ms == -10
    assert asked_at == 2.0


class SlowlyTold(MemoryStore):
    """So many answers about the time are long on their way."""

    slow = 0
    seconds = 4.0

    async def time(self) -> int:
        told = await super().time()
        if self.slow:
            self.slow -= 1
            await asyncio.sleep(self.seconds)
        return told


def test_an_engine_does_not_believe_a_time_that_was_long_on_its_way() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = SlowlyTold(cluster.clock)
        cluster.latency_seconds = 0.2
        member = await cluster.join("a")
        await asyncio.sleep(3)
        store.slow = 1
        for _ in range(1000):
            await asyncio.sleep(0.01)
            assert abs(member.clock.now_ms() - cluster.clock.now_ms()) <= 200
        assert store.slow == 0

    simulate(scenario)


def test_a_store_that_is_slow_to_tell_the_time_costs_no_lease() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = SlowlyTold(cluster.clock)
        member = await cluster.join("a")
        store.slow, store.seconds = 10**6, 2.0
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert member.ownership.valid()

    simulate(scenario)


def test_an_executor_that_starts_does_not_believe_a_time_that_was_long_on_its_way() -> None:
    async def main(loop: SimulatedLoop) -> None:
        true, clock = SimulatedClock(loop), SimulatedClock(loop, skew_ms=1500)
        store = SlowlyTold(true)
        store.slow = 1
        surroundings = Surroundings(clock=clock, randomness=random.Random(1))
        async with RemoteExecutor(Config(store="memory://"), "far", store=store, surroundings=surroundings):
            assert abs(clock.now_ms() - true.now_ms()) < 50

    run_simulated(main)
