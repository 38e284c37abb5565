"""Timers on the wire: requests, answers and the views of stored values.

The same types serve the HTTP API, its OpenAPI description, the SDK and the CLI. camelCase on the wire.
Requests refuse unknown fields. Instants are read as RFC 3339 with an offset or as epoch milliseconds,
and always written as RFC 3339 in UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from mainspring.model import Delivery, Result, RetryPolicy, State
from mainspring.wire.instants import Delay, Instant
from mainspring.wire.message import (
    BATCH_ITEMS,
    CallbackTimeout,
    CallbackUrl,
    Cursor,
    Headers,
    Labels,
    Message,
    NamespaceName,
    PageSize,
    ProblemItem,
    View,
)

TimerId = Annotated[str, Meta(min_length=1, max_length=255)]


class CreateTimer(Message, frozen=True, kw_only=True):
    """Request an HTTP call. Exactly one of executeAt and delaySeconds. Reusing an id replaces the timer."""

    namespace: NamespaceName = "default"
    timer_id: TimerId
    execute_at: Instant | UnsetType = UNSET
    delay_seconds: Delay | UnsetType = UNSET
    callback_url: CallbackUrl
    payload: Raw | UnsetType = UNSET
    headers: Headers = {}
    retry_policy: RetryPolicy | None = None
    callback_timeout_seconds: CallbackTimeout = 30.0
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    labels: Labels = {}


class UpdateTimer(Message, frozen=True, kw_only=True):
    """Change a timer. Absent fields keep their value; a new time starts counting attempts afresh."""

    namespace: NamespaceName = "default"
    timer_id: TimerId
    if_generation: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    execute_at: Instant | UnsetType = UNSET
    delay_seconds: Delay | UnsetType = UNSET
    callback_url: CallbackUrl | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    retry_policy: RetryPolicy | UnsetType | None = UNSET
    callback_timeout_seconds: CallbackTimeout | UnsetType = UNSET
    delivery: Delivery | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET


class CreateTimers(Message, frozen=True, kw_only=True):
    """Many timers at once; each has its own result. If an id occurs twice, only the last one is written."""

    timers: Annotated[tuple[Raw, ...], Meta(min_length=1, max_length=BATCH_ITEMS)]
    dry_run: Annotated[bool, Meta(description="Only check them, and return what they would be.")] = False


class TimerRef(Message, frozen=True, kw_only=True):
    """Names one timer."""

    namespace: NamespaceName = "default"
    timer_id: TimerId


class FilterFields(Message, frozen=True, kw_only=True):
    """Which timers of a namespace; all conditions must hold."""

    namespace: NamespaceName = "default"
    states: Annotated[tuple[State, ...], Meta(max_length=4)] = ()
    id_prefix: Annotated[str, Meta(max_length=255)] = ""
    labels: Labels = {}
    due_from: Annotated[Instant | UnsetType, Meta(description="Next due at or after this instant.")] = UNSET
    due_to: Annotated[Instant | UnsetType, Meta(description="Next due before this instant.")] = UNSET


class ListTimers(FilterFields, frozen=True, kw_only=True):
    """A page of timers, in due order."""

    secrets: Annotated[bool, Meta(description="Show values that are otherwise hidden; for exports.")] = False
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class BulkTimers(FilterFields, frozen=True, kw_only=True):
    """Act on all timers that match. Without any condition, `all` must be true."""

    all: bool = False
    dry_run: bool = False


class ListHistory(Message, frozen=True, kw_only=True):
    """The attempts of one timer, newest first, even if it is done."""

    namespace: NamespaceName = "default"
    timer_id: TimerId
    outcomes: Annotated[tuple[Result, ...], Meta(max_length=3)] = ()
    since: Annotated[Instant | UnsetType, Meta(description="Started at or after this instant.")] = UNSET
    until: Annotated[Instant | UnsetType, Meta(description="Started before this instant.")] = UNSET
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class OutcomeView(View, frozen=True, kw_only=True):
    """How the latest attempt ended."""

    outcome: Result
    at: datetime
    status: int | None
    detail: str


class TimerView(View, frozen=True, kw_only=True):
    """A timer. Secret headers are shown as `***`; sending that back in an update keeps their value."""

    namespace: str
    timer_id: str
    execute_at: datetime
    callback_url: str
    payload_json: Raw = field(name="payload")
    headers: dict[str, str]
    retry_policy: RetryPolicy | None
    callback_timeout_seconds: float
    delivery: Delivery
    labels: dict[str, str]
    state: State
    next_attempt_at: datetime | None
    attempts: int
    generation: int
    delivery_id: str
    created_at: datetime
    updated_at: datetime
    last_outcome: OutcomeView | None
    hasty_reschedules: int = 0

    @property
    def payload(self) -> Any:
        """The payload as a Python value."""
        return msgspec.json.decode(self.payload_json)


class BatchItem(View, frozen=True, kw_only=True):
    """The result of one item: the timer, or the problem."""

    timer: TimerView | None = None
    problem: ProblemItem | None = None


class BatchView(View, frozen=True, kw_only=True):
    """The results, in the order of the request."""

    created: Annotated[int, Meta(description="How many were created or replaced, or would be.")]
    failed: int
    results: tuple[BatchItem, ...]
    replaced: Annotated[
        int, Meta(description="How many of the created ones took, or would take, the place of a timer of the same id.")
    ] = 0


class TimerPage(View, frozen=True, kw_only=True):
    """A page of timers; `nextCursor` is null on the last one. Others may be short, or empty: if timers are large, or if
    many were looked through in vain."""

    timers: tuple[TimerView, ...]
    next_cursor: str | None


class BulkView(View, frozen=True, kw_only=True):
    """How many timers matched, and how many of them were changed. A dry run changes none, and counts those it would."""

    matched: int
    changed: Annotated[int, Meta(description="Those that were changed, or would be.")]
    dry_run: bool


class TimerStats(Message, frozen=True, kw_only=True):
    """How the timers of a namespace are doing."""

    namespace: NamespaceName = "default"


class TimerStatsView(View, frozen=True, kw_only=True):
    """The timers of a namespace by state. Timers that are done no longer exist and are not counted."""

    namespace: str
    scheduled: int
    running: int
    retrying: int
    parked: int
    overdue: Annotated[int, Meta(description="Scheduled or retrying ones whose instant has passed.")]
    next_due_at: Annotated[datetime | None, Meta(description="When the first of them is due, or was.")]
    counts_are_minimum: Annotated[bool, Meta(description="Whether there are more than were counted.")]


class AttemptView(View, frozen=True, kw_only=True):
    """One attempt, and what was decided after it."""

    attempt: int
    generation: int
    delivery_id: str
    scheduled_at: datetime
    started_at: datetime
    duration_ms: int
    outcome: Result
    status: int | None
    detail: str
    answer_head: str
    next: Literal["done", "retry", "rescheduled", "parked", "dropped", "superseded"]
    next_at: datetime | None


class HistoryPage(View, frozen=True, kw_only=True):
    """A page of attempts; `nextCursor` is null on the last one."""

    attempts: tuple[AttemptView, ...]
    next_cursor: str | None


class DeletedView(View, frozen=True, kw_only=True):
    """The timer as it was. If its state was `running`, an attempt was in flight and may still arrive."""

    timer: TimerView
