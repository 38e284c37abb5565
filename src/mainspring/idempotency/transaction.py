"""Idempotent work in the caller's own transaction, on PostgreSQL and SQLite: effect and outcome commit together.

The transaction is the claim. Its first statement writes the record; whoever else wants the key waits for the commit, as
for any row that is being written, and then finds the outcome; after a rollback, or a crash, there is no record and the
work was not done. So there is no lease, and nothing is ever unknown, as long as all that the work does is in the
transaction.

Nothing here opens, commits or rolls back anything: that is up to the caller, and so are the errors of its database.
"""
# ruff: noqa: S608  (only constants and checked names are put together here)

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.errors import InvalidInput, Unsupported
from mainspring.idempotency.core import P, Processor, R
from mainspring.idempotency.entries import COLLECTION, Entry, EntryState, Header, decoded, encoded
from mainspring.idempotency.record import IdempotencyRecord
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.sync_processor import run
from mainspring.model import Record
from mainspring.transactional.connections import AwaitedConnection, BlockingConnection, Bridged, recognised
from mainspring.transactional.dialects import MYSQL, SQLITE, Statement, Value
from mainspring.transactional.statements import Steps

T = TypeVar("T")


def process_blocking(
    core: Processor[P, R], store: IdempotencyStore, payload: P, key: str | None, connection: object
) -> IdempotencyRecord[R]:
    known = recognised(connection)
    if not isinstance(known, BlockingConnection):
        raise InvalidInput(
            f"Expected a synchronous connection, got {type(connection).__qualname__}: AsyncIdempotentProcessor"
        )
    outcome = _Outcome(core, store, payload, key, known=known, now=run(core.time()))
    replay = known.drive(outcome.begin())
    if replay is not None:
        return core.replayed(replay, outcome.identity.key)
    result = run(core.call(payload, connection))
    known.drive(outcome.finish(result))
    return outcome.record(result)


async def process_waiting(
    core: Processor[P, R], store: IdempotencyStore, payload: P, key: str | None, connection: object
) -> IdempotencyRecord[R]:
    known = recognised(connection)
    if isinstance(known, Bridged):
        beneath: BlockingConnection = await known.run_sync(recognised)
        outcome = _Outcome(core, store, payload, key, known=beneath, now=await core.time())
        replay: Entry | None = await known.run_sync(lambda blocking: _drive_blocking(blocking, outcome.begin()))
    else:
        outcome = _Outcome(core, store, payload, key, known=known, now=await core.time())
        replay = await _drive(known, outcome.begin())
    if replay is not None:
        return core.replayed(replay, outcome.identity.key)
    result: R = await core.call(payload, connection)
    if isinstance(known, Bridged):
        await known.run_sync(lambda blocking: _drive_blocking(blocking, outcome.finish(result)))
    else:
        await _drive(known, outcome.finish(result))
    return outcome.record(result)


async def _drive(known: BlockingConnection | AwaitedConnection, steps: Steps[T]) -> T:
    return known.drive(steps) if isinstance(known, BlockingConnection) else await known.drive(steps)


def _drive_blocking(connection: object, steps: Steps[T]) -> T:
    known = recognised(connection)
    assert isinstance(known, BlockingConnection)
    return known.drive(steps)


class _Outcome(Generic[R]):
    """The record of one key in one transaction: statements, apart from waiting."""

    def __init__(
        self,
        core: Processor[P, R],
        store: IdempotencyStore,
        payload: P,
        key: str | None,
        *,
        known: BlockingConnection | AwaitedConnection,
        now: int,
    ) -> None:
        _accept(store, known)
        self.identity = core.identities.of(payload, key)
        self._core: Processor[Any, R] = core
        self._now = now
        self._table = f"{store.tables}records"
        self._key_column = known.dialect.record_key
        self._place: tuple[Value, ...] = (COLLECTION, self.identity.address)
        # Others see this only if the caller commits although its work has failed: then it is the truth.
        self._begun = Header(
            state=EntryState.UNKNOWN,
            fingerprint=self.identity.fingerprint,
            started_at=now,
            reason="a transaction was committed although the work in it had not ended",
        )

    def begin(self) -> Steps[Entry | None]:
        """None: the record is written and the work may run. Else the outcome that is there."""
        value = encoded(Entry(self._begun))
        rows = yield Statement(
            f"INSERT INTO {self._table} (collection, {self._key_column}, value, version) VALUES (?, ?, ?, 1) "
            f"ON CONFLICT (collection, {self._key_column}) DO UPDATE SET value = excluded.value, version = 1, "
            f"expires_at = NULL WHERE {self._table}.expires_at <= ? RETURNING version",
            (*self._place, value, self._now),
        )
        if rows:
            return None
        rows = yield self._at("SELECT value FROM {} WHERE {}")
        if not rows:  # removed at this very moment
            return (yield from self.begin())
        entry = decoded(Record(self.identity.address, msgspec.convert(rows[0][0], bytes), version=0))
        if entry.header.state is EntryState.FREE:
            yield self._at("UPDATE {} SET value = ?, version = version + 1, expires_at = NULL WHERE {}", value)
            return None
        return self._core.judged(entry, self.identity, self._now)

    def finish(self, result: R) -> Steps[None]:
        form, body = self._core.written(result, self.identity.key)
        done = replace(self._begun, state=EntryState.DONE, finished_at=self._now, reason="", form=form)
        expires_at = self._now + self._core.settings.ttl_ms
        statement = "UPDATE {} SET value = ?, version = version + 1, expires_at = ? WHERE {}"
        yield self._at(statement, encoded(Entry(done, body)), expires_at)

    def record(self, result: R) -> IdempotencyRecord[R]:
        self._core.replays.count_run()
        return IdempotencyRecord(result, False, self.identity.key)

    def _at(self, statement: str, *values: Value) -> Statement:
        where = f"collection = ? AND {self._key_column} = ?"
        return Statement(statement.format(self._table, where), (*values, *self._place))


def _accept(store: IdempotencyStore, known: BlockingConnection | AwaitedConnection) -> None:
    dialect = known.dialect
    if dialect is MYSQL:
        raise Unsupported("Expected a connection to PostgreSQL or SQLite, got one to MySQL")
    if dialect.name.lower() != store.database:
        raise InvalidInput(f"Expected a connection to the {store.database} store, got one to {dialect.name}")
    if dialect is SQLITE and known.driver != "apsw":
        raise InvalidInput(
            f"Expected an apsw connection, got one of {known.driver}, which loads a second SQLite into this process: "
            "the two would not see each other's locks on the file and would overwrite each other's commits"
        )
