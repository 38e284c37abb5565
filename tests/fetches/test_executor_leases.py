"""The lease by which the pools know that an executor lives."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.errors import StoreUnavailable
from mainspring.fetches.pools import EXECUTORS
from mainspring.model import Record
from mainspring.namespaces.service import NAMESPACES
from mainspring.processes.executor import RemoteExecutor
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated


def test_a_lease_that_an_executor_takes_anew_has_no_version_of_the_one_that_it_had() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock = SimulatedClock(loop)
        store = MemoryStore(clock)
        surroundings = Surroundings(clock=clock, randomness=random.Random(1))

        async def lease() -> Record:
            [found] = await store.scan_records(EXECUTORS, now=clock.now_ms())
            return found

        config = Config(store="memory://")
        async with RemoteExecutor(config, "far", store=store, surroundings=surroundings) as executor:
            await executor.advertise("http://127.0.0.1:1")
            await asyncio.sleep(config.renew_seconds * 2.5)
            before = await lease()
            await store.delete_record(EXECUTORS, before.key, expect=before.version, now=clock.now_ms())
            await asyncio.sleep(config.renew_seconds * 2.5)
            assert abs((await lease()).version - before.version) > 10
        assert await store.scan_records(EXECUTORS, now=clock.now_ms()) == []

    run_simulated(main)


def test_namespaces_that_cannot_be_read_cost_an_executor_no_lease() -> None:
    class Partitioned(MemoryStore):
        is_away = False

        async def scan_records(self, collection: str, **options: Any) -> list[Record]:
            if self.is_away and collection == NAMESPACES:
                raise StoreUnavailable("simulated: a partition is away")
            return await super().scan_records(collection, **options)

    async def main(loop: SimulatedLoop) -> None:
        clock = SimulatedClock(loop)
        store = Partitioned(clock)
        surroundings = Surroundings(clock=clock, randomness=random.Random(1))
        config = Config(store="memory://")
        async with RemoteExecutor(config, "far", store=store, surroundings=surroundings) as executor:
            await executor.advertise("http://127.0.0.1:1")
            store.is_away = True
            await asyncio.sleep(config.lease_seconds * 3)
            assert len(await store.scan_records(EXECUTORS, now=clock.now_ms())) == 1

    run_simulated(main)
