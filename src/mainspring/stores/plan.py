"""What a group of requests does to the rows: decided in the order of the requests, without SQL.

A plan is filled with the present versions of all rows that its requests name, then each request is decided
against the rows *as the requests before it leave them*, and at the end the plan says what remains to be
written, once per row. So a group behaves as if its requests had run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model import LAST_VERSION, Attempt, Record, Shard, State, Timer, TimerKey
from mainspring.store import Begin, Finish, Put, Remove, Verdict, next_version

Value = int | str | bytes | None
Item = TypeVar("Item")
RowKey = tuple[int, str]
RecordKey = tuple[str, str]


class Request:
    """Something that a caller waits for. Whoever works on it leaves an error here, or an `answer` in the subclass."""

    __slots__ = ("error", "future", "held", "weight")

    def __init__(self, weight: int = 1) -> None:
        """`weight` is the number of items that the request counts for."""
        self.weight = weight
        self.held: Sequence[int] = ()
        """The places of items of which nothing was written because somebody's open transaction holds what they name:
        they may be asked for again. A request without items has one, at place 0."""
        self.error: Exception | None = None
        self.future: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """The bytes that it writes, or reads, as far as they can be many."""
        return 0


class Batch(Request, Generic[Item]):
    """Items, each with a verdict."""

    __slots__ = ("answer", "items")
    answer: list[Verdict]

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__(len(items))
        self.items = items


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
        return sum(_payload_bytes(item.change) for item in self.items)


class Claim(Batch[Shard]):
    __slots__ = ()


class Release(Batch[Shard]):
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
    """No write, but a question that only the writer's connection can answer."""

    __slots__ = ("answer",)
    answer: int


Change = Write | BeginAttempts | FinishAttempts | Claim | Release | PutRecord | DeleteRecord | PruneHistory
WriteRequest = Change | NoticeWriters


class Row(Struct):
    """A timer row as the group leaves it."""

    version: int = 0
    """0: there is none."""
    stored_due_at: int | None = None
    """Where the database holds it; None: nowhere."""
    timer: Timer | None = None
    """All of it, if the group has rewritten it."""
    begins: int = 0
    """Attempts begun on the stored row, if it has not."""
    fence: int = 0


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
        for request in requests:
            self._name(request)

    def _name(self, request: Change) -> None:
        match request:
            case Write(items=changes):
                for change in changes:
                    self._name_row(_row_key(change), change.expect)
            case BeginAttempts(items=begins):
                for begin in begins:
                    self._name_row((begin.key.shard_id, begin.key.uuid), begin.expect)
                    self.shards[begin.key.shard_id] = Shard(begin.key.shard_id)
            case FinishAttempts(items=finishes):
                for finish in finishes:
                    self.shards[finish.key.shard_id] = Shard(finish.key.shard_id)
                    if finish.change is not None:
                        self._name_row(_row_key(finish.change), finish.change.expect)
            case Claim(items=claims) | Release(items=claims):
                for claim in claims:
                    self.shards[claim.shard_id] = Shard(claim.shard_id)
            case PutRecord(key=key) | DeleteRecord(key=key):
                self.records[key] = StoredRecord()
                if request.expect:
                    self.expected.add(key)
            case PruneHistory():
                pass

    def _name_row(self, key: RowKey, expect: int) -> None:
        self.rows[key] = Row()
        if expect:
            self.expected.add(key)

    def decide(self, request: Change) -> None:
        """Answer one request. Pruning is no decision: it is left to the writer."""
        request.held = ()
        match request:
            case Write(items=changes):
                request.answer = [self._change(change) for change in changes]
            case BeginAttempts(items=begins):
                request.answer = [self._begin(begin) for begin in begins]
            case FinishAttempts(items=finishes):
                request.answer = [self._finish(finish) for finish in finishes]
            case Claim(items=claims):
                request.answer = [self._claim(claim) for claim in claims]
            case Release(items=claims):
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
        key = _row_key(change)
        if key in self.held:
            return Verdict.UNAVAILABLE
        row = self.rows[key]
        if row.version != change.expect:
            return Verdict.STALE
        if isinstance(change, Remove):
            if row.version == 0:
                return Verdict.STALE
            row.version = 0
            row.timer = None
        else:
            timer = change.timer
            row.version = next_version(row.version, timer.version)
            row.timer = timer if timer.version == row.version else replace(timer, version=row.version)
        row.begins = 0
        return Verdict.APPLIED

    def _begin(self, item: Begin) -> Verdict:
        if item.key.shard_id in self.held:
            return Verdict.UNAVAILABLE
        if self.shards[item.key.shard_id].version != item.fence:
            return Verdict.FENCED
        if (item.key.shard_id, item.key.uuid) in self.held:
            return Verdict.UNAVAILABLE
        row = self.rows[item.key.shard_id, item.key.uuid]
        if row.version != item.expect or not 0 < row.version < LAST_VERSION:
            return Verdict.STALE
        row.version += 1
        timer = row.timer
        if timer is None:
            row.begins += 1
            row.fence = item.fence
        else:
            row.timer = replace(
                timer, state=State.RUNNING, attempts=timer.attempts + 1, version=row.version, fence=item.fence
            )
        return Verdict.APPLIED

    def _finish(self, item: Finish) -> Verdict:
        if item.key.shard_id in self.held:
            return Verdict.UNAVAILABLE
        if self.shards[item.key.shard_id].version != item.fence:
            return Verdict.FENCED
        verdict = Verdict.APPLIED if item.change is None else self._change(item.change)
        if verdict is Verdict.APPLIED and item.attempt is not None:
            self.history.append((item.key, item.attempt))
        return verdict

    def _claim(self, claim: Shard) -> Verdict:
        if claim.shard_id in self.held:
            return Verdict.UNAVAILABLE
        if self.shards[claim.shard_id].version != claim.version:
            return Verdict.STALE
        if claim.version >= LAST_VERSION:
            return Verdict.UNAVAILABLE
        self._own(Shard(claim.shard_id, claim.version + 1, claim.owner))
        return Verdict.APPLIED

    def _release(self, claim: Shard) -> Verdict:
        if claim.shard_id in self.held:
            return Verdict.UNAVAILABLE
        if self.shards[claim.shard_id] != claim:
            return Verdict.STALE
        self._own(Shard(claim.shard_id, claim.version, ""))
        return Verdict.APPLIED

    def _own(self, shard: Shard) -> None:
        self.shards[shard.shard_id] = self.claimed[shard.shard_id] = shard

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
        """The primary keys at which rewritten and removed rows stand now."""
        return [
            (shard_id, row.stored_due_at, uuid)
            for (shard_id, uuid), row in self.rows.items()
            if row.stored_due_at is not None and (row.timer is not None or row.version == 0)
        ]

    def written(self) -> list[Timer]:
        return [row.timer for row in self.rows.values() if row.timer is not None]

    def begun(self) -> list[tuple[int, int | None, str, int, int, int]]:
        """Primary key, attempts to add, new version and fence."""
        return [
            (shard_id, row.stored_due_at, uuid, row.begins, row.version, row.fence)
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


def _payload_bytes(change: Put | Remove | None) -> int:
    return len(change.timer.payload or "") if isinstance(change, Put) else 0


def only_creates(requests: Sequence[WriteRequest]) -> list[Timer] | None:
    """The rows to insert when the group does nothing but create different rows; otherwise None."""
    created: dict[RowKey, Timer] = {}
    expected = 0
    for request in requests:
        if not isinstance(request, Write):
            return None
        for change in request.items:
            if change.expect != 0 or isinstance(change, Remove):
                return None
            created[_row_key(change)] = change.timer
        expected += len(request.items)
    if len(created) != expected:
        return None
    return list(created.values())


def _row_key(change: Put | Remove) -> RowKey:
    if isinstance(change, Put):
        return change.timer.shard_id, change.timer.uuid
    return change.key.shard_id, change.key.uuid
