"""What the engine says about a store that does not answer and about shards that it loses: the truth, and once."""

from __future__ import annotations

import asyncio

import pytest

from mainspring import telemetry
from mainspring.model import Shard
from mainspring.store import Verdict
from tests.support.engine_cluster import NAMESPACE, Cluster, done, simulate

Line = tuple[str, dict[str, object]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    said: list[Line] = []
    monkeypatch.setattr(telemetry, "warning", lambda message, **fields: said.append((message, fields)))
    return said


def of(lines: list[Line], message: str) -> list[dict[str, object]]:
    return [fields for said, fields in lines if said == message]


def test_an_outage_is_told_at_its_beginning_and_then_once_in_a_lease(lines: list[Line]) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        for outage in (1, 2):
            lines.clear()
            member.store.cut = True
            await asyncio.sleep(3)
            assert len(of(lines, "the lease was not renewed")) == 1, outage
            await asyncio.sleep(27)
            assert 4 <= len(of(lines, "the lease was not renewed")) <= 5
            member.store.cut = False
            await asyncio.sleep(5)
            assert member.ownership.valid()

    simulate(scenario)


def test_an_instance_whose_lease_ran_out_names_no_other_owner_and_goes_on(lines: list[Line]) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        await cluster.create("t", in_ms=10_000)
        member.store.cut = True
        await asyncio.sleep(20)
        member.store.cut = False
        await asyncio.sleep(5)
        assert of(lines, "a shard has a newer owner") == []
        assert [shard.version for shard in await cluster.owners()] == [1] * NAMESPACE.shard_count
        assert len(cluster.ledger.of("t")) == 1

    simulate(scenario)


def test_shards_that_another_has_claimed_are_told_in_one_line(lines: list[Line]) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        claims = [Shard(shard.shard_id, shard.version, "b") for shard in await cluster.owners()]
        assert await cluster.store.claim_shards(claims) == [Verdict.APPLIED] * NAMESPACE.shard_count
        timers = [await cluster.create(f"t{n}", in_ms=500) for n in range(40)]
        assert {timer.shard_id for timer in timers} == set(NAMESPACE.shards)
        await asyncio.sleep(1)
        assert member.engine.owned_shards == 0
        assert cluster.ledger.sendings == []
        await asyncio.sleep(2)  # until the next renewal
        assert of(lines, "a shard has a newer owner") == [{"count": NAMESPACE.shard_count, "first": 0}]

    simulate(scenario)


def test_nothing_outlives_a_stop_although_the_store_is_away_for_good() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        member = await cluster.join("a")
        for number in range(10):
            await cluster.create(f"t{number}")
        await asyncio.sleep(0.2)
        member.store.cut = True
        await asyncio.sleep(2)  # outcomes wait for the store
        await member.engine.stop()
        assert not member.engine._tasks  # whoever runs the engine waits for them

    simulate(scenario)
