"""What an instance sees of the simulated database: a `Store` whose every verb is a request to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

from mainspring.idempotency.entries import COLLECTION as KEYS
from mainspring.kernel.ownership import INSTANCES
from mainspring.locks import LOCKS
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import (
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
from mainspring.stores.plan import (
    BeginAttempts,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    PruneHistory,
    PutRecord,
    ReleaseShards,
    Write,
)
from mainspring.testing.simulation.database import Caller, Database
from mainspring.unreadable import Unreadable

T = TypeVar("T")

RECORD_VERBS: Final = {INSTANCES: "renew", KEYS: "claim", LOCKS: "lock"}
"""The verbs by which faults know the writes of a collection; writes of all others are a `record`."""


class SimulatedStore:
    """A `Store`: the connection of one instance to the database."""

    def __init__(self, database: Database, caller: Caller) -> None:
        self._database = database
        self._tables = database.tables
        self._caller = caller

    async def open(self) -> None:
        """The tables are there."""

    async def close(self) -> None:
        """Nothing is kept open."""

    async def time(self) -> int:
        return await self._database.read(self._caller, "time", self._database.now_ms)

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        return await self._change("write", "users", Write(changes))

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._change("begin", "engine", BeginAttempts(items))

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._change("finish", "engine", FinishAttempts(items))

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        shards = list(dict.fromkeys(key.shard_id for key in keys))
        return await self._read("get", lambda: self._tables.get(keys), shards)

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        """Nobody spoils a row here."""
        return [None for _ in keys]

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        return await self._read(
            "list", lambda: self._tables.list_timers(shards, where, after=after, limit=limit), shards
        )

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        return await self._read(
            "load_due", lambda: self._tables.load_due(shard_id, until=until, after=after, limit=limit), [shard_id]
        )

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return await self._database.per_shard(self._caller, "next_due", shard_ids, self._tables.next_due, START.due_at)

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return await self._read(
            "history", lambda: self._tables.history(key, before=before, limit=limit), [key.shard_id]
        )

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        victims = await self._read(
            "history", lambda: self._tables.old_history(shard_id, older_than=older_than, limit=limit), [shard_id]
        )
        request = PruneHistory(victims)
        await self._database.change(self._caller, "prune", "records", request)
        return request.answer

    # Shards

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        def read(shard_ids: Sequence[int]) -> list[Shard | None]:
            return list(self._tables.shards(shard_ids))

        return await self._database.per_shard(self._caller, "shards", shard_ids, read, None)

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._change("claim", "shards", ClaimShards(claims))

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._change("release", "shards", ReleaseShards(claims))

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return await self._read("get_record", lambda: self._tables.get_record(collection, key, now=now))

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
        verb = RECORD_VERBS.get(collection, "record")
        await self._database.change(self._caller, verb, "records", request)
        return request.answer

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        request = DeleteRecord((collection, key), expect=expect, now=now)
        await self._database.change(self._caller, RECORD_VERBS.get(collection, "record"), "records", request)
        return request.answer

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._read(
            "scan", lambda: self._tables.scan_records(collection, now=now, after=after, limit=limit)
        )

    # --- asking ---------------------------------------------------------------------------------------------

    async def _read(self, verb: str, read: Callable[[], T], shards: Sequence[int] = ()) -> T:
        return await self._database.read(self._caller, verb, read, shards)

    async def _change(
        self, verb: str, queue: str, request: Write | BeginAttempts | FinishAttempts | ClaimShards | ReleaseShards
    ) -> list[Verdict]:
        if not request.items:
            return []
        await self._database.change(self._caller, verb, queue, request)
        return request.answer


class LookingStore(SimulatedStore):
    """For looking at what is there: answers at once, and nothing befalls it."""

    async def _read(self, verb: str, read: Callable[[], T], shards: Sequence[int] = ()) -> T:
        return read()


class DistantStore(SimulatedStore):
    """A store like one on a database server: it reads many shards in one call."""

    async def load_due_of(
        self, places: Sequence[tuple[int, Position]], *, until: int, limit: int
    ) -> list[DuePage | None]:
        after = dict(places)

        def read(shard_ids: Sequence[int]) -> list[DuePage | None]:
            return [self._tables.load_due(each, until=until, after=after[each], limit=limit) for each in shard_ids]

        return await self._database.per_shard(self._caller, "load_due", list(after), read, None)


class NoticingStore(SimulatedStore):
    """A store like an embedded one: it tells of foreign writers, writes records with the ends of attempts, and reads
    many at once."""

    finishes_with_records: ClassVar = True

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        def read() -> list[Record | None]:
            return [self._tables.get_record(collection, key, now=now) for collection, key in wanted]

        return await self._read("get_record", read)

    async def foreign_writes(self) -> int:
        return await self._read("foreign_writes", lambda: self._database.foreign_writes(self._caller))
