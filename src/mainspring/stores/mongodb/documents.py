"""Values to documents and back. Arbitrary texts are only ever values here, never field names or parts of patterns."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec
from bson.datetime_ms import DatetimeMS

from mainspring.model import Attempt, Count, Detail, Record, Shard, State, Timer, TimerKey, json_payload
from mainspring.store import Position
from mainspring.stores.mongodb.connection import Document
from mainspring.unreadable import Unreadable, attempt_of, each, reason_of

ABSENT: Final = "absent"
"""The field that no document may have, by the rule of the collection: see `conditional`."""

_detail = msgspec.json.Decoder(Detail)
_attempt = msgspec.json.Decoder(Attempt)
_encoder = msgspec.json.Encoder()


def row_id(key: TimerKey) -> str:
    return f"{key.shard_id}:{key.uuid}"


DOCUMENT_BYTES: Final = 15 * 1024 * 1024
"""The most that a row or a record may take. Documents may have 16 MB, with all their fields."""


def timer_document(timer: Timer, *, version: int) -> Document:
    """Every field, always, so that setting them all replaces the document."""
    return {
        "_id": row_id(timer.key),
        "shard_id": timer.shard_id,
        "due_at": timer.due_at,
        "uuid": timer.uuid,
        "namespace": timer.namespace,
        "timer_id": timer.timer_id,
        "state": timer.state.value,
        "attempts": timer.attempts,
        "generation": timer.generation,
        "version": version,
        "fence": timer.fence,
        "detail": _encoder.encode(timer.detail).decode(),
        "labels": [{"name": name, "value": value} for name, value in timer.detail.labels.items()],
        "payload": timer.payload,
    }


def timer_from(document: Document) -> Timer:
    """Large numbers come as a type of the driver's own, which other libraries do not accept: `int` undoes that."""
    payload = document["payload"]
    return Timer(
        shard_id=int(document["shard_id"]),
        due_at=int(document["due_at"]),
        uuid=_text(document["uuid"]),
        namespace=_text(document["namespace"]),
        timer_id=_text(document["timer_id"]),
        state=State(document["state"]),
        attempts=msgspec.convert(int(document["attempts"]), Count),
        generation=msgspec.convert(int(document["generation"]), Count),
        version=msgspec.convert(int(document["version"]), Count),
        fence=int(document["fence"]),
        detail=_detail.decode(document["detail"]),
        payload=None if payload is None else json_payload(_text(payload)),
    )


def timers_from(documents: Iterable[Document]) -> list[Timer | Unreadable]:
    return each(documents, timer_from, _unreadable)


def _unreadable(document: Document, error: Exception) -> Unreadable:
    version = document.get("version")
    name = str(document["_id"]).replace(":", "/", 1)
    return Unreadable("timer", name, reason_of(error), int(version) if isinstance(version, int) else 0)


def _text(value: object) -> str:
    """Documents have only the types that their writers gave them."""
    if not isinstance(value, str):
        raise TypeError(f"Expected text, got {type(value).__name__}")
    return value


def position_of_document(document: Document) -> Position:
    """Known even if the document cannot be read: it is where the server's index has it."""
    return Position(int(document["due_at"]), str(document.get("uuid", "")))


def document_bytes(document: Document) -> int:
    return sum(len(value) for value in document.values() if isinstance(value, str | bytes))


def attempt_document(key: TimerKey, attempt: Attempt) -> Document:
    """The id sorts like the history; thanks to its digest, an attempt reported twice is one document."""
    text = _encoder.encode(attempt)
    identity = {
        "shard_id": key.shard_id,
        "uuid": key.uuid,
        "started_at": attempt.started_at,
        "attempt": attempt.attempt,
        "digest": blake2b(text, digest_size=16).digest(),
    }
    return {"_id": identity, "document": text.decode()}


def attempt_from(document: Document) -> Attempt:
    return _attempt.decode(document["document"])


def attempts_from(key: TimerKey, documents: Iterable[Document]) -> list[Attempt | Unreadable]:
    return each(documents, attempt_from, lambda _, error: attempt_of(key, error))


def shard_from(document: Document) -> Shard:
    return Shard(int(document["_id"]), int(document["version"]), document["owner"])


def record_id(collection: str, key: str) -> Document:
    """The id sorts like a scan: by collection, then by the bytes of the key, which means by code point."""
    return {"collection": collection, "key": key}


def record_fields(record: Record) -> Document:
    expires_at = None if record.expires_at is None else DatetimeMS(record.expires_at)
    return {"value": record.value, "version": record.version, "expires_at": expires_at}


def record_from(document: Document) -> Record:
    expires_at = document["expires_at"]
    expires_ms = None if expires_at is None else int(expires_at)
    value = document["value"]
    if not isinstance(value, bytes):
        raise TypeError(f"Expected bytes, got {type(value).__name__}")
    return Record(_text(document["_id"]["key"]), value, int(document["version"]), expires_ms)


def records_from(documents: Iterable[Document]) -> list[Record | Unreadable]:
    return each(documents, record_from, _unreadable_record)


def _unreadable_record(document: Document, error: Exception) -> Unreadable:
    identity = document["_id"]
    return Unreadable(str(identity.get("collection")), str(identity.get("key")), reason_of(error))


def is_live(now: int) -> Document:
    """The condition that a record has not expired; no expiry at all satisfies it."""
    return {"expires_at": {"$not": {"$lte": DatetimeMS(now)}}}


def is_expired(now: int) -> Document:
    return {"expires_at": {"$lte": DatetimeMS(now)}}
