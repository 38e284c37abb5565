"""The fence on Cassandra, counted: what stands there under a fence when its successor has claimed is all there will be.

A begun timer keeps the fence under which it was begun, and an attempt says here in its text under which it was
recorded; the counts come from the table itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model import Attempt, Shard
from mainspring.store import Begin, Finish, Verdict
from mainspring.stores.cassandra import CassandraStore
from mainspring.testing.timer_samples import NOW, attempt, create, timer
from tests.servers.cassandra import Cassandra
from tests.stores.cassandra_stores import opened, rows_of

APPLIED, FENCED = Verdict.APPLIED, Verdict.FENCED
SHARD = 7
ROUNDS = 6
WRITERS = 4
TRIES_AFTERWARDS = 5


@pytest.fixture
def url(cassandra: Cassandra) -> str:
    return cassandra.fresh()


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[CassandraStore]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url)) for _ in range(2)]


async def written_under(url: str) -> Counter[tuple[str, int]]:
    """How many begins and how many attempts there are under each fence."""
    query = "SELECT timer_fence, attempt_document FROM {{keyspace}}.mainspring_timers WHERE shard_id = {0}"
    counts: Counter[tuple[str, int]] = Counter()
    for fence, document in await rows_of(url, query.format(SHARD)):
        if isinstance(fence, int) and fence > 0:
            counts["begins", fence] += 1
        if isinstance(document, bytes):
            counts["attempts", int(msgspec.json.decode(document, type=Attempt).detail)] += 1
    return counts


class Deposed:
    """An owner that looks at nothing, and goes on writing under its fence until it has been refused often enough."""

    def __init__(self, store: CassandraStore, fence: int) -> None:
        self.applied: Counter[str] = Counter()
        self.refused = 0
        self.unknown = 0
        self._store = store
        self._fence = fence
        self._claimed = asyncio.Event()
        self._has_written = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*(self._write(lane) for lane in range(WRITERS)))

    async def until_written(self) -> None:
        async with asyncio.timeout(10):
            await self._has_written.wait()

    def note_claim(self) -> None:
        self._claimed.set()

    async def _write(self, lane: int) -> None:
        turn = refusals = 0
        while refusals < TRIES_AFTERWARDS:
            turn += 1
            row = timer(f"{self._fence}-{lane}-{turn}", shard_id=SHARD)
            noted = attempt(turn, started_at=NOW + turn, detail=str(self._fence))
            try:
                await create(self._store, row)
                claimed = self._claimed.is_set()
                [begun] = await self._store.begin([Begin(row.key, self._fence, 1)])
                [ended] = await self._store.finish([Finish(row.key, self._fence, None, noted)])
            except StoreUnavailable:  # which says nothing about whether it was written
                self.unknown += 1
                continue
            assert {begun, ended} <= {APPLIED, FENCED}
            assert not claimed or begun is ended is FENCED
            self.applied["begins"] += begun is APPLIED
            self.applied["attempts"] += ended is APPLIED
            refusals += claimed
            self.refused += claimed
            if self.applied["attempts"] >= WRITERS:
                self._has_written.set()


async def test_nothing_is_written_under_a_fence_after_the_next_claim_however_long_the_deposed_owner_tries(
    stores: list[CassandraStore], url: str
) -> None:
    counted: Counter[tuple[str, int]] = Counter()
    await stores[0].claim_shards([Shard(SHARD, 0, "0")])
    for fence in range(1, ROUNDS + 1):
        old, new = stores[(fence - 1) % 2], stores[fence % 2]
        deposed = Deposed(old, fence)
        writing = asyncio.create_task(deposed.run())
        await deposed.until_written()
        assert await new.claim_shards([Shard(SHARD, fence, str(fence))]) == [APPLIED]
        at_claim = await written_under(url)
        deposed.note_claim()
        await writing
        assert deposed.refused == WRITERS * TRIES_AFTERWARDS
        for kind in ("begins", "attempts"):
            counted[kind, fence] = at_claim[kind, fence]
            assert 0 <= at_claim[kind, fence] - deposed.applied[kind] <= deposed.unknown
            assert at_claim[kind, fence] >= WRITERS
    assert await written_under(url) == counted


async def test_a_write_that_minds_no_fence_is_found_by_the_count(stores: list[CassandraStore], url: str) -> None:
    """Not what the store does: it shows that the count above can fail."""
    [row] = await create(stores[0], timer("a", shard_id=SHARD))
    await stores[0].claim_shards([Shard(SHARD, 0, "old")])
    assert await stores[1].claim_shards([Shard(SHARD, 1, "new")]) == [APPLIED]
    at_claim = await written_under(url)
    place = f"shard_id = {SHARD} AND row_type = 2 AND at = {row.due_at} AND uuid = '{row.uuid}' AND entry = 0x"
    await rows_of(url, f"UPDATE {{keyspace}}.mainspring_timers SET timer_fence = 1 WHERE {place}")
    assert await written_under(url) - at_claim == Counter({("begins", 1): 1})
