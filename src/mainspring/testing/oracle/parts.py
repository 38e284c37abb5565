"""What events are made of: what is asked and told about one id, and what is found in the store at the end."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import Catchup
from mainspring.jobs.record import KnownOverlap
from mainspring.model import RetryPolicy

Service = Literal["timers", "jobs", "fetches", "idempotency", "locks"]


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of an event."""


class Asked(Part, frozen=True, kw_only=True):
    """What a request says about one id. Fields that it leaves alone are None (or empty, for a mark and labels)."""

    id: str
    due_ms: int | None = None
    """Timers: the instant asked for; None on an update that leaves the time alone. For "in n seconds", what it comes
    to when it is sent: the server's clock decides, so the oracle takes the answer's instant where there is one."""
    delivery: str | None = None
    policy: RetryPolicy | None = None
    mark: str | None = None
    """Of the payload; of the work for an idempotent call."""
    host: str | None = None
    """The destination: what shares a lane."""
    timeout_ms: int | None = None
    """How long a call may take; for a fetch, how long its result is waited for."""
    labels: dict[str, str] = {}
    job: JobTerms | None = None


class JobTerms(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job is to be after a request: its calendar and its policies. Edits are recorded by their result."""

    schedule: str
    seconds: bool = False
    time_zone: str = "UTC"
    dst: Dst = Dst()
    start_ms: int | None = None
    end_ms: int | None = None
    max_runs: int | None = None
    catchup: Catchup = "latest"
    window_ms: int = 3_600_000
    overlap: KnownOverlap = "skip"
    paused: bool = False
    created_ms: int = 0
    """What the record says, if known: a different instant means a different job. `updated_ms` likewise."""
    updated_ms: int = 0


class View(Part, frozen=True, kw_only=True):
    """What an answer tells about one id: for a delete, the row that was removed."""

    id: str
    delivery_id: str = ""
    generation: int = 0
    state: str = ""
    """A timer's or a run's state; for a fetch and an idempotent call how it ended: completed, failed, unknown, ..."""
    attempts: int = 0
    due_ms: int | None = None
    """`executeAt`."""
    version: int | None = None
    mark: str = ""
    """Of the payload; of the result for a fetch and an idempotent call."""
    reason: str = ""


class Row(Part, frozen=True, kw_only=True):
    """A timer in the store."""

    id: str
    delivery_id: str
    generation: int
    state: str
    attempts: int
    due_ms: int | None = None
    """`executeAt`."""
    version: int | None = None
    delivery: str = "at-least-once"
    mark: str = ""
    host: str = ""
    reason: str = ""
    """What its last outcome says."""
    shard: int | None = None


class Entry(Part, frozen=True, kw_only=True):
    """An attempt in a timer's history."""

    id: str
    delivery_id: str
    attempt: int
    generation: int
    outcome: str
    next: str
    started_ms: int
    duration_ms: int = 0
    next_ms: int | None = None
    status: int | None = None
    detail: str = ""


class Owner(Part, frozen=True, kw_only=True):
    """A shard and its owner, and whether that instance is alive and knows that it is the owner."""

    shard: int
    version: int
    owner: str = ""
    alive: bool = False


class Bound(Part, frozen=True, kw_only=True):
    """The most of something that was seen in an instance: window, in-flight, host, lanes, and what else has a limit."""

    node: str
    what: str
    value: int
    limit: int
    """The setting that limits it. How much more to allow is up to the rule."""


class Fetched(Part, frozen=True, kw_only=True):
    """A fetch on record."""

    id: str
    delivery_id: str = ""
    """Which fetch of this id: there is a new one when the record of the last has expired."""
    state: str
    mark: str = ""
    wanted: bool = False
    """An origin waits for its result."""
    taken: bool = False
    offered: bool = False
    """There is a row that will have its result offered again when it is time."""
    reason: str = ""
    """Why it is no longer offered, if so."""
    expired: bool = False
    """It is no longer on record, just not removed yet."""


class Key(Part, frozen=True, kw_only=True):
    """An idempotency key on record."""

    key: str
    state: str
    mark: str = ""
    reason: str = ""
