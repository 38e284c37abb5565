"""Values to columns and back, the same for every dialect.

PostgreSQL cannot hold the character NUL in text. So names that users choose are kept with NUL as \\x01\\x01 and
\\x01 as \\x01\\x02, which changes neither their order nor what is a prefix of what. Documents are JSON, which
escapes control characters anyway.

`labels` repeats the labels of the detail, one line each, so that one label can be looked for as plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from mainspring.model import Attempt, Count, Detail, Record, Shard, State, Timer, TimerKey, json_payload
from mainspring.store import PAGE_BYTES, Position
from mainspring.stores.pages import Part, behind
from mainspring.stores.plan import Value
from mainspring.unreadable import Unreadable, attempt_of, each, owned_shard, readable, reason_of

DAY_MS: Final = 86_400_000

Row = tuple[Value, ...]

TIMER_COLUMNS: Final = (
    "shard_id", "due_at", "uuid", "namespace", "timer_id", "state",
    "attempts", "generation", "version", "fence", "detail", "payload", "labels",
)  # fmt: skip
SHARD_COLUMNS: Final = ("shard_id", "version", "owner")
HISTORY_COLUMNS: Final = ("shard_id", "day", "uuid", "started_at", "attempt", "digest", "document")
RECORD_COLUMNS: Final = ("collection", "record_key", "value", "version", "expires_at")

_encode = msgspec.json.Encoder().encode
_decode_detail = msgspec.json.Decoder(Detail).decode
_decode_attempt = msgspec.json.Decoder(Attempt).decode

TimerRow = tuple[int, int, str, str, str, State, Count, Count, Count, int, str, str | None]
"""All timer columns but the labels."""
_WIDTH: Final = 12
"""The column that follows them in a page: how large the page is by then."""


def store_name(name: str) -> str:
    if "\x00" in name or "\x01" in name:
        return name.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return name


def load_name(stored: str) -> str:
    if "\x01" in stored:
        return stored.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")
    return stored


def label_line(name: str, value: str) -> str:
    """JSON text never contains a line feed, so what is found is always a whole line."""
    return f"\n{_encode(name).decode()}:{_encode(value).decode()}\n"


def timer_row(timer: Timer) -> Row:
    labels = timer.detail.labels
    return (
        timer.shard_id,
        timer.due_at,
        timer.uuid,
        store_name(timer.namespace),
        store_name(timer.timer_id),
        timer.state.value,
        timer.attempts,
        timer.generation,
        timer.version,
        timer.fence,
        _encode(timer.detail).decode(),
        timer.payload,
        "".join(label_line(name, value) for name, value in labels.items()) if labels else None,
    )


def timers_from(rows: Sequence[Sequence[Value]]) -> list[Timer | Unreadable]:
    """All of them at once, because that is fast, unless one cannot be read."""
    try:
        return [_timer_from(row) for row in msgspec.convert([tuple(row)[:_WIDTH] for row in rows], list[TimerRow])]
    except (msgspec.DecodeError, UnicodeError):
        return each(rows, lambda row: _timer_from(msgspec.convert(tuple(row)[:_WIDTH], TimerRow)), _unreadable)


def _timer_from(row: TimerRow) -> Timer:
    return Timer(
        shard_id=row[0],
        due_at=row[1],
        uuid=row[2],
        namespace=load_name(row[3]),
        timer_id=load_name(row[4]),
        state=row[5],
        attempts=row[6],
        generation=row[7],
        version=row[8],
        fence=row[9],
        detail=_decode_detail(row[10]),
        payload=json_payload(row[11]),
    )


def _unreadable(row: Sequence[Value], error: Exception) -> Unreadable:
    return Unreadable("timer", f"{row[0]!r}/{_shown(row[2])}", reason_of(error), msgspec.convert(row[8], int))


def _shown(text: Value) -> str:
    return text.decode(errors="backslashreplace") if isinstance(text, bytes) else str(text)


def position_of_row(row: Sequence[Value]) -> Position:
    """Known even if the row cannot be read."""
    uuid = row[2]
    return behind(msgspec.convert(row[1], int), uuid if isinstance(uuid, bytes) else str(uuid).encode())


def part_from(rows: Sequence[Sequence[Value]], limit: int) -> Part:
    """What a statement has read from some shards: it was to read this many rows, or as many as make up a page."""
    is_full = len(rows) >= limit or fills_page(rows)
    return Part(readable(timers_from(rows)), position_of_row(rows[-1]) if rows else None, is_full)


def fills_page(rows: Sequence[Sequence[Value]]) -> bool:
    """Whether a statement ended with these rows because of their bytes."""
    return bool(rows) and int(rows[-1][_WIDTH] or 0) > PAGE_BYTES


def places_from(rows: Iterable[Sequence[Value]]) -> list[tuple[int, str, int, int]]:
    """Shard, uuid, due instant and version of timer rows."""
    return msgspec.convert([tuple(row) for row in rows], list[tuple[int, str, int, int]])


def shards_from(rows: Iterable[Sequence[Value]]) -> list[Shard]:
    return [
        owned_shard(
            msgspec.convert(row[0], int),
            msgspec.convert(row[1], int),
            row[2] if isinstance(row[2], bytes) else msgspec.convert(row[2], str),
        )
        for row in rows
    ]


def history_row(key: TimerKey, attempt: Attempt) -> Row:
    """Ends the key with a digest, so that an attempt reported twice is one row and two different reports are two."""
    document = _encode(attempt)
    digest = blake2b(document, digest_size=8).hexdigest()
    day = attempt.started_at // DAY_MS
    return key.shard_id, day, key.uuid, attempt.started_at, attempt.attempt, digest, document.decode()


def attempts_from(key: TimerKey, rows: Iterable[Sequence[Value]]) -> list[Attempt | Unreadable]:
    return each(
        rows,
        lambda row: _decode_attempt(msgspec.convert(row[0], str)),
        lambda _, error: attempt_of(key, error),
    )


def numbers_from(rows: Iterable[Sequence[Value]]) -> list[int | None]:
    """All columns of all rows."""
    return msgspec.convert([value for row in rows for value in row], list[int | None])


def record_row(collection: str, record: Record) -> Row:
    return store_name(collection), store_name(record.key), record.value, record.version, record.expires_at


def records_from(rows: Iterable[Sequence[Value]]) -> list[Record]:
    found = msgspec.convert([tuple(row) for row in rows], list[tuple[str, bytes, int, int | None]])
    return [Record(load_name(key), value, version, expires_at) for key, value, version, expires_at in found]


def record_versions_from(rows: Iterable[Sequence[Value]]) -> list[tuple[str, str, int, int | None]]:
    """Collection, key, version and expiry of records."""
    found = msgspec.convert([tuple(row) for row in rows], list[tuple[str, str, int, int | None]])
    return [(load_name(collection), load_name(key), version, expires) for collection, key, version, expires in found]
