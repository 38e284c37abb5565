"""Ownership from any state: lost answers, late claims and odd clocks end with one living owner for each shard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.errors import StoreUnavailable
from mainspring.kernel.engine import Engine
from mainspring.model import Delivery, Shard, Timer
from mainspring.store import BATCH_LIMIT, Verdict
from tests.support.engine_cluster import NAMESPACE, Cluster, done, simulate
from tests.support.troubled_store import TroubledStore


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


@pytest.mark.slow
def test_a_release_and_a_check_that_failed_half_way_leave_no_shard_without_an_owner() -> None:
    async def scenario(cluster: Cluster) -> None:
        shard_count = 5000
        calls: Counter[str] = Counter()
        failures = {"release_shards": 1, "shards": 3}
        """Which call fails, counted from the moment at which shards begin to change hands."""

        async def shard_ids() -> list[int]:
            return list(range(shard_count))

        def failing(verb: str, inner: Callable[[Sequence[Any]], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def call(items: Sequence[Any]) -> Any:
                calls[verb] += 1 if verb == "release_shards" or calls["release_shards"] else 0
                if calls[verb] == failures[verb]:
                    raise StoreUnavailable("simulated: refused")
                return await inner(items)

            return call

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
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


def test_a_claim_of_which_only_a_part_succeeded_leaves_no_shard_unread() -> None:
    async def scenario(cluster: Cluster) -> None:
        async def shard_ids() -> list[int]:
            return list(range(2 * BATCH_LIMIT + 300))

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
        member = await cluster.join("a")
        other = await cluster.join("c")
        await asyncio.sleep(10)
        calls = 0
        claim = member.store.claim_shards

        async def second_fails(claims: Sequence[Shard]) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise StoreUnavailable("simulated: refused")
            return await claim(claims)

        setattr(member.store, "claim_shards", second_fails)  # noqa: B010 - it has what its store has
        cluster.kill(other)
        await asyncio.sleep(20)
        assert calls > 2
        assert member.engine.owned_shards == len(member.ownership.fences) == 2 * BATCH_LIMIT + 300

    simulate(scenario)


def test_a_shard_that_the_store_says_is_nobodys_is_claimed_anew_by_who_believed_to_own_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.join("a")
        await cluster.join("c")
        await asyncio.sleep(8)
        before = await cluster.owners()
        assert await cluster.store.release_shards(before) == [Verdict.APPLIED] * NAMESPACE.shard_count
        await asyncio.sleep(6 + 2 + 2)
        assert [shard.owner for shard in await cluster.owners()] == [shard.owner for shard in before]

    simulate(scenario)


def test_a_stray_shard_that_takes_no_writes_keeps_nobody_from_claiming_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        inner = cluster.store
        cluster.store = store = TroubledStore(inner)
        first = await cluster.join("a")
        second = await cluster.join("x")
        await asyncio.sleep(10)
        stray = min(first.ownership.fences)
        [shard] = await inner.shards([stray])
        assert shard is not None
        # A claim that "x" had given up lands, and then the partition takes no more writes.
        assert await inner.claim_shards([Shard(stray, shard.version, "x")]) == [Verdict.APPLIED]
        store.read_only = {stray}
        await asyncio.sleep(8)
        cluster.kill(first)
        await asyncio.sleep(6 + 2 + 2)
        assert second.ownership.fences.keys() == set(NAMESPACE.shards) - {stray}
        assert second.engine.owned_shards == NAMESPACE.shard_count - 1
        store.read_only = set()
        await asyncio.sleep(5)
        assert second.engine.owned_shards == NAMESPACE.shard_count

    simulate(scenario)


@pytest.mark.parametrize("writes_only", [True, False])
def test_a_whole_batch_of_shards_that_are_away_keeps_nobody_from_the_others(writes_only: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        inner = cluster.store
        cluster.store = store = TroubledStore(inner)
        away = set(range(BATCH_LIMIT))

        async def shard_ids() -> list[int]:
            return list(range(BATCH_LIMIT + 300))

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
        await inner.claim_shards([Shard(shard_id, 0, "dead") for shard_id in away])
        member = await cluster.join("a")
        assert member.engine.owned_shards == BATCH_LIMIT + 300
        # Another has taken all of them, while the lease was gone; a part can only be asked now.
        taken = [Shard(shard_id, fence, "dead") for shard_id, fence in member.ownership.fences.items()]
        assert set(await inner.claim_shards(taken)) == {Verdict.APPLIED}
        store.read_only, store.bad_shards = (away, set()) if writes_only else (set(), away)
        lease = await inner.get_record("instance", "a", now=cluster.clock.now_ms())
        assert lease is not None
        await inner.delete_record("instance", "a", expect=lease.version, now=cluster.clock.now_ms())
        await asyncio.sleep(6)
        versions = {
            shard.shard_id: shard.version
            for shard in await inner.shards(range(BATCH_LIMIT, BATCH_LIMIT + 300))
            if shard
        }
        assert {s: fence for s, fence in member.ownership.fences.items() if s not in away} == versions
        assert member.engine.owned_shards == (300 if writes_only else BATCH_LIMIT + 300)

    simulate(scenario)


@pytest.mark.parametrize("offset", [0.0, 0.5, 1.0, 1.5])
def test_an_instance_that_has_just_come_is_robbed_of_no_shard(offset: float) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.latency_seconds = 0.02
        inner = cluster.store
        robbed: list[tuple[str, str]] = []

        async def watched(claims: Sequence[Shard]) -> list[Verdict]:
            for claim in claims:
                [shard] = await inner.shards([claim.shard_id])
                if shard is not None and shard.version == claim.version and shard.owner not in ("", claim.owner):
                    lease = await inner.get_record("instance", shard.owner, now=cluster.clock.now_ms())
                    if lease is not None and b'"left":true' not in lease.value:
                        robbed.append((claim.owner, shard.owner))
            return await claim_shards(claims)

        claim_shards = inner.claim_shards
        inner.claim_shards = watched  # type: ignore[method-assign]
        await cluster.join("a")
        await asyncio.sleep(7 + offset)
        for name in ("b", "c", "d"):
            await cluster.join(name)
            await asyncio.sleep(0.3)
        await asyncio.sleep(20)
        assert robbed == []

    simulate(scenario)


def test_an_instance_that_stops_while_it_claims_begins_nothing_in_what_it_gains() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (1.0, done())
        first = await cluster.join("a")
        second = await cluster.join("c")
        await asyncio.sleep(5)
        store.delays = {"claim_shards": 0.05}
        mine = set(first.ownership.fences)
        await cluster.leave(second)
        for number in range(24):
            delivery = Delivery.AT_MOST_ONCE if number % 2 else Delivery.AT_LEAST_ONCE
            in_ms = 0 if NAMESPACE.key_of(f"t{number}").shard_id in mine else 30
            await cluster.create(f"t{number}", in_ms=in_ms, delivery=delivery)
        first.engine.claim_soon()
        await asyncio.sleep(0.02)
        await cluster.leave(first)
        await cluster.join("b")
        await asyncio.sleep(60)
        assert len(cluster.ledger.sendings) == 24
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_hand_over_of_many_shards_looks_through_the_rows_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each shard would hold up the loop for seconds."""
    monkeypatch.setattr("tests.support.engine_cluster.NAMESPACE", replace(NAMESPACE, shard_count=64))
    looks: list[int] = []

    class Rows(dict[str, Timer]):
        def values(self) -> Any:
            looks[-1] += 1
            return super().values()

    good = Engine._hand_over

    async def hand_over(self: Engine) -> None:
        looks.append(0)
        await good(self)

    monkeypatch.setattr(Engine, "_hand_over", hand_over)

    async def scenario(cluster: Cluster) -> None:
        looks.append(0)
        cluster.behave = lambda _: (600.0, done())
        first = await cluster.join("a")
        first.engine.dispatcher.window.rows = Rows()
        for number in range(100):
            await cluster.create(f"t{number}")
        await asyncio.sleep(1)
        await cluster.join("b")
        await asyncio.sleep(10)
        assert first.engine._draining
        assert 0 < first.engine.owned_shards < 64, "shards without a call have gone already"
        assert max(looks) == 1

    simulate(scenario)
