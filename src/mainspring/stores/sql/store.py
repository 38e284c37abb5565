"""The verbs of both contracts on a database server. Writes go to committers, reads to sessions of the pool.

Groups of one committer may overlap. Two calls on one row that overlap have no order anyway: the row's lock gives them
one, and the versions that they expect decide. Committers are apart so that claims, which wait for the lock of a shard,
do not hold up those which wait for none.

Connections are bounded by who may use one: each committer has its width, and so do reads and lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Concatenate, Final, ParamSpec, TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import Begin, DuePage, Finish, ListPage, Position, Put, Remove, TimerFilter, Verdict, next_version
from mainspring.stores.committer import Committer
from mainspring.stores.containment import cancellable, contained
from mainspring.stores.groups import Capacity
from mainspring.stores.plan import (
    BeginAttempts,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    ReleaseShards,
    Write,
)
from mainspring.stores.sql import queries
from mainspring.stores.sql.bisection import BatchRequest, WriteRequest, part_of, work_in_halves
from mainspring.stores.sql.dialect import Driver, Session, Undone
from mainspring.stores.sql.pool import Pool
from mainspring.stores.sql.reads import Reads
from mainspring.stores.sql.schema import Migration, Names, Schema
from mainspring.stores.sql.statements import Statements
from mainspring.stores.sql.writer import Writer
from mainspring.unreadable import Unreadable

T = TypeVar("T")
P = ParamSpec("P")

Writes = Committer[WriteRequest]

GROUP: Final = Capacity(items=1_000)
WRITE_WIDTH: Final = 2
"""Groups of one committer under way at once: more of them would be smaller."""
READ_WIDTH: Final = 4
LIST_WIDTH: Final = 2
CONNECTIONS_LIMIT: Final = 4 * WRITE_WIDTH + 1 + READ_WIDTH + LIST_WIDTH
MIGRATION_SECONDS: Final = 120.0
ATTEMPT_PAUSES: Final = (0.005, 0.02)
WRITE_PAUSES: Final = (0.005, 0.02, 0.05, 0.1, 0.15, 0.2)
RECORD_PAUSES: Final = (*WRITE_PAUSES, *[0.25] * 10)
"""Pauses before each further look at what somebody's transaction holds. Our own transactions hold a row for a moment
only; the engine has other things to do meanwhile, and comes back to the row by itself."""
_HELD: Final = "Expected to write a record, got one that somebody's open transaction holds"
_END_OF_TIME: Final = (2**62, 0)


@cancellable
@contained
class SqlStore:
    """A `Store` on the database that `driver` connects to. Any number of processes may share it."""

    def __init__(self, driver: Driver, names: Names) -> None:
        self._place = driver.place
        self._pool = Pool(driver)
        self._statements = Statements(driver.dialect, names)
        self._schema = Schema(driver.dialect, names, driver.place)
        self._writer = Writer(self._pool, self._statements)
        together = partial(work_in_halves, self._writer.work)
        self._writes: Writes = Committer(together, room=GROUP, width=WRITE_WIDTH)
        self._attempts: Writes = Committer(together, room=GROUP, width=WRITE_WIDTH)
        self._records: Writes = Committer(together, room=GROUP, width=WRITE_WIDTH)
        self._claims: Writes = Committer(together, room=GROUP)
        self._held: Writes = Committer(partial(together, apart=True), room=GROUP, width=WRITE_WIDTH)
        """For what was found held: nobody else shares a group with it."""
        self._reads = Reads(width=READ_WIDTH)
        self._lists = Reads(width=LIST_WIDTH)
        self._is_open = False

    async def open(self) -> None:
        await self.migrate()
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        for part in (self._writes, self._attempts, self._records, self._claims, self._held, self._reads, self._lists):
            await part.close()
        await self._pool.close()

    async def pending_migrations(self) -> list[str]:
        """The names of the migrations that the database lacks. Needs no open store."""
        return await self._with_schema(self._schema.pending)

    async def migrate(self) -> list[str]:
        """Apply what is pending and name it. Needs no open store."""
        return await self._with_schema(self._schema.migrate)

    async def _with_schema(self, act: Callable[[Session], Awaitable[list[Migration]]]) -> list[str]:
        await self._pool.check()
        with _undone_as_unavailable():
            async with self._pool.session(seconds=MIGRATION_SECONDS, at_start=True) as session:
                await session.check_server()
                names = [f"{migration.number:04} {migration.name}" for migration in await act(session)]
        if not self._is_open:
            await self._pool.close()
        return names

    async def time(self) -> int:
        return await self._read(queries.time)

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        if not changes:
            return []
        return await self._judge(self._writes, Write(changes), WRITE_PAUSES)

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return await self._read(queries.get, keys) if keys else []

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        return await self._read(queries.damaged, keys) if keys else []

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        return await self._list(queries.list_timers, shards, where, after=after, limit=limit)

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        return await self._read(queries.load_due, shard_id, until=until, after=after, limit=limit)

    async def load_due_of(
        self, places: Sequence[tuple[int, Position]], *, until: int, limit: int
    ) -> list[DuePage | None]:
        return await self._read(queries.load_due_of, places, until=until, limit=limit) if places else []

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return await self._read(queries.next_due, shard_ids)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        if not items:
            return []
        return await self._judge(self._attempts, BeginAttempts(items), ATTEMPT_PAUSES)

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        if not items:
            return []
        return await self._judge(self._attempts, FinishAttempts(items), ATTEMPT_PAUSES)

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return await self._read(queries.history, key, before or _END_OF_TIME, limit)

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        return await self._list(queries.prune_history, shard_id, older_than, limit)

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        return await self._read(queries.shards, shard_ids) if shard_ids else []

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        if not claims:
            return []
        return await self._judge(self._claims, ClaimShards(claims))

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        if not claims:
            return []
        return await self._judge(self._claims, ReleaseShards(claims))

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return await self._read(queries.get_record, collection, key, now)

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
        await self._write_record(request)
        return request.answer

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        request = DeleteRecord((collection, key), expect=expect, now=now)
        await self._write_record(request)
        return request.answer

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._read(queries.scan_records, collection, now=now, after=after, limit=limit)

    async def purge_records(self, *, now: int) -> None:
        await self._open(self._writer).purge(now)

    # Writing

    async def _judge(self, committer: Writes, request: BatchRequest, pauses: Sequence[float] = ()) -> list[Verdict]:
        """The verdicts. Items that somebody holds are tried again, apart from all others; nothing of them was written
        before."""
        await self._open(committer).wait_for(request)
        held = request.held
        for pause in pauses:
            if not held:
                break
            await asyncio.sleep(pause)
            again = part_of(request, held)
            try:
                await self._held.wait_for(again)
            except StoreUnavailable:  # as they are
                break
            for place, verdict in zip(held, again.answer, strict=True):
                request.answer[place] = verdict
            held = [held[place] for place in again.held]
        return request.answer

    async def _write_record(self, request: PutRecord | DeleteRecord) -> None:
        await self._open(self._records).wait_for(request)
        for pause in RECORD_PAUSES:
            if not request.held:
                return
            await asyncio.sleep(pause)
            request.held = ()
            await self._held.wait_for(request)
        if request.held:
            raise StoreUnavailable(_HELD)

    # Sessions

    async def _read(
        self, query: Callable[Concatenate[Session, Statements, P], Awaitable[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        return await self._open(self._reads).run(lambda: self._ask(query, *arguments, **named))

    async def _list(
        self, query: Callable[Concatenate[Session, Statements, P], Awaitable[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """For reads that may look at every row of a shard, so that they do not hold up the engine."""
        return await self._open(self._lists).run(lambda: self._ask(query, *arguments, **named))

    async def _ask(
        self, query: Callable[Concatenate[Session, Statements, P], Awaitable[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        with _undone_as_unavailable():
            async with self._pool.session() as session:
                return await query(session, self._statements, *arguments, **named)

    def _open(self, part: T) -> T:
        if not self._is_open:
            raise StoreUnavailable(f"Expected the store {self._place} to be open, got one that is not")
        return part


@contextmanager
def _undone_as_unavailable() -> Iterator[None]:
    """For what no committer works on."""
    try:
        yield
    except Undone as error:
        raise StoreUnavailable(str(error) or type(error).__name__) from error
