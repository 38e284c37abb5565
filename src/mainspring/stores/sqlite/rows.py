"""Values to columns and back. Answers come as one JSON text per query, decoded here with their types."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import convert

from mainspring.model import Attempt, Count, Detail, Record, Shard, State, Timer, TimerKey, json_payload
from mainspring.stores.plan import Value
from mainspring.unreadable import Unreadable, reason_of, timer_name

DAY_MS: Final = 86_400_000

TIMER_COLUMNS: Final = (
    "shard_id, due_at, uuid, namespace, timer_id, state, attempts, generation, version, fence, detail, payload"
)
TIMERS_AS_JSON: Final = (
    "json_group_array(json_array(shard_id, due_at, uuid, namespace, timer_id, state,"
    " attempts, generation, version, fence, json(detail), payload))"
)

TIMERS_AS_BYTES: Final = (
    "shard_id, due_at, CAST(uuid AS BLOB), CAST(namespace AS BLOB), CAST(timer_id AS BLOB), CAST(state AS BLOB),"
    " attempts, generation, version, fence, CAST(detail AS BLOB), CAST(payload AS BLOB)"
)
"""For rows that are unreadable as JSON because of one of them: each is then understood, or not, by itself."""
RowInBytes = tuple[int, int, bytes, bytes, bytes, bytes, int, int, int, int, bytes, bytes | None]

RecordInBytes = tuple[bytes, bytes, int, int | None]

_encoder = msgspec.json.Encoder()
_timers = msgspec.json.Decoder(
    list[tuple[int, int, str, str, str, State, Count, Count, Count, int, Detail, str | None]]
)
_detail = msgspec.json.Decoder(Detail)
_attempts = msgspec.json.Decoder(list[Attempt])
_attempt = msgspec.json.Decoder(Attempt)
_shards = msgspec.json.Decoder(list[tuple[int, int, str]])
_sizes = msgspec.json.Decoder(list[int])
_instants = msgspec.json.Decoder(list[int | None])
Place = tuple[int, str]
"""The due instant of a row, and its uuid in hexadecimal, of whatever bytes it consists: in the same order as rows."""
_first_places = msgspec.json.Decoder(list[list[Place]])
_places = msgspec.json.Decoder(list[tuple[int, str, int, int]])
_records = msgspec.json.Decoder(list[tuple[str, str, int, int | None]])
_found = msgspec.json.Decoder(list[tuple[int, str | None, int, int | None]])


def json_text(value: object) -> str:
    return _encoder.encode(value).decode()


def timer_row(timer: Timer) -> tuple[Value, ...]:
    return (
        timer.shard_id,
        timer.due_at,
        timer.uuid,
        timer.namespace,
        timer.timer_id,
        timer.state.value,
        timer.attempts,
        timer.generation,
        timer.version,
        timer.fence,
        _encoder.encode(timer.detail).decode(),
        timer.payload,
    )


def timers_from(text: str) -> list[Timer]:
    return [
        Timer(
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
            detail=row[10],
            payload=json_payload(row[11]),
        )
        for row in _timers.decode(text)
    ]


def timer_in_bytes(row: RowInBytes) -> Timer:
    return Timer(
        shard_id=row[0],
        due_at=row[1],
        uuid=row[2].decode(),
        namespace=row[3].decode(),
        timer_id=row[4].decode(),
        state=State(row[5].decode()),
        attempts=convert(row[6], Count),
        generation=convert(row[7], Count),
        version=convert(row[8], Count),
        fence=row[9],
        detail=_detail.decode(row[10]),
        payload=None if row[11] is None else json_payload(row[11].decode()),
    )


def unreadable_timer(row: RowInBytes, error: Exception) -> Unreadable:
    name = timer_name(TimerKey(row[0], row[2].decode(errors="backslashreplace")))
    return Unreadable("timer", name, reason_of(error), row[8])


def attempt_row(key: TimerKey, attempt: Attempt) -> tuple[Value, ...]:
    day = attempt.started_at // DAY_MS
    return key.shard_id, day, key.uuid, attempt.started_at, attempt.attempt, json_text(attempt)


def attempts_from(text: str) -> list[Attempt]:
    return _attempts.decode(text)


def attempt_in_bytes(document: bytes) -> Attempt:
    return _attempt.decode(document)


def sizes_from(text: str) -> list[int]:
    return _sizes.decode(text)


def shards_from(text: str) -> list[Shard]:
    return [Shard(*row) for row in _shards.decode(text)]


def instants_from(text: str) -> list[int | None]:
    return _instants.decode(text)


def first_places_from(text: str) -> list[list[Place]]:
    """Of each shard."""
    return _first_places.decode(text)


def places_from(text: str) -> list[tuple[int, str, int, int]]:
    """Shard, uuid, due instant and version of timer rows."""
    return _places.decode(text)


def records_from(text: str) -> list[Record]:
    """Values travel as hexadecimal, because JSON has no bytes."""
    return [
        Record(key, bytes.fromhex(value), version, expires) for key, value, version, expires in _records.decode(text)
    ]


def record_in_bytes(row: RecordInBytes) -> Record:
    return Record(row[0].decode(), row[1], row[2], row[3])


def unreadable_record(collection: str, row: RecordInBytes, error: Exception) -> Unreadable:
    return Unreadable(collection, row[0].decode(errors="backslashreplace"), reason_of(error), row[2])


def found_records_from(text: str) -> list[tuple[int, bytes | None, int, int | None]]:
    """The index in the request, and the value, version and expiry of records; large ones without their value."""
    return [
        (place, None if value is None else bytes.fromhex(value), version, expires)
        for place, value, version, expires in _found.decode(text)
    ]


def record_versions_from(text: str) -> list[tuple[str, str, int, int | None]]:
    """Collection, key, version and expiry of records."""
    return _records.decode(text)
