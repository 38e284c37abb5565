"""The record contract: every write is one conditional statement, without looking first.

Collections are listed in key order, so each is one partition, except those that are only looked up: they have many
records, written at a high rate, so each record is a partition of its own. Scanning such a collection is refused.

Expiry is decided by the `now` of the caller, never by the database; an hour later, its
TTL only clears away what nobody can see anyway.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mainspring.errors import TooLarge, Unsupported
from mainspring.model import Record
from mainspring.store import PAGE_BYTES
from mainspring.stores.cassandra.committers import Committers
from mainspring.stores.cassandra.connection import Connection, Value
from mainspring.stores.cassandra.rows import Statements, expiry_column, records_from
from mainspring.stores.collections import LOOKED_UP
from mainspring.stores.groups import Capacity
from mainspring.unreadable import readable

_TTL_MARGIN_SECONDS: Final = 3_600
_TTL_LIMIT_SECONDS: Final = 20 * 365 * 86_400
_PAGE: Final = 100

Partition = tuple[str, str]


class PutRecord(Struct, frozen=True):
    record: Record
    expect: int
    now: int


class DeleteRecord(Struct, frozen=True):
    key: str
    expect: int
    now: int


RecordChange = PutRecord | DeleteRecord


class Records:
    def __init__(self, connection: Connection, statements: Statements, *, record_bytes: int) -> None:
        self._connection = connection
        self._statements = statements
        self._record_bytes = record_bytes
        # One at a time in a partition; more would only disturb each other.
        self._committers: Committers[Partition, RecordChange, bool] = Committers(self._commit, room=Capacity(items=1))

    async def close(self) -> None:
        await self._committers.close()

    async def get(self, collection: str, key: str, *, now: int) -> Record | None:
        """Completes open writes first, like the `get` of timers."""
        rows = await self._connection.read(self._statements.read_record, *_partition(collection, key), key, serial=True)
        live = [record for record in readable(records_from(collection, rows)) if _is_live(record, now)]
        return live[0] if live else None

    async def put(self, collection: str, record: Record, *, expect: int, now: int) -> bool:
        if len(record.value) > self._record_bytes:
            size = f"at most {self._record_bytes} bytes, got {len(record.value)}"
            raise TooLarge(f"Expected a record that fits into one write of Cassandra, {size}")
        [applied] = await self._committers.submit(_partition(collection, record.key), [PutRecord(record, expect, now)])
        return applied

    async def delete(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        if expect == 0:
            return False
        [applied] = await self._committers.submit(_partition(collection, key), [DeleteRecord(key, expect, now)])
        return applied

    async def scan(self, collection: str, *, now: int, after: str, limit: int) -> list[Record]:
        if collection in LOOKED_UP:
            raise Unsupported(f"Expected a collection that is listed, got {collection!r}: its keys are spread")
        found: list[Record] = []
        size = 0
        while len(found) < limit and size <= PAGE_BYTES:
            count = min(limit - len(found), _PAGE)
            rows = await self._connection.read(self._statements.scan_records, collection, after, count)
            live = [record for record in readable(records_from(collection, rows)) if _is_live(record, now)]
            found += live
            size += sum(len(record.value) for record in live)
            if len(rows) < count:
                break
            after = str(rows[-1][0])
        return found

    async def _commit(self, partition: Partition, changes: list[RecordChange]) -> list[bool]:
        return [
            await (self._put(partition, change) if isinstance(change, PutRecord) else self._delete(partition, change))
            for change in changes
        ]

    async def _put(self, partition: Partition, change: PutRecord) -> bool:
        record = change.record
        expiry = expiry_column(record.expires_at)
        values: tuple[Value, ...] = (_ttl(record, change.now), record.value, record.version, expiry)
        key = (*partition, record.key)
        if change.expect:
            row = await self._connection.write(self._statements.change_record, *values, *key, change.expect, change.now)
            return bool(row[0])
        row = await self._connection.write(self._statements.replace_record, *values, *key, None, None)
        if row[0]:
            return True
        version, expires_at = row[-2:]
        if not isinstance(expires_at, int) or expires_at > change.now:
            return False
        # What is there has expired: it is replaced, unless somebody else is quicker.
        row = await self._connection.write(self._statements.replace_record, *values, *key, version, expires_at)
        return bool(row[0])

    async def _delete(self, partition: Partition, change: DeleteRecord) -> bool:
        row = await self._connection.write(
            self._statements.remove_record, *partition, change.key, change.expect, change.now
        )
        return bool(row[0])


def _partition(collection: str, key: str) -> Partition:
    return collection, key if collection in LOOKED_UP else ""


def _is_live(record: Record, now: int) -> bool:
    return record.expires_at is None or record.expires_at > now


def _ttl(record: Record, now: int) -> int:
    """In seconds; 0 is none."""
    if record.expires_at is None:
        return 0
    seconds = max(record.expires_at - now, 0) // 1000 + _TTL_MARGIN_SECONDS
    return seconds if seconds < _TTL_LIMIT_SECONDS else 0
