"""The verbs of both contracts on MongoDB. Four committers take the writes: creates, changes, fenced attempts, records.

A change may have to wait for a transaction that holds its row; if the owner that has it open is frozen, until its
shard is claimed. Creates wait for nobody, so they must not queue behind changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession

from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import (
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
    was_applied,
)
from mainspring.stores.committer import Committer, submit, together
from mainspring.stores.containment import cancellable, contained
from mainspring.stores.groups import Capacity, Items
from mainspring.stores.mongodb import conditional, ownership, queries, schema
from mainspring.stores.mongodb.conditional import Conditional, Delete, Insert, Result, Update
from mainspring.stores.mongodb.connection import (
    Client,
    Collection,
    Collections,
    check_server,
    collections_of,
    database_name,
    make_client,
    mapping_errors,
)
from mainspring.stores.mongodb.documents import (
    DOCUMENT_BYTES,
    is_expired,
    is_live,
    record_fields,
    record_id,
    row_id,
    timer_document,
)
from mainspring.stores.mongodb.fenced import FencedWriter
from mainspring.stores.partial_results import verdicts
from mainspring.stores.sizes import weigh
from mainspring.unreadable import Unreadable

MIGRATION_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 3.0
GROUP: Final = Capacity(items=2_000)
HELD_UP_LIMIT: Final = 3
"""How many groups of a committer may wait for somebody's transaction without holding up the next ones."""

T = TypeVar("T", Put | Remove, Finish)
W = TypeVar("W", Conditional, Begin | Finish)


class _Opened:
    """What runs while a store is open."""

    def __init__(self, client: Client, collections: Collections, session: AsyncClientSession) -> None:
        self.client = client
        self.collections = collections
        self.session = session
        fenced = FencedWriter(collections, session)
        self.fenced = Committer(together(fenced.write), room=GROUP)
        self.creates = _committer(collections.timers)
        self.changes = _committer(collections.timers)
        self.records = _committer(collections.records)

    async def close(self) -> None:
        for committer in (self.creates, self.changes, self.records, self.fenced):
            await committer.close()
        with mapping_errors(), suppress(TimeoutError):  # nothing depends on a farewell that is not answered
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.session.end_session()
                await self.client.close()


def _committer(collection: Collection) -> Committer[Items[Conditional, Result]]:
    async def write(writes: list[Conditional]) -> list[Result]:
        with mapping_errors():
            return await conditional.write(collection, writes)

    return Committer(together(write), room=GROUP, beside=HELD_UP_LIMIT)


@cancellable
@contained
class MongoDBStore:
    """A `Store` in the database that the URL names."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database = database_name(url)
        self._opened: _Opened | None = None

    async def open(self) -> None:
        client = make_client(self._url)
        try:
            collections = await self._checked(client)
            await self._migrated(collections)
            self._opened = _Opened(client, collections, client.start_session())
        except BaseException:
            await client.close()
            raise

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    async def pending_migrations(self) -> list[str]:
        """The names of the migrations that the database lacks. Needs no open store."""
        return await self._with_schema(schema.pending)

    async def migrate(self) -> list[str]:
        """Apply what is pending and name it. Needs no open store."""
        return await self._with_schema(schema.migrate)

    async def _with_schema(self, act: Callable[[Collections], Awaitable[list[schema.Migration]]]) -> list[str]:
        async with make_client(self._url) as client:
            collections = await self._checked(client)
            with mapping_errors(at_start=True), pymongo.timeout(MIGRATION_SECONDS):
                return [f"{migration.number:04} {migration.name}" for migration in await act(collections)]

    async def _checked(self, client: Client) -> Collections:
        with mapping_errors(at_start=True):
            await check_server(client)
        return collections_of(client, self._database)

    async def _migrated(self, collections: Collections) -> None:
        with mapping_errors(at_start=True), pymongo.timeout(MIGRATION_SECONDS):
            await schema.migrate(collections)

    async def time(self) -> int:
        with mapping_errors():
            database = self._open().collections.timers.database
            hello = await database.command("hello", codec_options=database.codec_options)
        return int(hello["localTime"])

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        opened = self._open()
        is_create = all(isinstance(change, Put) and change.expect == 0 for change in changes)
        committer = opened.creates if is_create else opened.changes
        return await _fitting(changes, committer, _conditional)

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        if not keys:
            return []
        with mapping_errors():
            return await queries.get(self._open().collections.timers, keys)

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        if not keys:
            return []
        with mapping_errors():
            return await queries.damaged(self._open().collections.timers, keys)

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        with mapping_errors():
            return await queries.list_timers(self._open().collections.timers, shards, where, after=after, limit=limit)

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        with mapping_errors():
            return await queries.load_due(
                self._open().collections.timers, shard_id, until=until, after=after, limit=limit
            )

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        if not shard_ids:
            return []
        with mapping_errors():
            return await queries.next_due(self._open().collections.timers, shard_ids)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        results = await submit(self._open().fenced, items)
        return verdicts(results)

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await _fitting(items, self._open().fenced, lambda item: item)

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        with mapping_errors():
            return await queries.history(self._open().collections.history, key, before=before, limit=limit)

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        with mapping_errors():
            return await queries.prune_history(
                self._open().collections.history, shard_id, older_than=older_than, limit=limit
            )

    async def shards(self, shard_ids: Sequence[int]) -> Sequence[Shard | None]:
        if not shard_ids:
            return []
        with mapping_errors():
            return await queries.shards(self._open().collections.shards, shard_ids)

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        opened = self._open()
        with mapping_errors():
            return await ownership.claim(opened.collections.shards, claims, session_id=opened.session.session_id)

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        with mapping_errors():
            return await ownership.release(self._open().collections.shards, claims)

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        with mapping_errors():
            return await queries.get_record(self._open().collections.records, collection, key, now=now)

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
        if len(value) > DOCUMENT_BYTES:
            raise TooLarge(f"Expected a record that fits into MongoDB ({DOCUMENT_BYTES} bytes), got {len(value)} bytes")
        record = Record(key, value, next_version(expect, first), expires_at)
        identity = record_id(collection, key)
        if expect == 0:  # there is none, or one that has expired
            update = Update({"_id": identity, **is_expired(now)}, record_fields(record), makes=True)
        else:
            update = Update({"_id": identity, "version": expect, **is_live(now)}, record_fields(record))
        is_written = await self._write_record(Conditional((collection, key), update), size=len(value))
        return record if is_written else None

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        delete = Delete({"_id": record_id(collection, key), "version": expect, **is_live(now)})
        return await self._write_record(Conditional((collection, key), delete))

    async def _write_record(self, write: Conditional, *, size: int = 0) -> bool:
        results = await submit(self._open().records, [write], size=size)
        [verdict] = verdicts(results)
        return was_applied(verdict)

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        with mapping_errors():
            return await queries.scan_records(
                self._open().collections.records, collection, now=now, after=after, limit=limit
            )

    def _open(self) -> _Opened:
        if self._opened is None:
            raise StoreUnavailable(f"Expected the MongoDB store {self._database} to be open, got one that is not")
        return self._opened


def _conditional(change: Put | Remove) -> Conditional:
    if isinstance(change, Remove):
        key = row_id(change.key)
        return Conditional(key, Delete({"_id": key, "version": change.expect}))
    version = next_version(change.expect, change.timer.version)
    document = timer_document(change.timer, version=version)
    key = document["_id"]
    if change.expect == 0:
        return Conditional(key, Insert(document))
    return Conditional(key, Update({"_id": key, "version": change.expect}, document))


async def _fitting(
    changes: Sequence[T], committer: Committer[Items[W, Result]], write_of: Callable[[T], W]
) -> list[Verdict]:
    """The verdicts of those that the database can hold, merged with those that it cannot."""
    weights = [weigh(change, limit=DOCUMENT_BYTES) for change in changes]
    fitting = [write_of(change) for change, weight in zip(changes, weights, strict=True) if weight is not None]
    results = iter(await submit(committer, fitting, size=sum(weight or 0 for weight in weights)))
    return verdicts([Verdict.REFUSED if weight is None else next(results) for weight in weights])
