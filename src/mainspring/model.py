"""The values that every layer uses. Frozen, typed, without behaviour that waits.

Instants are integer milliseconds since the epoch. Documents (`Detail`, `Attempt`, `RetryPolicy`,
`Namespace`) are kept by the stores as camelCase JSON, so a field added with a default needs no migration.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from mainspring.text import STATUS_RULE

FOREVER: Final = 2**62
"""The due instant of a timer that waits for nothing: parked timers sort after all others."""

LAST_VERSION: Final = 2**63 - 1
"""The largest number that every database holds. Nothing of ours ever gets there, and nothing can count on from it."""

Count = Annotated[int, Meta(lt=LAST_VERSION)]
"""In rows that are read: a number that may have to be raised by one some day."""

Ratio = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
StatusRule = Annotated[str, Meta(pattern=STATUS_RULE)]


class State(StrEnum):
    """What a timer is doing."""

    SCHEDULED = "scheduled"
    RUNNING = "running"
    RETRYING = "retrying"
    PARKED = "parked"


class Result(StrEnum):
    """The outcome of an attempt: one of three."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Delivery(StrEnum):
    """What the owner of a timer chose to risk: a repeat, or a loss."""

    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class RetryPolicy(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How often and when a failed delivery is tried again. The defaults are the published default policy."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000, description="Includes the first attempt.")] = 8
    initial_interval_seconds: Seconds = 1.0
    backoff_multiplier: Annotated[float, Meta(ge=1, le=100)] = 2.0
    max_interval_seconds: Seconds = 600.0
    max_elapsed_seconds: (
        Annotated[float, Meta(ge=0, le=31_536_000, description="Measured from the first attempt.")] | None
    ) = None
    jitter: Annotated[Ratio, Meta(description="Up to this fraction of an interval is added at random.")] = 0.1
    schedule: Annotated[tuple[Seconds, ...], Meta(min_length=1, max_length=1000)] | None = None
    """Explicit waits in seconds; replaces the computed ones, and its length + 1 bounds the attempts."""
    retry_on: Annotated[tuple[StatusRule, ...], Meta(max_length=100)] | None = None
    """What is retried: a status (503), a class (5xx), network, timeout. None: 408, 425, 429, 5xx, network, timeout."""
    on_exhausted: Annotated[
        Literal["park", "drop"],
        Meta(description="park keeps the timer, visible and resumable; drop keeps only its history."),
    ] = "park"


class LastOutcome(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the newest attempt of a timer ended."""

    outcome: Result
    at: int
    status: int | None = None
    detail: str = ""


class Detail(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The part of a timer that stores keep as one document: no store looks into it, except at labels."""

    execute_at: int
    callback_url: str
    delivery_id: str
    created_at: int
    updated_at: int
    callback_timeout_ms: int = 30_000
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    headers: dict[str, str] = {}
    labels: dict[str, str] = {}
    retry_policy: RetryPolicy | None = None
    first_attempt_at: int | None = None
    last_outcome: LastOutcome | None = None
    hasty: int = 0
    """Reschedules in a row to a moment that had already passed."""


class TimerKey(Struct, frozen=True):
    """Where a timer lives. The uuid follows from namespace and timer id, the shard from the uuid."""

    shard_id: int
    uuid: str


class Timer(Struct, frozen=True, kw_only=True):
    """A timer as it is in a store.

    `due_at` is the next instant at which something has to be done with it, and the key of the due order;
    `detail.execute_at` is what its owner asked for. `version` counts every write and is what compare-and-set
    compares; `generation` counts the changes that a user sees. `fence` is the shard version under which the
    attempt in flight was begun. `payload` is JSON text, passed on byte for byte.
    """

    shard_id: int
    uuid: str
    namespace: str
    timer_id: str
    due_at: int
    detail: Detail
    payload: str | None = None
    state: State = State.SCHEDULED
    attempts: int = 0
    generation: int = 1
    version: int = 1
    fence: int = 0

    @property
    def key(self) -> TimerKey:
        return TimerKey(self.shard_id, self.uuid)


class Attempt(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One attempt, as the history keeps it. `next` says what was decided because of it."""

    attempt: int
    generation: int
    delivery_id: str
    scheduled_at: int
    started_at: int
    outcome: Result
    duration_ms: int = 0
    status: int | None = None
    detail: str = ""
    answer_head: str = ""
    next: Literal["done", "retry", "rescheduled", "parked", "dropped", "superseded"] = "done"
    next_at: int | None = None


class Namespace(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A space of timer ids with its own shards and defaults. Shards are `first_shard ... + shard_count - 1`."""

    name: str
    first_shard: int
    shard_count: int
    created_at: int
    updated_at: int
    secrets: tuple[str, ...]
    """Newest first; every request is signed with all of them, so that a secret can be rotated."""
    retry_policy: RetryPolicy = RetryPolicy()
    host_limit: int | None = None
    """Calls in flight to one destination host from this namespace; None: the server's setting."""
    history_retention_days: int = 7

    @property
    def shards(self) -> range:
        return range(self.first_shard, self.first_shard + self.shard_count)

    def key_of(self, timer_id: str) -> TimerKey:
        digest = blake2b(f"{self.name}\0{timer_id}".encode(), digest_size=16).digest()
        return TimerKey(self.first_shard + int.from_bytes(digest[:8]) % self.shard_count, digest.hex())


class Shard(Struct, frozen=True):
    """Who owns a shard. `version` is the fence; it only grows. `owner` is empty after a release."""

    shard_id: int
    version: int = 0
    owner: str = ""


class Record(Struct, frozen=True):
    """A document in a collection. Versions start at 1 and grow by one with every write."""

    key: str
    value: bytes
    version: int
    expires_at: int | None = None


_json = msgspec.json.Decoder(Raw)


def json_payload(text: str | None) -> str | None:
    """The payload of a row that is read: as it is, if it is JSON. It is passed on within larger documents, and would
    otherwise spoil all of them. Nothing is made of it: this takes a tenth of a microsecond."""
    if text is not None:
        _json.decode(text)
    return text


def to_json(value: object) -> bytes:
    return msgspec.json.encode(value)
