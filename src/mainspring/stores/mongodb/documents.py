"""Values to documents and back. Texts of any content are values here and never names of fields or parts of patterns."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec
from bson.datetime_ms import DatetimeMS

from mainspring.model import Attempt, Detail, Record, Shard, State, Timer, TimerKey
from mainspring.stores.mongodb.connection import Document

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
    """Large numbers come as a type of the driver's, which other libraries do not take for one: `int` undoes that."""
    return Timer(
        shard_id=int(document["shard_id"]),
        due_at=int(document["due_at"]),
        uuid=document["uuid"],
        namespace=document["namespace"],
        timer_id=document["timer_id"],
        state=State(document["state"]),
        attempts=int(document["attempts"]),
        generation=int(document["generation"]),
        version=int(document["version"]),
        fence=int(document["fence"]),
        detail=_detail.decode(document["detail"]),
        payload=document["payload"],
    )


def attempt_document(key: TimerKey, attempt: Attempt) -> Document:
    """The id has the order of the history; its digest makes an attempt reported twice one document."""
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


def shard_from(document: Document) -> Shard:
    return Shard(int(document["_id"]), int(document["version"]), document["owner"])


def record_id(collection: str, key: str) -> Document:
    """The id has the order of a scan: by collection, then by the bytes of the key, which is by code point."""
    return {"collection": collection, "key": key}


def record_fields(record: Record) -> Document:
    expires_at = None if record.expires_at is None else DatetimeMS(record.expires_at)
    return {"value": record.value, "version": record.version, "expires_at": expires_at}


def record_from(document: Document) -> Record:
    expires_at = document["expires_at"]
    expires_ms = None if expires_at is None else int(expires_at)
    return Record(document["_id"]["key"], document["value"], int(document["version"]), expires_ms)


def is_live(now: int) -> Document:
    """The condition that a record has not expired; no expiry at all satisfies it."""
    return {"expires_at": {"$not": {"$lte": DatetimeMS(now)}}}


def is_expired(now: int) -> Document:
    return {"expires_at": {"$lte": DatetimeMS(now)}}
