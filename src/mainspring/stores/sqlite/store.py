"""The verbs of both contracts on one SQLite file. Each becomes a request to one of three threads:

the writer (all writes, in groups), the reader (short reads), and the lister (reads that may look at every
row of a shard), so that a long list holds up neither the engine nor the writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, TypeVar

import apsw

from mainspring.clock import wall_ms
from mainspring.errors import StoreUnavailable
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import Begin, DuePage, Finish, ListPage, Position, Put, Remove, TimerFilter, Verdict, next_version
from mainspring.stores.containment import contained
from mainspring.stores.groups import GROUP_BYTES
from mainspring.stores.plan import (
    BeginAttempts,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    NoticeWriters,
    PruneHistory,
    PutRecord,
    ReleaseShards,
    Write,
    WriteRequest,
)
from mainspring.stores.sqlite import forks, queries, schema
from mainspring.stores.sqlite.checkpoint import LIMIT_PAGES, Checkpointer
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.files import Files, open_files
from mainspring.stores.sqlite.worker import Worker
from mainspring.stores.sqlite.writer import Writer
from mainspring.unreadable import Unreadable

T = TypeVar("T")

_END_OF_TIME: Final = (2**62, 0)
_DUE_READ: Final = GROUP_BYTES // 4
"""What a page of due rows counts for when reads are grouped: most are small, but any may be large."""


class _Threads:
    """What runs while a store is open."""

    def __init__(self, database: Database, files: Files, *, wal_limit_pages: int) -> None:
        self.files = files
        self.checkpointer = Checkpointer(database, limit_pages=wal_limit_pages)
        writer = Writer(database, self.checkpointer, files)
        self.writer: Worker[WriteRequest] = Worker("mainspring-writer", writer.work, writer.close)
        self.reader = _reader("mainspring-reader", database, files)
        self.lister = _reader("mainspring-lister", database, files)

    async def close(self) -> None:
        await self.reader.close()
        await self.lister.close()
        await self.writer.close()
        await asyncio.to_thread(self.checkpointer.close)
        await asyncio.to_thread(self.files.close)


def _reader(name: str, database: Database, files: Files) -> Worker[queries.Read[object] | queries.ReadRecord]:
    reader = queries.Reader(database, files)
    return Worker(name, reader.work, reader.close)


@contained
class SQLiteStore:
    """A `Store` in the file at `path`. Several processes may share the file, each with a store of its own."""

    finishes_with_records: ClassVar = True

    def __init__(self, path: str, *, busy_ms: int = 2_000, wal_limit_pages: int = LIMIT_PAGES) -> None:
        self._database = Database(path, busy_ms)
        self._wal_limit_pages = wal_limit_pages
        self._threads: _Threads | None = None

    async def open(self) -> None:
        forks.opened(self._database.path)
        try:
            await asyncio.to_thread(self._with_schema, schema.migrate, leave_wal=True)
            files = await asyncio.to_thread(open_files, self._database)
            self._threads = _Threads(self._database, files, wal_limit_pages=self._wal_limit_pages)
        except BaseException:
            forks.closed(self._database.path)
            raise

    async def close(self) -> None:
        if self._threads is not None:
            await self._threads.close()
            self._threads = None
            forks.closed(self._database.path)

    async def pending_migrations(self) -> list[str]:
        """The names of the migrations that the database lacks. Needs no open store."""
        return await asyncio.to_thread(self._with_schema, schema.pending)

    async def migrate(self) -> list[str]:
        """Apply what is pending and name it. Needs no open store."""
        return await asyncio.to_thread(self._with_schema, schema.migrate)

    def _with_schema(
        self, act: Callable[[apsw.Connection], list[schema.Migration]], *, leave_wal: bool = False
    ) -> list[str]:
        """The last connection that is closed copies the WAL, which takes seconds if a killed process has left a long
        one. A store that opens leaves it to its checkpointer."""
        self._database.create_file()
        with self._database.mapping_errors():
            connection = self._database.connect(cache_kib=queries.CACHE_KIB)
            try:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave_wal)
                return [f"{migration.number:04} {migration.name}" for migration in act(connection)]
            finally:
                connection.close(True)

    async def time(self) -> int:
        """Asked for at each renewal, so a file that is gone also costs the lease."""
        files = self._open_threads().files
        if files.trouble:
            await self.foreign_writes()  # has the writer look whether it is over
        files.check()
        return wall_ms()

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file, up to a hundred things. Reads all of it."""
        return await _answer_of(self._open_threads().lister, queries.quick_check)

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        request = Write(changes)
        await self._write(request)
        return request.answer

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return await self._read(partial(queries.get, keys=keys))

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        return await self._read(partial(queries.damaged, keys=keys))

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        query = partial(queries.list_timers, shards=shards, where=where, after=after, limit=limit)
        return await _answer_of(self._open_threads().lister, query)

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        query = partial(queries.load_due, shard_id=shard_id, until=until, after=after, limit=limit)
        return await _answer_of(self._open_threads().reader, query, size=_DUE_READ)

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return await self._read(partial(queries.next_due, shard_ids=shard_ids))

    async def foreign_writes(self) -> int:
        """Asks the writer's connection, for which this store's own writes are not foreign. Waits for no lock."""
        request = NoticeWriters()
        await self._write(request)
        return self._open_threads().writer.unheard << 64 | request.answer

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        request = BeginAttempts(items)
        await self._write(request)
        return request.answer

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        request = FinishAttempts(items)
        await self._write(request)
        return request.answer

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return await self._read(partial(queries.history, key=key, before=before or _END_OF_TIME, limit=limit))

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        """Looks for old entries outside the write transaction: they never change, and the search may be long."""
        query = partial(queries.old_history, shard_id=shard_id, older_than=older_than, limit=limit)
        request = PruneHistory(await _answer_of(self._open_threads().lister, query))
        await self._write(request)
        return request.answer

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        return await self._read(partial(queries.shards, shard_ids=shard_ids))

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        request = ClaimShards(claims)
        await self._write(request)
        return request.answer

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        request = ReleaseShards(claims)
        await self._write(request)
        return request.answer

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        read = queries.ReadRecord(collection, key, now=now)
        await self._open_threads().reader.wait_for(read)
        return read.answer

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        return await self._read(partial(queries.get_records, wanted=wanted, now=now))

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
        request = PutRecord((collection, key), record, expect=expect, now=now)
        await self._write(request)
        return request.answer

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        request = DeleteRecord((collection, key), expect=expect, now=now)
        await self._write(request)
        return request.answer

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        query = partial(queries.scan_records, collection=collection, now=now, after=after, limit=limit)
        return await self._read(query)

    # Threads

    async def _write(self, request: WriteRequest) -> None:
        await self._open_threads().writer.wait_for(request)

    async def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        return await _answer_of(self._open_threads().reader, query)

    def _open_threads(self) -> _Threads:
        if self._threads is None:
            raise StoreUnavailable(f"Expected the store {self._database.path} to be open, got one that is not")
        return self._threads


async def _answer_of(
    reader: Worker[queries.Read[object] | queries.ReadRecord], query: Callable[[apsw.Connection], T], size: int = 0
) -> T:
    read = queries.Read(query, size)
    await reader.wait_for(read)
    return read.answer
