"""An instance that lost its lease and lives: what it has begun, it ends, and it believes of its shards what is so."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model import Delivery, Result
from mainspring.store import Store
from tests.support.engine_cluster import NAMESPACE, Cluster, Member, done, simulate
from tests.support.troubled_store import TroubledStore

STEPS = ["the second write", "the members", "the placement"]
"""Of a renewal that has found the lease gone."""


class LeaseStore(TroubledStore):
    """Takes no renewals while it is `cut`; then the first renewal that finds the lease gone fails at `step`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.cut = False
        self.step = ""
        self.is_gone = False

    async def put_record(self, *args: Any, **options: Any) -> Any:
        if self.cut:
            raise StoreUnavailable("simulated: cut off")
        if self.is_gone:
            self.fail("the second write")
        return await self._inner.put_record(*args, **options)

    async def get_record(self, *args: Any, **options: Any) -> Any:
        found = await self._inner.get_record(*args, **options)
        self.is_gone = self.is_gone or found is None
        return found

    async def scan_records(self, *args: Any, **options: Any) -> Any:
        self.fail("the members")
        return await self._inner.scan_records(*args, **options)

    def fail(self, step: str) -> None:
        if self.is_gone and self.step == step:
            self.step = ""
            raise StoreUnavailable("simulated: refused")


async def lone(cluster: Cluster) -> LeaseStore:
    """A lone instance on a store of its own."""
    inner = cluster.store
    cluster.store = store = LeaseStore(inner)

    async def shard_ids() -> list[int]:
        store.fail("the placement")
        return list(NAMESPACE.shards)

    cluster.shard_ids = shard_ids  # type: ignore[method-assign]
    await cluster.join("a")
    cluster.store = inner
    await asyncio.sleep(5)
    return store


async def lose_the_lease(store: LeaseStore, step: str) -> None:
    store.is_gone = False
    store.cut = True
    await asyncio.sleep(10)
    store.step = step
    store.cut = False


@pytest.mark.parametrize("step", STEPS)
def test_a_lone_instance_whose_renewal_failed_half_way_records_all_calls_that_it_has_made(step: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: (9.0 + int(timer.timer_id[1:]), done())
        store = await lone(cluster)
        for number in range(16):
            delivery = Delivery.AT_MOST_ONCE if number % 2 else Delivery.AT_LEAST_ONCE
            await cluster.create(f"t{number}", delivery=delivery)
        await asyncio.sleep(1)
        await lose_the_lease(store, step)
        await asyncio.sleep(90)
        assert not store.step, "the renewal failed"
        assert Counter(sending.timer.timer_id for sending in cluster.ledger.sendings) == {f"t{n}": 1 for n in range(16)}
        for number in range(16):
            history = await cluster.store.history(NAMESPACE.key_of(f"t{number}"))
            assert [attempt.outcome for attempt in history] == [Result.SUCCEEDED]
        assert await cluster.rows() == []

    simulate(scenario)


@pytest.mark.parametrize("step", STEPS)
def test_after_a_renewal_that_failed_half_way_the_engine_has_the_fences_that_the_store_has(step: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        store = await lone(cluster)
        [member] = cluster.members
        await lose_the_lease(store, step)
        await asyncio.sleep(5)
        assert not store.step, "the renewal failed"
        fences = {shard.shard_id: shard.version for shard in await cluster.owners()}
        assert member.ownership.fences == fences
        assert {s: shard.fence for s, shard in member.engine._agenda.shards.items()} == fences
        for number in range(12):
            await cluster.create(f"t{number}")
        await asyncio.sleep(0.1)
        assert len(cluster.ledger.sendings) == 12

    simulate(scenario)


def test_a_renewal_that_lands_late_does_not_touch_the_lease_that_was_taken_anew() -> None:
    async def scenario(cluster: Cluster) -> None:
        inner = cluster.store
        a, b = (Member(name, cluster).ownership for name in "ab")
        await a.renew()
        before = await inner.get_record("instance", "a", now=cluster.clock.now_ms())
        assert before is not None
        await asyncio.sleep(10)
        await a.renew()  # the lease had run out
        now = cluster.clock.now_ms()
        late = await inner.put_record(
            "instance", "a", before.value, expect=before.version, now=now, expires_at=now - 1000
        )
        assert late is None
        await b.renew()
        assert {member.instance for member in b.members} == {"a", "b"}

    simulate(scenario)
