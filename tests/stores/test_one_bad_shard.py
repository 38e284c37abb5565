"""One shard of many that cannot be used: its items are UNAVAILABLE, all others get the verdict that they deserve.

Each database has its own way of losing a shard: a partition of Cassandra without a quorum, one of DynamoDB that is
throttled, documents of MongoDB that somebody's open transaction holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import StoreUnavailable
from mainspring.model import Shard, Timer
from mainspring.store import START, Begin, Finish, Put, Remove, Store, Verdict
from mainspring.stores import store_from_url
from mainspring.stores.cassandra import CassandraStore
from mainspring.stores.cassandra.connection import Row, Statement, Value
from mainspring.stores.mongodb.connection import collections_of, make_client
from mainspring.testing.timer_samples import NOW, attempt, create, timer
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.stores.dynamodb_proxy import Proxy

APPLIED, STALE, FENCED, UNAVAILABLE = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED, Verdict.UNAVAILABLE
BAD, SHARDS = 3, range(6)

Breaking = Callable[[], AbstractAsyncContextManager[None]]
"""While it lasts, shard `BAD` cannot be used."""


class Broken:
    """A store, and the way to lose one of its shards."""

    def __init__(self, store: Store, lose: Breaking, *, reads_fail: bool = True) -> None:
        self.store = store
        self.lose = lose
        self.reads_fail = reads_fail


@pytest.fixture(params=server_params("cassandra", "dynamodb", "mongodb"))
async def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broken]:
    fleet: Fleet = request.getfixturevalue("fleet")
    server = await asyncio.to_thread(fleet.get, SERVERS[request.param])
    url = await asyncio.to_thread(server.fresh)
    proxy = Proxy(url.partition("endpoint=")[2] + "/") if request.param == "dynamodb" else None
    if proxy is not None:
        await proxy.start()
        url = f"{url.partition('?')[0]}?endpoint={proxy.endpoint}"
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    if isinstance(store, CassandraStore):
        yield Broken(store, lambda: _without_quorum(store, monkeypatch))
    elif proxy is not None:
        yield Broken(store, lambda: _throttled(proxy))
    else:
        yield Broken(store, lambda: _locked(url), reads_fail=False)
    await store.close()
    if proxy is not None:
        await proxy.stop()


@asynccontextmanager
async def _without_quorum(store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    connection = store._open().connection
    read, write_batch = connection.read, connection.write_batch

    async def failing_read(statement: Statement, *values: Value, **options: Any) -> list[Row]:
        named = values[0] if values else None
        if named == BAD or (isinstance(named, list) and BAD in named):
            raise StoreUnavailable("no quorum")
        return await read(statement, *values, **options)

    async def failing_write(statements: Sequence[tuple[Statement, Sequence[Value]]]) -> bool:
        if statements[0][1][4] == BAD:
            raise StoreUnavailable("no quorum")
        return await write_batch(statements)

    with monkeypatch.context() as losing:
        losing.setattr(connection, "read", failing_read)
        losing.setattr(connection, "write_batch", failing_write)
        yield


@asynccontextmanager
async def _throttled(proxy: Proxy) -> AsyncIterator[None]:
    proxy.bad_shard = BAD
    yield
    proxy.bad_shard = None


@asynccontextmanager
async def _locked(url: str) -> AsyncIterator[None]:
    """By an owner that is frozen in its transaction, and whose session nobody knows."""
    database = url.rpartition("/")[2].partition("?")[0]
    async with make_client(url) as client, client.start_session() as frozen:
        collections = collections_of(client, database)
        await frozen.start_transaction()
        await collections.shards.update_one({"_id": BAD}, {"$inc": {"writes": 1}}, session=frozen, upsert=True)
        await collections.timers.update_many({"shard_id": BAD}, {"$inc": {"fence": 0}}, session=frozen)
        await collections.timers.update_many({"shard_id": BAD}, {"$set": {"held": True}}, session=frozen)
        try:
            yield
        finally:
            await frozen.abort_transaction()


async def _owned(store: Store, per_shard: int = 5) -> list[Timer]:
    rows = [timer(f"t{n}-{shard}", shard_id=shard) for n in range(per_shard) for shard in SHARDS]
    assert await store.claim_shards([Shard(shard, 0, "me") for shard in SHARDS]) == [APPLIED] * len(SHARDS)
    return await create(store, *rows)


def _expected(rows: list[Timer]) -> list[Verdict]:
    return [UNAVAILABLE if row.shard_id == BAD else APPLIED for row in rows]


async def test_the_attempts_of_other_shards_begin_and_end(broken: Broken) -> None:
    rows = await _owned(broken.store)
    async with broken.lose():
        assert await broken.store.begin([Begin(row.key, 1, 1) for row in rows]) == _expected(rows)
    again = [row for row in rows if row.shard_id == BAD]
    await broken.store.begin([Begin(row.key, 1, 1) for row in again])
    async with broken.lose():
        finishes = [Finish(row.key, 1, Remove(row.key, 2), attempt()) for row in rows]
        assert await broken.store.finish(finishes) == _expected(rows)
    kept = await broken.store.get([row.key for row in rows])
    assert [row is not None for row in kept] == [row.shard_id == BAD for row in rows]


async def test_stale_and_fenced_items_of_other_shards_are_told_so(broken: Broken) -> None:
    rows = await _owned(broken.store, per_shard=1)
    await broken.store.claim_shards([Shard(5, 1, "you")])
    async with broken.lose():
        verdicts = await broken.store.begin([Begin(row.key, 1, 9 if row.shard_id == 0 else 1) for row in rows])
    assert verdicts == [STALE, APPLIED, APPLIED, UNAVAILABLE, APPLIED, FENCED]


async def test_users_change_the_rows_of_other_shards(broken: Broken) -> None:
    rows = await _owned(broken.store, per_shard=3)
    removed, changed = rows[:6], rows[6:]
    async with broken.lose():
        changes: list[Put | Remove] = [*(Remove(row.key, 1) for row in removed), *(Put(row, 1) for row in changed)]
        verdicts = await broken.store.write(changes)
    assert verdicts == _expected(rows)


async def test_other_shards_are_claimed_and_released(broken: Broken) -> None:
    await _owned(broken.store, per_shard=1)
    expected = [UNAVAILABLE if shard == BAD else APPLIED for shard in SHARDS]
    async with broken.lose():
        assert await broken.store.claim_shards([Shard(shard, 1, "you") for shard in SHARDS]) == expected
        released = [Shard(shard, 1 if shard == BAD else 2, "me" if shard == BAD else "you") for shard in SHARDS]
        assert await broken.store.release_shards(released) == expected


async def test_other_shards_are_read(broken: Broken) -> None:
    await _owned(broken.store, per_shard=1)
    async with broken.lose():
        shards, instants = await broken.store.shards(SHARDS), await broken.store.next_due(SHARDS)
    bad = (None, START.due_at) if broken.reads_fail else (Shard(BAD, 1, "me"), NOW)
    assert shards == [bad[0] if shard == BAD else Shard(shard, 1, "me") for shard in SHARDS]
    assert instants == [bad[1] if shard == BAD else NOW for shard in SHARDS]


async def test_nothing_but_the_bad_shard_is_the_store_unavailable(broken: Broken) -> None:
    rows = [row for row in await _owned(broken.store, per_shard=1) if row.shard_id == BAD]
    async with broken.lose():
        with pytest.raises(StoreUnavailable):
            await broken.store.begin([Begin(row.key, 1, 1) for row in rows])
        with pytest.raises(StoreUnavailable):
            await broken.store.write([Put(row, 1) for row in rows])
        if broken.reads_fail:
            with pytest.raises(StoreUnavailable):
                await broken.store.shards([BAD])
            with pytest.raises(StoreUnavailable):
                await broken.store.next_due([BAD])
