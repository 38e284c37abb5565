"""What an instance does among very many shards, so that neither its store nor its loop is busy with that alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from mainspring.kernel.ownership import CHECK_LEASES, Lease, Ownership
from mainspring.kernel.placement import Placement
from mainspring.model import Shard
from mainspring.store import BATCH_LIMIT
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated

SHARDS = 40_000
LEASE_SECONDS = 6.0


class Asked(MemoryStore):
    """Notes which shards are asked for."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock)
        self.asked: list[int] = []

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard]:
        self.asked += shard_ids
        return await super().shards(shard_ids)


async def one_of_many(loop: SimulatedLoop) -> tuple[Ownership, Asked]:
    """An instance that owns its share of the shards: there are forty instances."""
    clock = SimulatedClock(loop)
    store = Asked(clock)

    async def shard_ids() -> Sequence[int]:
        return range(SHARDS)

    ownership = Ownership(
        store=store,
        clock=clock,
        lease=Lease(instance="i0"),
        lease_seconds=LEASE_SECONDS,
        shard_ids=shard_ids,
        randomness=Random(0),
    )
    for number in range(1, 40):
        lease = b'{"instance":"i%d"}' % number
        await store.put_record("instance", f"i{number}", lease, expect=0, now=clock.now_ms())
    await ownership.renew()
    await ownership.place()
    await ownership.claim()
    assert await ownership.check() == set()
    store.asked.clear()
    return ownership, store


async def look_after_a_lease(ownership: Ownership) -> set[int]:
    await asyncio.sleep(LEASE_SECONDS)
    return await ownership.check()


@pytest.mark.slow
def test_own_shards_are_compared_once_per_lease_and_all_others_within_a_few() -> None:
    async def main(loop: SimulatedLoop) -> None:
        ownership, store = await one_of_many(loop)
        seen: set[int] = set()
        for _ in range(CHECK_LEASES):
            store.asked.clear()
            assert await look_after_a_lease(ownership) == set()
            assert len(store.asked) <= len(ownership.fences) + SHARDS / CHECK_LEASES + BATCH_LIMIT
            assert set(ownership.fences) <= set(store.asked)
            seen |= set(store.asked)
        assert seen == set(range(SHARDS))

    run_simulated(main)


@pytest.mark.slow
def test_a_shard_that_another_took_is_noticed_within_a_lease() -> None:
    async def main(loop: SimulatedLoop) -> None:
        ownership, store = await one_of_many(loop)
        taken = max(ownership.fences)
        await store.claim_shards([Shard(taken, ownership.fences[taken], "i1")])
        assert await look_after_a_lease(ownership) == {taken}

    run_simulated(main)


@pytest.mark.slow
def test_after_a_doubt_all_shards_are_compared_at_once() -> None:
    async def main(loop: SimulatedLoop) -> None:
        ownership, store = await one_of_many(loop)
        stray = max(set(range(SHARDS)) - ownership.fences.keys())
        await store.claim_shards([Shard(stray, 0, "i0")])  # as a claim whose answer was lost
        ownership._uncertain = True
        await ownership.check()
        assert set(store.asked) == set(range(SHARDS))
        assert [shard.owner for shard in await store.shards([stray])] == [""]

    run_simulated(main)


async def test_others_have_their_turn_even_if_hardly_anything_moves() -> None:
    placement = Placement()
    await placement.follow(range(SHARDS), ["i0", "i1"])
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await placement.follow(range(SHARDS + 1), ["i0", "i1"])
    counting.cancel()
    assert turns >= 10
