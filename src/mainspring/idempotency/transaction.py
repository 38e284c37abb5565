"""Idempotent work in the caller's own transaction, on PostgreSQL, MySQL and SQLite: effect and outcome commit together.

The transaction is the claim. Its first statement writes the record; whoever else wants the key waits for the commit, as
for any row that is being written, and then finds the outcome; after a rollback, or a crash, there is no record and the
work was not done. So there is no lease, and nothing is ever unknown, as long as all that the work does is in the
transaction. A key that was left unknown without a transaction is resolved or repeated here as there.

Nothing here opens, commits or rolls back anything: that is up to the caller, and so are the errors of its database.
Expired records are removed a few at a time: on SQLite along with the caller's own writes, elsewhere by the store, now
and then, on its own connection, so that no transaction waits for another because of it.
"""
# ruff: noqa: S608  (only constants and checked names are put together here)

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.clock import wall_ms
from mainspring.errors import InvalidInput
from mainspring.idempotency.core import P, Processor, R
from mainspring.idempotency.entries import COLLECTION, Entry, EntryState, Header, decoded, encoded, freed
from mainspring.idempotency.record import IdempotencyRecord, NotDone, Resolved
from mainspring.idempotency.stores import IdempotencyStore, LendsFile
from mainspring.idempotency.sync_processor import run
from mainspring.model import Record
from mainspring.transactional.connections import AwaitedConnection, BlockingConnection, Bridged, recognised
from mainspring.transactional.dialects import MYSQL, SQLITE, Dialect, Statement, Value
from mainspring.transactional.statements import Steps

T = TypeVar("T")
Drive = Callable[[Steps[Any]], Awaitable[Any]]


def process_blocking(
    core: Processor[P, R], store: IdempotencyStore, payload: P, key: str | None, connection: object
) -> IdempotencyRecord[R]:
    known = recognised(connection)
    if not isinstance(known, BlockingConnection):
        raise InvalidInput(
            f"Expected a synchronous connection, got {type(connection).__qualname__}: AsyncIdempotentProcessor"
        )

    async def drive(steps: Steps[T]) -> T:
        return known.drive(steps)

    return run(_process(core, store, payload, key, connection, known=known, drive=drive))


async def process_waiting(
    core: Processor[P, R], store: IdempotencyStore, payload: P, key: str | None, connection: object
) -> IdempotencyRecord[R]:
    known = recognised(connection)
    if isinstance(known, Bridged):
        bridge = known
        beneath: BlockingConnection = await known.run_sync(recognised)

        async def drive(steps: Steps[Any]) -> Any:
            return await bridge.run_sync(lambda blocking: _drive_blocking(blocking, steps))

        return await _process(core, store, payload, key, connection, known=beneath, drive=drive)
    plain = known

    async def drive_here(steps: Steps[Any]) -> Any:
        return plain.drive(steps) if isinstance(plain, BlockingConnection) else await plain.drive(steps)

    return await _process(core, store, payload, key, connection, known=plain, drive=drive_here)


def _drive_blocking(connection: object, steps: Steps[T]) -> T:
    known = recognised(connection)
    assert isinstance(known, BlockingConnection)
    return known.drive(steps)


async def _process(
    core: Processor[P, R],
    store: IdempotencyStore,
    payload: P,
    key: str | None,
    connection: object,
    *,
    known: BlockingConnection | AwaitedConnection,
    drive: Drive,
) -> IdempotencyRecord[R]:
    """Written once; with a blocking connection, no step of it suspends."""
    is_lent = _accept(store, known)
    now = wall_ms() if is_lent else await core.time()
    if not known.dialect.purge_records:
        await core.purge_sometimes(now)
    outcome = _Outcome(core, store, payload, key, dialect=known.dialect, now=now)
    found: Entry | Header | None = await drive(outcome.begin())
    if isinstance(found, Header):
        resolution = await core.resolution(payload, found, outcome.identity.key)
        if isinstance(resolution, Resolved):
            found = await drive(outcome.finish(resolution.result))
        elif isinstance(resolution, NotDone):
            await drive(outcome.take_over())
    if isinstance(found, Entry):
        return core.replayed(found, outcome.identity.key)
    result = await core.call(payload, connection)
    await drive(outcome.finish(result) if core.keeps(result) else outcome.release())
    return outcome.record(result)


class _Outcome(Generic[R]):
    """The record of one key in one transaction: statements, apart from waiting."""

    def __init__(
        self,
        core: Processor[P, R],
        store: IdempotencyStore,
        payload: P,
        key: str | None,
        *,
        dialect: Dialect,
        now: int,
    ) -> None:
        self.identity = core.identities.of(payload, key)
        self._core: Processor[Any, R] = core
        self._dialect = dialect
        self._now = now
        self._table = f"{store.tables}records"
        address = self.identity.address
        self._place: tuple[Value, ...] = (COLLECTION, address)
        if dialect is MYSQL:  # its columns are bytes, whatever the caller's session takes text for
            self._place = (COLLECTION.encode(), address.encode())
        # Others see this only if the caller commits although its work has failed: then it is the truth.
        self._begun = Header(
            state=EntryState.UNKNOWN,
            fingerprint=self.identity.fingerprint,
            token=core.new_token(),
            started_at=now,
            reason="a transaction was committed although the work in it had not ended",
        )

    def begin(self) -> Steps[Entry | Header | None]:
        """None: the record is written and the work may run. Else the outcome that is there, or what is known about
        work whose outcome the caller's `resolve` has to find out."""
        value = encoded(Entry(self._begun))
        if self._dialect.purge_records:
            yield Statement(self._dialect.purge_records, (self._now,))
        if (yield self._dialect.claim(self._table, self._place, value, self._now)):
            return None
        rows = yield self._at("SELECT value FROM {} WHERE {}" + f" {self._dialect.row_lock}")
        if not rows:  # removed at this very moment
            return (yield from self.begin())
        present = msgspec.convert(rows[0][0], bytes)
        if present == value:
            return None
        entry = decoded(Record(self.identity.address, present, version=0))
        self._begun = replace(self._begun, attempt=entry.header.attempt + 1)
        is_free = entry.header.state is EntryState.FREE
        if not is_free and not self._core.repeats_now(entry, self.identity, self._now):
            return self._core.judged(entry, self.identity, self._now)
        if not is_free and not self._core.settings.safe_to_repeat:
            return entry.header
        yield from self.take_over()
        return None

    def take_over(self) -> Steps[None]:
        """The work may run in place of what is there."""
        value = encoded(Entry(self._begun))
        yield self._at("UPDATE {} SET value = ?, version = version + 1, expires_at = NULL WHERE {}", value)

    def finish(self, result: R) -> Steps[Entry]:
        form, body = self._core.written(result, self.identity.key)
        done = Entry(replace(self._begun, state=EntryState.DONE, finished_at=self._now, reason="", form=form), body)
        yield self._expiring(done)
        return done

    def release(self) -> Steps[None]:
        """The result is not to be kept: the next caller runs the work."""
        yield self._expiring(Entry(freed(self._begun)))

    def record(self, result: R) -> IdempotencyRecord[R]:
        self._core.replays.count_run()
        return IdempotencyRecord(result, False, self.identity.key)

    def _expiring(self, entry: Entry) -> Statement:
        expires_at = self._now + self._core.settings.ttl_ms
        statement = "UPDATE {} SET value = ?, version = version + 1, expires_at = ? WHERE {}"
        return self._at(statement, encoded(entry), expires_at)

    def _at(self, statement: str, *values: Value) -> Statement:
        where = f"collection = ? AND {self._dialect.record_key} = ?"
        return Statement(statement.format(self._table, where), (*values, *self._place))


def _accept(store: IdempotencyStore, known: BlockingConnection | AwaitedConnection) -> bool:
    """Whether the file is left to the caller's own SQLite library."""
    dialect = known.dialect
    if dialect.name.lower() != store.database:
        raise InvalidInput(f"Expected a connection to the {store.database} store, got one to {dialect.name}")
    if dialect is not SQLITE or known.driver == "apsw":
        return False
    if not isinstance(store, LendsFile):
        raise InvalidInput(f"Expected an apsw connection, or SQLiteStore as the store, got one of {known.driver}")
    store.lend_file(known.driver)
    return True
