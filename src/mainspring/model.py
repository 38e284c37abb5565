"""The values that every layer uses. Frozen, typed, without behaviour that waits.

Instants are integer milliseconds since the epoch. Documents (`Detail`, `Attempt`, `RetryPolicy`,
`Namespace`) are kept by the stores as camelCase JSON, so a field added with a default needs no migration.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from mainspring.text import STATUS_RULE

FOREVER: Final = 2**62
"""The due instant of a timer that waits for nothing: parked timers sort after all others."""

LATE_MS: Final = 3_600_000
"""How long after a namespace has got more shards an open transaction may still bring a timer into the earlier ones."""

GROUP_TAIL: Final = 3
"""Ids that differ in so many last characters at most are of one group."""
GROUP_BYTES: Final = 3
"""How much of a uuid its group takes: the fewer, the less likely are two ids with the same uuid."""

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
    duration_ms: int | None = None
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


class Deletion(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far the deletion of a namespace has come."""

    force: bool = False
    """Whether its timers go with it. Otherwise the first that is found ends the deletion."""
    closed_at: int | None = None
    """When nobody adds a timer any more, because everybody has read that it is being deleted. None: not known yet."""
    begun: bool = False
    """Whether something may be gone already. Until then it can be called off."""
    shards: int = 0
    """How many are empty, in their order."""
    timers: int = 0
    history: int = 0


class ShardRange(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Shards to which the new timers of a namespace went before it got more of them."""

    first_shard: int
    shard_count: int
    salt: str = ""
    grouped: bool = False
    emptied_at: int | None = None
    """When it was found to be empty: it is kept for its history from then on."""

    @property
    def shards(self) -> range:
        return range(self.first_shard, self.first_shard + self.shard_count)


class Namespace(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A space of timer ids with its own shards and defaults. Shards are `first_shard ... + shard_count - 1`, and those
    of the `earlier` ranges. A timer stays where it was created: see `namespaces.reshard`."""

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
    deletion: Deletion | None = None
    """Set: it is being deleted, and takes no new timers."""
    salt: str = ""
    """Makes its uuids different from those of earlier ranges, and of earlier namespaces of its name."""
    grouped: bool = False
    """Whether uuids of the newest range begin alike if their ids differ only in the last few characters. So numbered
    timers that are created one after another are neighbours in the keys of a store, however many others there are."""
    earlier: tuple[ShardRange, ...] = ()
    """Newest first. Empty, unless it was given more shards."""
    since: int | None = None
    """When new timers begin to go to the newest range, if there are earlier ones. None: that is not decided yet."""

    @property
    def shards(self) -> Sequence[int]:
        newest = range(self.first_shard, self.first_shard + self.shard_count)
        if not self.earlier:
            return newest
        return [shard for one in reversed(self.earlier) for shard in one.shards] + [*newest]

    def key_of(self, timer_id: str) -> TimerKey:
        """Where a timer is, unless there are earlier ranges."""
        return _key_in(self, self.name, timer_id)

    def keys_of(self, timer_id: str) -> tuple[TimerKey, ...]:
        """Where a timer may be, newest range first."""
        newest = self.key_of(timer_id)
        return (newest, *(_key_in(one, self.name, timer_id) for one in self.earlier)) if self.earlier else (newest,)

    def doubles_of(self, timer: Timer) -> tuple[tuple[TimerKey, ...], tuple[TimerKey, ...]]:
        """Where one of the same id may have been created at the same time: in newer ranges, and in older ones."""
        keys = self.keys_of(timer.timer_id)
        if timer.key not in keys:
            return (), ()
        late = self.since is not None and timer.detail.created_at > self.since + LATE_MS
        return keys[: keys.index(timer.key)], () if late else self.older_keys_of(timer)

    def older_keys_of(self, timer: Timer) -> tuple[TimerKey, ...]:
        """Where one of the same id may be that does not count beside this one."""
        keys = self.keys_of(timer.timer_id)
        return keys[keys.index(timer.key) + 1 :] if timer.key in keys else ()

    def new_key_of(self, timer_id: str, now: int) -> TimerKey:
        """Where a timer goes that is nowhere yet."""
        if self.earlier and (self.since is None or now < self.since):
            return _key_in(self.earlier[0], self.name, timer_id)
        return self.key_of(timer_id)


def salt_of(shards: range) -> str:
    """No other range ever has it: shards are given away once."""
    return f"\0{shards.start}"


def _key_in(one: Namespace | ShardRange, name: str, timer_id: str) -> TimerKey:
    digest = blake2b(f"{name}\0{timer_id}{one.salt}".encode(), digest_size=16).digest()
    shard_id = one.first_shard + int.from_bytes(digest[:8]) % one.shard_count
    if not one.grouped:
        return TimerKey(shard_id, digest.hex())
    group = blake2b(f"{name}\0{timer_id[:-GROUP_TAIL]}{one.salt}".encode(), digest_size=GROUP_BYTES).digest()
    return TimerKey(shard_id, (group + digest[GROUP_BYTES:]).hex())


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
