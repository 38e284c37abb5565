"""The columns and statements of the two tables, and values to columns and back.

A shard's partition holds, by `row_type`:

| `row_type` | at | uuid | entry | |
|---|---|---|---|---|
| 2, a timer | its due instant | its uuid | empty | the whole timer; the due order is the key order |
| 3, a place | 0 | its uuid | empty | where that timer is, and what compare-and-set compares |
| 4, an attempt | 0 | its timer's uuid | start, number, digest | the history, by timer |
| 5, an age | start | its timer's uuid | the same | the keys of the history, oldest first, for pruning |

The shard itself (row type 1 in other stores) is the partition's static columns.
"""

# ruff: noqa: S608  (the names are ours and checked, values are bound)

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from mainspring.model import Attempt, Count, Detail, Record, Shard, State, Timer, TimerKey, json_payload, to_json
from mainspring.store import Position
from mainspring.stores.cassandra.connection import Row, Statement, Value
from mainspring.unreadable import Unreadable, attempt_of, each, reason_of

END_OF_HISTORY: Final = b"\xff" * 17
_NO_EXPIRY: Final = 2**62

_SHARD: Final = "shard_version, shard_owner, shard_due_from, shard_due_guard"
_TIMER: Final = (
    "shard_id, at, uuid, timer_namespace, timer_id, timer_state, timer_attempts, timer_generation,"
    " timer_version, timer_fence, timer_detail, timer_payload"
)
_AT_TIMER: Final = "shard_id = ? AND row_type = 2 AND at = ? AND uuid = ? AND entry = 0x"
_AT_PLACE: Final = "shard_id = ? AND row_type = 3 AND at = 0 AND uuid = ? AND entry = 0x"
_SAME_PLACE: Final = "timer_due_at = ? AND timer_version = ? AND timer_attempts = ?"
_AT_RECORD: Final = "collection = ? AND slot = ? AND key = ?"


class ShardColumns(Struct, frozen=True):
    """The static columns of a shard. Every write to the partition is conditional on all of them."""

    version: int = 0
    owner: str = ""
    due_from: int | None = None
    """No timer of the shard is due earlier. None: not known."""
    due_guard: int | None = None
    """Whoever writes a timer that is due earlier lowers both to its instant; never below `due_from`."""


class Place(Struct, frozen=True):
    """Where a timer is in the due order, and the parts of it that writes need to know."""

    due_at: int
    version: int
    attempts: int


class Statements:
    """What the servers have prepared."""

    def __init__(self, prepare: Callable[[str], Statement], keyspace: str) -> None:
        timers, records = f"{keyspace}.mainspring_timers", f"{keyspace}.mainspring_records"
        self.read_time = prepare("SELECT toUnixTimestamp(now()) FROM system.local")
        self._prepare_timer_reads(prepare, timers)
        self._prepare_timer_writes(prepare, timers)
        self._prepare_records(prepare, records)

    def _prepare_timer_reads(self, prepare: Callable[[str], Statement], timers: str) -> None:
        due = "shard_id = ? AND row_type = 2"
        self.read_shards = prepare(f"SELECT DISTINCT shard_id, {_SHARD} FROM {timers} WHERE shard_id IN ?")
        self.read_places = prepare(
            f"SELECT uuid, timer_due_at, timer_version, timer_attempts FROM {timers}"
            " WHERE shard_id = ? AND row_type = 3 AND at = 0 AND uuid IN ?"
        )
        self.read_timers = prepare(f"SELECT {_TIMER} FROM {timers} WHERE {due} AND (at, uuid, entry) IN ?")
        self.read_range = prepare(
            f"SELECT {_TIMER} FROM {timers} WHERE {due} AND (at, uuid) > (?, ?) AND (at) < (?) LIMIT ?"
        )
        self.read_first = prepare(f"SELECT at FROM {timers} WHERE {due} AND (at, uuid) > (?, ?) AND (at) < (?) LIMIT 1")
        self.read_firsts = prepare(
            f"SELECT shard_id, at FROM {timers} WHERE shard_id IN ? AND row_type = 2 AND at >= ? AND at < ?"
            " PER PARTITION LIMIT 1"
        )
        self.read_history = prepare(
            f"SELECT attempt_document, entry FROM {timers}"
            " WHERE shard_id = ? AND row_type = 4 AND at = 0 AND uuid = ? AND entry < ?"
            " ORDER BY row_type DESC, at DESC, uuid DESC, entry DESC LIMIT ?"
        )
        self.read_ages = prepare(
            f"SELECT at, uuid, entry FROM {timers} WHERE shard_id = ? AND row_type = 5 AND at >= ? AND at < ? LIMIT ?"
        )

    def _prepare_timer_writes(self, prepare: Callable[[str], Statement], timers: str) -> None:
        self.write_shard = prepare(
            f"UPDATE {timers} SET shard_version = ?, shard_owner = ?, shard_due_from = ?, shard_due_guard = ?"
            " WHERE shard_id = ?"
            " IF shard_version = ? AND shard_owner = ? AND shard_due_from = ? AND shard_due_guard = ?"
        )
        self.write_place = prepare(
            f"UPDATE {timers} SET timer_due_at = ?, timer_version = ?, timer_attempts = ?"
            f" WHERE {_AT_PLACE} IF {_SAME_PLACE}"
        )
        self.remove_place = prepare(f"DELETE FROM {timers} WHERE {_AT_PLACE} IF {_SAME_PLACE}")
        self.write_timer = prepare(
            f"UPDATE {timers} SET timer_namespace = ?, timer_id = ?, timer_state = ?, timer_attempts = ?,"
            " timer_generation = ?, timer_version = ?, timer_fence = ?, timer_detail = ?, timer_payload = ?"
            f" WHERE {_AT_TIMER}"
        )
        self.begin_timer = prepare(
            f"UPDATE {timers} SET timer_state = ?, timer_attempts = ?, timer_version = ?, timer_fence = ?"
            f" WHERE {_AT_TIMER}"
        )
        self.remove_timer = prepare(f"DELETE FROM {timers} WHERE {_AT_TIMER}")
        self.write_attempt = prepare(
            f"INSERT INTO {timers} (shard_id, row_type, at, uuid, entry, attempt_document) VALUES (?, 4, 0, ?, ?, ?)"
        )
        self.write_age = prepare(f"INSERT INTO {timers} (shard_id, row_type, at, uuid, entry) VALUES (?, 5, ?, ?, ?)")
        self.remove_attempt = prepare(
            f"DELETE FROM {timers} WHERE shard_id = ? AND row_type = 4 AND at = 0 AND uuid = ? AND entry = ?"
        )
        self.remove_ages = prepare(
            f"DELETE FROM {timers} WHERE shard_id = ? AND row_type = 5 AND (at, uuid, entry) <= (?, ?, ?)"
        )

    def _prepare_records(self, prepare: Callable[[str], Statement], records: str) -> None:
        columns = "key, value, version, expires_at"
        write = f"UPDATE {records} USING TTL ? SET value = ?, version = ?, expires_at = ? WHERE {_AT_RECORD}"
        self.read_record = prepare(f"SELECT {columns} FROM {records} WHERE {_AT_RECORD}")
        self.scan_records = prepare(
            f"SELECT {columns} FROM {records} WHERE collection = ? AND slot = '' AND key > ? LIMIT ?"
        )
        self.replace_record = prepare(f"{write} IF version = ? AND expires_at = ?")
        self.change_record = prepare(f"{write} IF version = ? AND expires_at > ?")
        self.remove_record = prepare(f"DELETE FROM {records} WHERE {_AT_RECORD} IF version = ? AND expires_at > ?")


# Shards


def shard_columns(state: ShardColumns) -> tuple[Value, ...]:
    """Values that only a shard that was never touched has become null."""
    return state.version or None, state.owner or None, state.due_from, state.due_guard


_shards = list[tuple[int, int | None, str | None, int | None, int | None]]


def states_from(rows: Sequence[Row]) -> dict[int, ShardColumns]:
    return {
        shard_id: ShardColumns(version or 0, owner or "", due_from, due_guard)
        for shard_id, version, owner, due_from, due_guard in msgspec.convert(rows, _shards)
    }


def shard_from(shard_id: int, state: ShardColumns) -> Shard:
    return Shard(shard_id, state.version, state.owner)


# Timers


def place_columns(place: Place | None) -> tuple[Value, ...]:
    return (None, None, None) if place is None else (place.due_at, place.version, place.attempts)


def places_from(rows: Sequence[Row]) -> dict[str, Place]:
    return {
        uuid: Place(due_at, version, attempts)
        for uuid, due_at, version, attempts in msgspec.convert(rows, list[tuple[str, int, int, int]])
    }


def timer_columns(timer: Timer) -> tuple[Value, ...]:
    return (
        timer.namespace,
        timer.timer_id,
        timer.state.value,
        timer.attempts,
        timer.generation,
        timer.version,
        timer.fence,
        to_json(timer.detail),
        timer.payload,
        timer.shard_id,
        timer.due_at,
        timer.uuid,
    )


_timer = tuple[int, int, str, str, str, State, Count, Count, Count, int, bytes, str | None]
_detail = msgspec.json.Decoder(Detail)


def timers_from(rows: Sequence[Row]) -> list[Timer | Unreadable]:
    return each(rows, _timer_from, _unreadable)


def _timer_from(columns: Row) -> Timer:
    row = msgspec.convert(columns, _timer)
    return Timer(
        shard_id=row[0],
        due_at=row[1],
        uuid=row[2],
        namespace=row[3],
        timer_id=row[4],
        state=row[5],
        attempts=row[6],
        generation=row[7],
        version=row[8],
        fence=row[9],
        detail=_detail.decode(row[10]),
        payload=json_payload(row[11]),
    )


def _unreadable(row: Row, error: Exception) -> Unreadable:
    version = row[8]
    return Unreadable("timer", f"{row[0]!r}/{row[2]!s}", reason_of(error), version if isinstance(version, int) else 0)


def place_of(row: Row) -> Position:
    """The position of a timer's row. It is the row's key, so it is known even if the row cannot be read."""
    return Position(*msgspec.convert(row[1:3], tuple[int, str]))


def row_bytes(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


def instants_from(rows: Sequence[Row]) -> list[int]:
    return [at for (at,) in msgspec.convert(rows, list[tuple[int]])]


def firsts_from(rows: Sequence[Row]) -> dict[int, int]:
    return dict(msgspec.convert(rows, list[tuple[int, int]]))


# History


def history_position(started_at: int, attempt: int) -> bytes:
    """Sorts as (started_at, attempt) does, even for instants before the epoch."""
    return struct.pack(">QQ", started_at + 2**63, attempt)


def history_entry(attempt: Attempt) -> tuple[bytes, bytes]:
    """The key of an attempt and its document. The same attempt twice is one key, two different reports are two."""
    document = to_json(attempt)
    digest = blake2b(document, digest_size=8).digest()
    return history_position(attempt.started_at, attempt.attempt) + digest, document


_attempt = msgspec.json.Decoder(Attempt)


def attempts_from(key: TimerKey, rows: Sequence[Row]) -> list[Attempt | Unreadable]:
    return each(
        rows, lambda row: _attempt.decode(msgspec.convert(row[0], bytes)), lambda _, error: attempt_of(key, error)
    )


def ages_from(rows: Sequence[Row]) -> list[tuple[int, str, bytes]]:
    return msgspec.convert(rows, list[tuple[int, str, bytes]])


# Records


def expiry_column(expires_at: int | None) -> int:
    """Never null, so that one condition says whether a record is alive."""
    return _NO_EXPIRY if expires_at is None else expires_at


def records_from(collection: str, rows: Sequence[Row]) -> list[Record | Unreadable]:
    """A column that somebody else left out is null; then it is not a record."""
    return each(rows, _record_from, lambda row, error: Unreadable(collection, str(row[0]), reason_of(error)))


def _record_from(row: Row) -> Record:
    key, value, version, expires_at = msgspec.convert(row, tuple[str, bytes, int, int])
    return Record(key, value, version, None if expires_at == _NO_EXPIRY else expires_at)
