"""What a group of requests does to the rows: decided in the order of the requests, without SQL.

A plan is filled with the current versions of all rows that its requests name, then each request is decided
against the rows *as the requests before it leave them*, and at the end the plan says what remains to be
written, once per row. So a group behaves as if its requests had run one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import Begin, Finish, Put, RecordPut, Remove, Verdict, next_version
from mainspring.stores import rules
from mainspring.stores.groups import Item, Items, Request

Value = int | str | bytes | None
RowKey = tuple[int, str]
RecordKey = tuple[str, str]


class Batch(Items[Item, Verdict]):
    """Items, each with a verdict."""

    __slots__ = ()


class Write(Batch[Put | Remove]):
    __slots__ = ()

    @property
    def size(self) -> int:
        return sum(map(_payload_bytes, self.items))


class BeginAttempts(Batch[Begin]):
    __slots__ = ()


class FinishAttempts(Batch[Finish]):
    __slots__ = ()

    @property
    def size(self) -> int:
        return sum(_payload_bytes(item.change) + _record_bytes(item.record) for item in self.items)


class ClaimShards(Batch[Shard]):
    __slots__ = ()


class ReleaseShards(Batch[Shard]):
    __slots__ = ()


class PutRecord(Request):
    __slots__ = ("answer", "expect", "key", "now", "record")
    answer: Record | None

    def __init__(self, key: RecordKey, record: Record, *, expect: int, now: int) -> None:
        super().__init__()
        self.key = key
        self.record = record
        self.expect = expect
        self.now = now

    @property
    def size(self) -> int:
        return len(self.record.value)


class DeleteRecord(Request):
    __slots__ = ("answer", "expect", "key", "now")
    answer: bool

    def __init__(self, key: RecordKey, *, expect: int, now: int) -> None:
        super().__init__()
        self.key = key
        self.expect = expect
        self.now = now


class PruneHistory(Request):
    __slots__ = ("answer", "victims")
    answer: int

    def __init__(self, victims: str) -> None:
        """`victims` is a JSON array of keys: shard, day, uuid, started_at, attempt."""
        super().__init__()
        self.victims = victims


class NoticeWriters(Request):
    """Not a write, but a question that only the writer's connection can answer."""

    __slots__ = ("answer",)
    answer: int


Change = Write | BeginAttempts | FinishAttempts | ClaimShards | ReleaseShards | PutRecord | DeleteRecord | PruneHistory
WriteRequest = Change | NoticeWriters


class Row(rules.Row[int]):
    """Its place is the due instant at which the database holds it."""


class StoredRecord(Struct):
    """A record as the group leaves it."""

    version: int = 0
    expires_at: int | None = None
    written: Record | None = None
    removed: bool = False

    def version_at(self, now: int) -> int:
        return 0 if self.expires_at is not None and self.expires_at <= now else self.version


class Plan:
    """The rows, shards and records that a group names. Missing ones are added as absent."""

    def __init__(self, requests: Sequence[Change]) -> None:
        self.rows: dict[RowKey, Row] = {}
        self.shards: dict[int, Shard] = {}
        self.records: dict[RecordKey, StoredRecord] = {}
        self.claimed: dict[int, Shard] = {}
        self.history: list[tuple[TimerKey, Attempt]] = []
        self.held: set[RowKey | RecordKey | int] = set()
        """Rows, records and shards that somebody's open transaction holds: they are left alone."""
        self.expected: set[RowKey | RecordKey] = set()
        """Rows and records that a request expects to exist."""
        self.records_as_of: list[int] = []
        """The `now` of each change of a record."""
        for request in requests:
            self._name(request)

    def _name(self, request: Change) -> None:
        match request:
            case Write(items=changes):
                for change in changes:
                    self._name_row(change.key, change.expect)
            case BeginAttempts(items=begins):
                for begin in begins:
                    self._name_row(begin.key, begin.expect)
                    self.shards[begin.key.shard_id] = Shard(begin.key.shard_id)
            case FinishAttempts(items=finishes):
                for finish in finishes:
                    self.shards[finish.key.shard_id] = Shard(finish.key.shard_id)
                    if finish.change is not None:
                        self._name_row(finish.change.key, finish.change.expect)
                    if finish.record is not None:
                        self._name_record((finish.record.collection, finish.record.key), finish.record)
            case ClaimShards(items=claims) | ReleaseShards(items=claims):
                for claim in claims:
                    self.shards[claim.shard_id] = Shard(claim.shard_id)
            case PutRecord(key=key) | DeleteRecord(key=key):
                self._name_record(key, request)
            case PruneHistory():
                pass

    def _name_record(self, key: RecordKey, change: PutRecord | DeleteRecord | RecordPut) -> None:
        self.records[key] = StoredRecord()
        self.records_as_of.append(change.now)
        if change.expect:
            self.expected.add(key)

    def _name_row(self, key: TimerKey, expect: int) -> None:
        self.rows[key.shard_id, key.uuid] = Row()
        if expect:
            self.expected.add((key.shard_id, key.uuid))

    def decide(self, request: Change) -> None:
        """Answer one request. Pruning needs no decision: it is left to the writer."""
        request.held = ()
        match request:
            case Write(items=changes):
                request.answer = [self._change(change) for change in changes]
            case BeginAttempts(items=begins):
                request.answer = [self._begin(begin) for begin in begins]
            case FinishAttempts(items=finishes):
                request.answer = [self._finish(finish) for finish in finishes]
            case ClaimShards(items=claims):
                request.answer = [self._claim(claim) for claim in claims]
            case ReleaseShards(items=claims):
                request.answer = [self._release(claim) for claim in claims]
            case PutRecord():
                request.answer = self._put_record(request)
            case DeleteRecord():
                request.answer = self._delete_record(request)
            case PruneHistory():
                pass
        if self.held and isinstance(request, Batch):
            request.held = [place for place, verdict in enumerate(request.answer) if verdict is Verdict.UNAVAILABLE]

    # Decisions

    def _change(self, change: Put | Remove) -> Verdict:
        return rules.change(change, self._row(change.key))

    def _begin(self, item: Begin) -> Verdict:
        return rules.begin(item, fence=self._fence(item.key.shard_id), row=self._row(item.key))

    def _finish(self, item: Finish) -> Verdict:
        row = None if item.change is None else self._row(item.change.key)
        fence = self._fence(item.key.shard_id)
        if item.record is not None and fence == item.fence and not self._is_as_expected(item.record):
            return Verdict.STALE
        verdict = rules.finish(item, fence=fence, row=row)
        if verdict is Verdict.APPLIED:
            if item.attempt is not None:
                self.history.append((item.key, item.attempt))
            if item.record is not None:
                self._put_with_row(item.record)
        return verdict

    def _is_as_expected(self, record: RecordPut) -> bool:
        return self.records[record.collection, record.key].version_at(record.now) == record.expect

    def _put_with_row(self, put: RecordPut) -> None:
        record = Record(put.key, put.value, next_version(put.expect, 1), put.expires_at)
        self.records[put.collection, put.key] = StoredRecord(record.version, record.expires_at, record)

    def _claim(self, claim: Shard) -> Verdict:
        return self._own(claim, rules.claim)

    def _release(self, claim: Shard) -> Verdict:
        return self._own(claim, rules.release)

    def _own(self, claim: Shard, rule: Callable[[Shard, Shard], Shard | Verdict]) -> Verdict:
        if claim.shard_id in self.held:
            return Verdict.UNAVAILABLE
        owned = rule(self.shards[claim.shard_id], claim)
        if isinstance(owned, Verdict):
            return owned
        self.shards[claim.shard_id] = self.claimed[claim.shard_id] = owned
        return Verdict.APPLIED

    def _fence(self, shard_id: int) -> int | None:
        return None if shard_id in self.held else self.shards[shard_id].version

    def _row(self, key: TimerKey) -> Row | None:
        row_key = key.shard_id, key.uuid
        return None if row_key in self.held else self.rows[row_key]

    def _put_record(self, request: PutRecord) -> Record | None:
        if request.key in self.held:
            request.held = (0,)
            return None
        stored = self.records[request.key]
        if stored.version_at(request.now) != request.expect:
            return None
        self.records[request.key] = StoredRecord(request.record.version, request.record.expires_at, request.record)
        return request.record

    def _delete_record(self, request: DeleteRecord) -> bool:
        if request.key in self.held:
            request.held = (0,)
            return False
        version = self.records[request.key].version_at(request.now)
        if version == 0 or version != request.expect:
            return False
        self.records[request.key] = StoredRecord(removed=True)
        return True

    # What remains to be written

    def moved_or_removed(self) -> list[tuple[int, int, str]]:
        """The primary keys that rewritten and removed rows have now."""
        return [
            (shard_id, row.place, uuid)
            for (shard_id, uuid), row in self.rows.items()
            if row.place is not None and (row.timer is not None or row.is_removed)
        ]

    def written(self) -> list[Timer]:
        return [row.timer for row in self.rows.values() if row.timer is not None]

    def begun(self) -> list[tuple[int, int | None, str, int, int, int]]:
        """Primary key, attempts to add, new version and fence."""
        return [
            (shard_id, row.place, uuid, row.begins, row.version, row.fence)
            for (shard_id, uuid), row in self.rows.items()
            if row.begins
        ]

    def written_records(self) -> list[tuple[Value, ...]]:
        return [
            (*key, record.written.value, record.written.version, record.written.expires_at)
            for key, record in self.records.items()
            if record.written is not None
        ]

    def removed_records(self) -> list[RecordKey]:
        return [key for key, record in self.records.items() if record.removed]


def _record_bytes(record: RecordPut | None) -> int:
    return 0 if record is None else len(record.value)


def _payload_bytes(change: Put | Remove | None) -> int:
    return len(change.timer.payload or "") if isinstance(change, Put) else 0


def only_creates(requests: Sequence[WriteRequest]) -> list[Timer] | None:
    """The rows to insert if the group does nothing but create different rows; otherwise None."""
    created: dict[RowKey, Timer] = {}
    expected = 0
    for request in requests:
        if not isinstance(request, Write):
            return None
        for change in request.items:
            if change.expect != 0 or isinstance(change, Remove):
                return None
            created[change.timer.shard_id, change.timer.uuid] = change.timer
        expected += len(request.items)
    if len(created) != expected:
        return None
    return list(created.values())
