"""The verbs of both contracts on a Cassandra or Scylla keyspace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import (
    BATCH_LIMIT,
    START,
    Begin,
    DuePage,
    Finish,
    ListPage,
    Position,
    Put,
    Remove,
    TimerFilter,
    Verdict,
    next_version,
)
from mainspring.stores.cassandra import lists, schema
from mainspring.stores.cassandra.address import Address, address_from_url
from mainspring.stores.cassandra.connection import Connection
from mainspring.stores.cassandra.limits import largest_row
from mainspring.stores.cassandra.plan import Claim, Forget, Release
from mainspring.stores.cassandra.reader import Reader
from mainspring.stores.cassandra.records import Records
from mainspring.stores.cassandra.rows import Statements, instants_from
from mainspring.stores.cassandra.writer import Writer
from mainspring.stores.containment import contained
from mainspring.unreadable import Unreadable

T = TypeVar("T")


class _Opened:
    """What exists while a store is open."""

    def __init__(self, connection: Connection, statements: Statements, *, row_bytes: int) -> None:
        self.connection = connection
        self.statements = statements
        self.writer = Writer(connection, statements, row_bytes=row_bytes)
        self.reader = Reader(connection, statements, self.writer)
        self.records = Records(connection, statements, record_bytes=row_bytes)
        self.pruned: dict[int, int] = {}

    async def close(self) -> None:
        await self.writer.close()
        await self.records.close()
        await asyncio.to_thread(self.connection.close)


@contained
class CassandraStore:
    """A `Store` in the keyspace that the URL names (see `address`)."""

    def __init__(self, url: str) -> None:
        self._address = address_from_url(url)
        self._opened: _Opened | None = None

    async def open(self) -> None:
        self._opened = await asyncio.to_thread(_connect, self._address)

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    async def pending_migrations(self) -> list[str]:
        """The names of the migrations that the keyspace lacks. Needs no open store."""
        return await asyncio.to_thread(_with_schema, self._address, schema.pending_names)

    async def migrate(self) -> list[str]:
        """Apply what is pending and name it. Needs no open store."""
        return await asyncio.to_thread(_with_schema, self._address, schema.migrate)

    async def time(self) -> int:
        opened = self._open()
        [now] = instants_from(await opened.connection.read(opened.statements.read_time))
        return now

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        return await self._open().writer.apply([(change.key.shard_id, change) for change in changes])

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return await self._open().reader.get(keys)

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        return await self._open().reader.damaged(keys)

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        return await lists.list_timers(self._open().reader, shards, where, after=after, limit=limit)

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        return await self._open().reader.load_due(shard_id, until=until, after=after, limit=limit)

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return await self._open().reader.next_due(shard_ids)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._open().writer.apply([(item.key.shard_id, item) for item in items])

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._open().writer.apply([(item.key.shard_id, item) for item in items])

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return await self._open().reader.history(key, before=before, limit=limit)

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        """An entry that is recorded meanwhile and is older than those found is kept, and not counted.

        Entries that were removed cost the server time for days: while there is more to remove, it is looked for behind
        what was removed last.
        """
        opened = self._open()
        removed = 0
        while removed < limit:
            size = min(limit - removed, BATCH_LIMIT)
            since = opened.pruned.get(shard_id, START.due_at)
            ages = await opened.reader.oldest_history(shard_id, since=since, older_than=older_than, limit=size)
            if ages:
                await opened.writer.apply([(shard_id, Forget(ages))])
            removed += len(ages)
            if len(ages) < size:
                opened.pruned.pop(shard_id, None)
                break
            opened.pruned[shard_id] = ages[-1][0]
        return removed

    # Shards

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        return await self._open().reader.shards(shard_ids)

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._open().writer.apply([(claim.shard_id, Claim(claim)) for claim in claims])

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._open().writer.apply([(claim.shard_id, Release(claim)) for claim in claims])

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return await self._open().records.get(collection, key, now=now)

    async def put_record(
        self,
        collection: str,
        key: str,
        value: bytes,
        *,
        expect: int,
        now: int,
        expires_at: int | None = None,
        first: int = 1,
    ) -> Record | None:
        record = Record(key, value, next_version(expect, first), expires_at)
        return record if await self._open().records.put(collection, record, expect=expect, now=now) else None

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        return await self._open().records.delete(collection, key, expect=expect, now=now)

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._open().records.scan(collection, now=now, after=after, limit=limit)

    def _open(self) -> _Opened:
        if self._opened is None:
            raise StoreUnavailable("Expected the Cassandra store to be open, got one that is not")
        return self._opened


def _connect(address: Address) -> _Opened:
    connection = Connection(address)
    try:
        connection.connect()
        schema.migrate(connection, address)
        statements = Statements(connection.prepare, address.keyspace)
        return _Opened(connection, statements, row_bytes=largest_row(connection))
    except BaseException:
        connection.close()
        raise


def _with_schema(address: Address, act: Callable[[Connection, Address], T]) -> T:
    connection = Connection(address)
    try:
        connection.connect()
        return act(connection, address)
    finally:
        connection.close()
