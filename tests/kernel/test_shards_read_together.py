"""Many shards are read in one call, if the store can; what is wrong with one of them costs the others nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.kernel.reader import FEW_ROWS
from mainspring.store import DuePage, Position, Store
from tests.kernel.lateness import lateness
from tests.support.engine_cluster import NAMESPACE, Cluster, simulate
from tests.support.troubled_store import TroubledStore

BAD = NAMESPACE.shards[1]


class Together(TroubledStore):
    """Reads many shards in one call."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[int] = []
        """How many shards each of them was for; 1 for one that was read by itself."""
        self.is_away = False
        self.fails_together = False
        """A bad shard is an error of every call that asks for it, as where one row cannot be read by the database."""

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        self.calls.append(1)
        if self.is_away:
            raise StoreUnavailable("simulated: away")
        return await super().load_due(shard_id, until=until, after=after, limit=limit)

    async def load_due_of(
        self, places: Sequence[tuple[int, Position]], *, until: int, limit: int
    ) -> list[DuePage | None]:
        self.calls.append(len(places))
        await self._hang([shard_id for shard_id, _ in places])
        if self.is_away:
            raise StoreUnavailable("simulated: away")
        if self.fails_together and not self.bad_shards.isdisjoint(shard_id for shard_id, _ in places):
            raise StoreUnavailable("simulated: a row that cannot be read")
        load = super().load_due
        return [
            None if shard_id in self.bad_shards else await load(shard_id, until=until, after=after, limit=limit)
            for shard_id, after in places
        ]


def joined(cluster: Cluster) -> Together:
    store = Together(cluster.store)
    cluster.store = store
    cluster.foreign_writes = nobody_else  # for whose rows each shard would be read by itself
    return store


async def nobody_else() -> int:
    return 0


def test_what_is_due_in_many_shards_is_read_in_one_call() -> None:
    async def scenario(cluster: Cluster) -> None:
        store = joined(cluster)
        await cluster.join("a")
        for n in range(40):
            await cluster.create(f"t{n}", in_ms=10_000)
        await asyncio.sleep(9)
        store.calls.clear()
        await asyncio.sleep(9)
        assert store.calls == [len(NAMESPACE.shards)]
        assert max(lateness(cluster, "t")) < 10
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_shard_with_more_rows_than_such_a_call_has_room_for_is_read_by_itself_until_it_has_fewer() -> None:
    async def scenario(cluster: Cluster) -> None:
        store = joined(cluster)
        await cluster.join("a")
        count = 8 * FEW_ROWS * len(NAMESPACE.shards)
        for n in range(count):
            await cluster.create(f"t{n}", in_ms=10_000)
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == count
        store.calls.clear()
        for n in range(40):
            await cluster.create(f"later{n}", in_ms=10_000)
        await asyncio.sleep(20)
        assert store.calls == [len(NAMESPACE.shards)]
        assert len(cluster.ledger.sendings) == count + 40

    simulate(scenario)


@pytest.mark.parametrize("hang_seconds", [0.0, 3.0])
def test_a_shard_that_cannot_be_read_delays_no_other_and_is_read_when_it_can_be(hang_seconds: float) -> None:
    async def scenario(cluster: Cluster) -> None:
        store = joined(cluster)
        await cluster.join("a")
        for n in range(60):
            await cluster.create(f"t{n}", in_ms=10_000 + 100 * n)
        store.bad_shards, store.hang_seconds = {BAD}, hang_seconds
        await asyncio.sleep(40)
        others = [sending for sending in cluster.ledger.sendings if sending.timer.shard_id != BAD]
        assert len(others) == len(cluster.ledger.sendings)
        # At first nobody knows that one of them hangs, nor which: then each is read by itself.
        assert max(sending.at - sending.timer.due_at for sending in others) < 100 + 2_000 * hang_seconds
        assert max(sending.at - sending.timer.due_at for sending in others if sending.at > others[0].at + 4_000) < 100
        store.bad_shards = set()
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == 60

    simulate(scenario)


def test_a_shard_that_makes_every_call_fail_in_which_it_is_asked_for_is_soon_asked_by_itself() -> None:
    async def scenario(cluster: Cluster) -> None:
        store = joined(cluster)
        await cluster.join("a")
        for n in range(60):
            await cluster.create(f"t{n}", in_ms=10_000)
        store.bad_shards, store.fails_together = {BAD}, True
        await asyncio.sleep(12)
        sound = [row for row in await cluster.rows() if row.shard_id != BAD]
        assert sound == []
        assert max(lateness(cluster, "t")) < 1_000
        for n in range(60):
            await cluster.create(f"later{n}", in_ms=10_000)
        await asyncio.sleep(12)
        assert max(lateness(cluster, "later")) < 100  # it is known by now which one it is
        store.bad_shards = set()
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == 120

    simulate(scenario)


def test_a_store_that_is_away_is_asked_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        store = joined(cluster)
        await cluster.join("a")
        for n in range(20):
            await cluster.create(f"t{n}", in_ms=10_000)
        store.is_away = True
        await asyncio.sleep(15)
        assert cluster.ledger.sendings == []
        store.is_away = False
        await asyncio.sleep(3)
        assert len(cluster.ledger.sendings) == 20

    simulate(scenario)
