"""Ownership from any state: lost answers, late claims and odd clocks end with one living owner for each shard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mainspring.errors import StoreUnavailable
from mainspring.model import Shard
from mainspring.store import Verdict
from tests.kernel.cluster import NAMESPACE, Cluster
from tests.kernel.test_engine import simulate
from tests.kernel.troubled_store import TroubledStore


async def owners(cluster: Cluster) -> set[str]:
    return {shard.owner for shard in await cluster.owners()}


def test_a_claim_that_lands_late_for_a_shard_that_belongs_elsewhere_is_given_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.join("a")
        second = await cluster.join("c")
        await asyncio.sleep(8)
        assert await owners(cluster) == {"a", "c"}
        # What "c" asked for long ago and gave up arrives only now.
        before = await cluster.owners()
        late = [Shard(shard.shard_id, shard.version, "c") for shard in before if shard.owner == "a"]
        assert late
        assert await cluster.store.claim_shards(late) == [Verdict.APPLIED] * len(late)
        await asyncio.sleep(6 + 2 + 2)
        assert [shard.owner for shard in await cluster.owners()] == [shard.owner for shard in before]
        assert second.ownership.valid()
        for number in range(20):
            await cluster.create(f"t{number}")
        await asyncio.sleep(1)
        assert len(cluster.ledger.sendings) == 20

    simulate(scenario)


def test_a_release_and_a_check_that_failed_half_way_leave_no_shard_without_an_owner() -> None:
    async def scenario(cluster: Cluster) -> None:
        shard_count = 5000
        calls: Counter[str] = Counter()
        failures = {"release_shards": 1, "shards": 3}
        """Which call fails, counted from the moment at which shards begin to change hands."""

        async def shard_ids(_: bool) -> list[int]:
            return list(range(shard_count))

        def failing(verb: str, inner: Callable[[Sequence[Any]], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def call(items: Sequence[Any]) -> Any:
                calls[verb] += 1 if verb == "release_shards" or calls["release_shards"] else 0
                if calls[verb] == failures[verb]:
                    raise StoreUnavailable("simulated: refused")
                return await inner(items)

            return call

        cluster.shard_ids = shard_ids  # type: ignore[method-assign, assignment]
        first = await cluster.join("a")
        for verb in failures:
            setattr(first.store, verb, failing(verb, getattr(first.store, verb)))
        await cluster.join("c")
        await asyncio.sleep(20)
        assert calls["shards"] > failures["shards"]
        found = [shard for shard in await cluster.store.shards(range(shard_count)) if shard is not None]
        held = {member.name: set(member.ownership.fences) for member in cluster.members}
        assert all(shard.shard_id in held[shard.owner] for shard in found)

    simulate(scenario)


def test_a_clock_of_the_store_that_steps_back_keeps_no_dead_instance_alive() -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.join("a")
        await cluster.join("c")
        await asyncio.sleep(8)
        assert await owners(cluster) == {"a", "c"}
        cluster.clock.align(cluster.clock.now_ms() - 3_600_000)
        cluster.kill(first)
        await asyncio.sleep(6 + 2 + 2)
        assert await owners(cluster) == {"c"}

    simulate(scenario)


def test_one_unreachable_shard_costs_no_lease_and_no_other_shard() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        store.bad_shards = {1}
        store.hang_seconds = 3.5
        member = await cluster.join("a")
        await asyncio.sleep(30)
        assert member.ownership.valid()
        assert member.engine.owned_shards == NAMESPACE.shard_count - 1
        store.bad_shards = set()
        await asyncio.sleep(10)
        assert member.engine.owned_shards == NAMESPACE.shard_count

    simulate(scenario)
