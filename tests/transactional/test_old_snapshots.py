"""A transaction sees the database as it was when it began to read. Where its timers go is asked of it as it is now.

On SQLite, nothing is written by an old snapshot; elsewhere the database may refuse it, too, or the timer goes where
it would go in a transaction that has only just begun.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg  # type: ignore[import-untyped]
import pymysql
import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock, wall_ms
from mainspring.errors import NotFound, StoreUnavailable
from mainspring.model import Namespace, ShardRange, to_json
from mainspring.store import Store
from mainspring.stores import store_from_url
from mainspring.transactional import TimerWriter
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.program_connections import WAYS, Work, create

BEFORE = Namespace(name="app", first_shard=100, shard_count=4, created_at=0, updated_at=0, secrets=())
RESHARDED = replace(
    BEFORE,
    first_shard=200,
    salt="\0200",
    earlier=(ShardRange(first_shard=BEFORE.first_shard, shard_count=BEFORE.shard_count),),
    since=1,
)
CREATED_AGAIN = replace(BEFORE, first_shard=200)
WAY = {"sqlite": "apsw", "postgresql": "asyncpg", "mysql": "pymysql"}
REFUSALS = (apsw.BusyError, asyncpg.SerializationError, pymysql.err.OperationalError, NotFound)
"""What ends the transaction whose snapshot is too old. The database says it, except of a namespace that is gone."""


class Place:
    """A database with a namespace, without an engine."""

    def __init__(self, url: str, store: Store) -> None:
        self.kind = url.partition(":")[0]
        self._url = url
        self._store = store
        self._version = 0

    def connection(self) -> Any:
        return WAYS[self.kind][WAY[self.kind]](self._url.removeprefix("sqlite:///"))

    async def keep(self, namespace: Namespace) -> None:
        value, now = to_json(namespace), wall_ms()
        record = await self._store.put_record("namespace", namespace.name, value, expect=self._version, now=now)
        assert record is not None
        self._version = record.version

    async def delete(self) -> None:
        assert await self._store.delete_record("namespace", "app", expect=self._version, now=wall_ms())
        self._version = 0

    @asynccontextmanager
    async def old_snapshot(self) -> AsyncIterator[Work]:
        async with self.connection() as work:
            await work.rollback()
            if self.kind == "postgresql":
                await work.fetch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await work.fetch(f"SELECT COUNT(*) FROM {self._tables}timers")
            yield work

    async def shards_of(self, timer_id: str) -> list[int]:
        async with self.connection() as work:
            rows = await work.fetch(f"SELECT shard_id FROM {self._tables}timers WHERE timer_id = '{timer_id}'")
            await work.rollback()
            return [shard_id for (shard_id,) in rows]

    async def forget(self, work: Work, timer_id: str) -> None:
        await work.fetch(f"DELETE FROM {self._tables}timers WHERE timer_id = '{timer_id}'")
        await work.commit()

    @property
    def _tables(self) -> str:
        return "" if self.kind == "sqlite" else "mainspring_"


@pytest.fixture(params=["sqlite", *server_params("postgresql", "mysql")])
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path}/app.db"
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.get(SERVERS[request.param]).fresh


@pytest.fixture
async def place(fresh_url: Callable[[], str]) -> AsyncIterator[Place]:
    url = fresh_url()
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    place = Place(url, store)
    await place.keep(BEFORE)
    yield place
    await store.close()


async def write(writer: TimerWriter, work: Work, timer_id: str) -> None:
    """As a program does: a transaction that is refused is rolled back."""
    try:
        await create(writer, work, timer_id, delay_seconds=3600, handler="note")
    except REFUSALS:
        await work.rollback()
    else:
        await work.commit()


@pytest.mark.parametrize("now", [RESHARDED, CREATED_AGAIN], ids=["resharded", "created again"])
async def test_no_timer_goes_where_an_old_snapshot_says(place: Place, now: Namespace) -> None:
    writer = TimerWriter(namespace="app")
    async with place.old_snapshot() as old:
        if now is CREATED_AGAIN:
            await place.delete()
        await place.keep(now)
        await write(writer, old, "in the old one")
    async with place.connection() as new:
        await write(writer, new, "in a new one")
    assert all(shard_id >= 200 for shard_id in await place.shards_of("in the old one"))
    [shard_id] = await place.shards_of("in a new one")
    assert shard_id >= 200


async def test_a_namespace_that_is_gone_takes_no_timer_of_an_old_snapshot(place: Place) -> None:
    writer = TimerWriter(namespace="app")
    async with place.old_snapshot() as old:
        await place.delete()
        await write(writer, old, "late")
    assert await place.shards_of("late") == []


async def test_a_timer_of_the_earlier_shards_is_not_found_there_by_an_old_snapshot(place: Place) -> None:
    """It has ended since, and somebody has created it again in the new shards: that one is replaced."""
    writer = TimerWriter(namespace="app")
    async with place.connection() as work:
        await write(writer, work, "moved")
        await place.keep(RESHARDED)
        async with place.old_snapshot() as old:
            await place.forget(work, "moved")
            await write(TimerWriter(namespace="app"), work, "moved")
            await write(TimerWriter(namespace="app"), old, "moved")
    [shard_id] = await place.shards_of("moved")
    assert shard_id >= 200


async def test_what_an_old_snapshot_finds_unchanged_is_good(place: Place) -> None:
    async with place.old_snapshot() as old:
        await create(TimerWriter(namespace="app"), old, "plain", delay_seconds=3600, handler="note")
        await old.commit()
    [shard_id] = await place.shards_of("plain")
    assert shard_id < 200


@pytest.mark.parametrize("fresh_url", server_params("postgresql", "mysql"), indirect=True)
async def test_a_namespace_that_was_read_with_a_lock_is_not_changed_before_the_transaction_ends(place: Place) -> None:
    async with place.old_snapshot() as old:
        await create(TimerWriter(namespace="app"), old, "held", delay_seconds=3600, handler="note")
        with pytest.raises(StoreUnavailable):
            await place.keep(RESHARDED)
        async with place.old_snapshot() as other:  # others read it all the same
            await create(TimerWriter(namespace="app"), other, "beside it", delay_seconds=3600, handler="note")
            await other.commit()
        await old.commit()
    await place.keep(RESHARDED)
