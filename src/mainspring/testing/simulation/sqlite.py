"""The same tables in SQLite, in memory: its own writer and queries, without its threads."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import DuePage, ListPage, Position, TimerFilter
from mainspring.stores.plan import Change
from mainspring.stores.sqlite import queries, schema
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.writer import Writer
from mainspring.testing.simulation.tables import Tables


class _InMemory(Database, frozen=True, kw_only=True):
    """One connection for the writer and all readers."""

    connection: apsw.Connection

    def connect(self, *, cache_kib: int) -> apsw.Connection:
        return self.connection


class _NoCheckpoints:
    def before_write(self, connection: apsw.Connection) -> None:
        """There is no WAL in memory."""


class SQLiteTables(Tables):
    def __init__(self) -> None:
        super().__init__()
        self._connection = apsw.Connection(":memory:", statementcachesize=200)
        schema.migrate(self._connection)
        self._writer = Writer(_InMemory("", 0, connection=self._connection), _NoCheckpoints())  # type: ignore[arg-type]

    def work(self, group: Sequence[Change]) -> None:
        self._writer.work(list(group))

    def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return queries.get(self._connection, keys=keys)

    def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        return queries.list_timers(self._connection, shards=shards, where=where, after=after, limit=limit)

    def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        return queries.load_due(self._connection, shard_id=shard_id, until=until, after=after, limit=limit)

    def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return queries.next_due(self._connection, shard_ids=shard_ids)

    def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return queries.history(self._connection, key=key, before=before or (2**62, 0), limit=limit)

    def old_history(self, shard_id: int, *, older_than: int, limit: int) -> str:
        return queries.old_history(self._connection, shard_id=shard_id, older_than=older_than, limit=limit)

    def shards(self, shard_ids: Sequence[int]) -> list[Shard]:
        return list(filter(None, queries.shards(self._connection, shard_ids=shard_ids)))

    def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        read = queries.ReadRecord(collection, key, now=now)
        queries.Reader(_InMemory("", 0, connection=self._connection)).work([read])
        return read.answer

    def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        return queries.scan_records(self._connection, collection=collection, now=now, after=after, limit=limit)
