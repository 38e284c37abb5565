"""What is said about timers and namespaces over the wire: requests, answers and the views of stored values.

The same types serve the HTTP API, its OpenAPI description, the SDK and the CLI. camelCase on the wire.
Requests refuse unknown fields. Instants are read as RFC 3339 with an offset or as epoch milliseconds,
and always written as RFC 3339 in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from mainspring.delivery.secrets import Secrets
from mainspring.errors import FieldError
from mainspring.model import Attempt, Delivery, Namespace, Result, RetryPolicy, State, Timer

LAST_INSTANT = 253_402_300_799_999
"""The end of the year 9999. Where an instant is stored, it lies between 0 and this, whichever way it was written."""
Instant = Annotated[datetime, Meta(tz=True)] | Annotated[int, Meta(ge=0, le=LAST_INSTANT)]
NamespaceName = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(?!\n)$")]
TimerId = Annotated[str, Meta(min_length=1, max_length=255)]
CallbackUrl = Annotated[str, Meta(min_length=8, max_length=2048, description="An absolute http or https URL.")]
CallbackTimeout = Annotated[float, Meta(ge=1, le=1800)]
Headers = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=255)], Annotated[str, Meta(max_length=8192)]], Meta(max_length=50)
]
Labels = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=63)], Annotated[str, Meta(max_length=255)]], Meta(max_length=32)
]
Delay = Annotated[float, Meta(ge=0, le=3_155_760_000)]
PageSize = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(max_length=1024)]
BATCH_ITEMS = 1000
ShardCount = Annotated[int, Meta(ge=1, le=4096)]


@lru_cache(maxsize=4096)  # one timer shows an instant up to four times, and a batch shares the one of its creation
def to_instant(ms: int) -> datetime:
    """As it is shown. Whatever stands in a row, one that no calendar has is shown as the nearest that there is."""
    return datetime.fromtimestamp(min(max(ms, 0), LAST_INSTANT) / 1000, UTC)


def to_ms(instant: datetime | int) -> int:
    return instant if isinstance(instant, int) else round(instant.timestamp() * 1000)


class Message(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A request."""


class View(Struct, frozen=True, rename="camel"):
    """An answer. Clients ignore fields that they do not know."""


class CreateTimer(Message, frozen=True, kw_only=True):
    """Ask for an HTTP call. Exactly one of executeAt and delaySeconds. The same id again replaces the timer."""

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
    """Change a timer. Absent fields keep their value; a new time starts the attempts again."""

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
    """Many timers at once; each has its own result. Of an id that is named twice the last stands, and is written."""

    timers: Annotated[tuple[Raw, ...], Meta(min_length=1, max_length=BATCH_ITEMS)]
    dry_run: Annotated[bool, Meta(description="Only check them, and answer what they would be.")] = False


class TimerRef(Message, frozen=True, kw_only=True):
    """Names one timer."""

    namespace: NamespaceName = "default"
    timer_id: TimerId


class FilterFields(Message, frozen=True, kw_only=True):
    """Which timers of a namespace; all conditions hold together."""

    namespace: NamespaceName = "default"
    states: Annotated[tuple[State, ...], Meta(max_length=4)] = ()
    id_prefix: Annotated[str, Meta(max_length=255)] = ""
    labels: Labels = {}
    due_from: Annotated[Instant | UnsetType, Meta(description="Next due at or after this instant.")] = UNSET
    due_to: Annotated[Instant | UnsetType, Meta(description="Next due before this instant.")] = UNSET


class ListTimers(FilterFields, frozen=True, kw_only=True):
    """A page of timers, in the order in which they are due."""

    secrets: Annotated[bool, Meta(description="Show what is hidden elsewhere; for exports.")] = False
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class BulkTimers(FilterFields, frozen=True, kw_only=True):
    """Act on all timers that match. Without any condition, `all` must be true."""

    all: bool = False
    dry_run: bool = False


class ListHistory(Message, frozen=True, kw_only=True):
    """The attempts of one timer, newest first; also of a timer that is done."""

    namespace: NamespaceName = "default"
    timer_id: TimerId
    outcomes: Annotated[tuple[Result, ...], Meta(max_length=3)] = ()
    since: Annotated[Instant | UnsetType, Meta(description="Started at or after this instant.")] = UNSET
    until: Annotated[Instant | UnsetType, Meta(description="Started before this instant.")] = UNSET
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class OutcomeView(View, frozen=True, kw_only=True):
    """How the newest attempt ended."""

    outcome: Result
    at: datetime
    status: int | None
    detail: str


class TimerView(View, frozen=True, kw_only=True):
    """A timer. Secret headers are shown as `***`, which keeps their value when it is sent back in an update."""

    namespace: str
    timer_id: str
    execute_at: datetime
    callback_url: str
    payload: Raw
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


class ProblemItem(View, frozen=True, kw_only=True):
    """What was wrong with one item of a batch."""

    code: str
    detail: str
    retryable: bool = False
    errors: tuple[FieldError, ...] = ()


class BatchItem(View, frozen=True, kw_only=True):
    """The result of one item: the timer, or the problem."""

    timer: TimerView | None = None
    problem: ProblemItem | None = None


class BatchView(View, frozen=True, kw_only=True):
    """The results, in the order of the request."""

    created: Annotated[int, Meta(description="Those that were created, or would be.")]
    failed: int
    results: tuple[BatchItem, ...]


class TimerPage(View, frozen=True, kw_only=True):
    """A page of timers; `nextCursor` is null on the last one. A page of large timers ends before its limit."""

    timers: tuple[TimerView, ...]
    next_cursor: str | None


class BulkView(View, frozen=True, kw_only=True):
    """How many timers matched, and how many were changed. A dry run changes none."""

    matched: int
    changed: int
    dry_run: bool


class AttemptView(View, frozen=True, kw_only=True):
    """One attempt, and what was decided because of it."""

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


class CreateNamespace(Message, frozen=True, kw_only=True):
    """Make a namespace. The shard count is fixed from then on: 16, 256, 1024 or 4096 as a guide."""

    name: NamespaceName
    shard_count: ShardCount = 16
    retry_policy: RetryPolicy = RetryPolicy()
    secret: (
        Annotated[str, Meta(max_length=255, description="whsec_ and base64 of 24 to 64 bytes; made for you if absent.")]
        | UnsetType
    ) = UNSET
    host_limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    history_retention_days: Annotated[int, Meta(ge=1, le=90)] = 7


class UpdateNamespace(Message, frozen=True, kw_only=True):
    """Change a namespace; absent fields keep their value. With a new secret, requests carry signatures of both."""

    name: NamespaceName
    retry_policy: RetryPolicy | UnsetType = UNSET
    secret: (
        Annotated[str, Meta(max_length=255, description="The new secret; the newest two stay in use.")] | UnsetType
    ) = UNSET
    host_limit: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType | None = UNSET
    history_retention_days: Annotated[int, Meta(ge=1, le=90)] | UnsetType = UNSET


class NamespaceRef(Message, frozen=True, kw_only=True):
    """Names one namespace."""

    name: NamespaceName


class ListNamespaces(Message, frozen=True, kw_only=True):
    """A page of namespaces, in the order of their names."""

    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class NamespaceView(View, frozen=True, kw_only=True):
    """A namespace. `secret` is the newest signing secret."""

    name: str
    shard_count: int
    first_shard: int
    retry_policy: RetryPolicy
    secret: str
    host_limit: int | None
    history_retention_days: int
    created_at: datetime
    updated_at: datetime


class NamespacePage(View, frozen=True, kw_only=True):
    """A page of namespaces; `nextCursor` is null on the last one."""

    namespaces: tuple[NamespaceView, ...]
    next_cursor: str | None


class ShardView(View, frozen=True, kw_only=True):
    """Who owns a shard."""

    shard_id: int
    namespace: str
    version: int
    owner: str


class ShardsView(View, frozen=True, kw_only=True):
    """All shards, and the instance that answered."""

    instance: str
    shards: tuple[ShardView, ...]


class InstanceView(View, frozen=True, kw_only=True):
    """An instance that is alive. `address` is where the others reach it; empty: they do not."""

    instance: str
    address: str
    started_at: datetime
    lease_expires_at: datetime
    owned_shards: int
    this: bool
    """Whether it is the one that answered."""


class InstancesView(View, frozen=True, kw_only=True):
    """All instances that are alive, and the one that answered."""

    instance: str
    instances: tuple[InstanceView, ...]


class DeletedView(View, frozen=True, kw_only=True):
    """The timer as it was. When its state was `running`, an attempt was in flight and may still arrive."""

    timer: TimerView


_NULL = Raw(b"null")


def view_of(timer: Timer, secrets: Secrets | None, *, listed: bool = False) -> TimerView:
    """`secrets` are hidden, if given; in a list, those of URLs, too."""
    detail = timer.detail
    last = detail.last_outcome
    return TimerView(
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        execute_at=to_instant(detail.execute_at),
        callback_url=secrets.listed_url(detail.callback_url) if listed and secrets else detail.callback_url,
        payload=_NULL if timer.payload is None else Raw(timer.payload),
        headers=secrets.shown(detail.headers) if secrets else detail.headers,
        retry_policy=detail.retry_policy,
        callback_timeout_seconds=detail.callback_timeout_ms / 1000,
        delivery=detail.delivery,
        labels=detail.labels,
        state=timer.state,
        next_attempt_at=None if timer.state in (State.PARKED, State.RUNNING) else to_instant(timer.due_at),
        attempts=timer.attempts,
        generation=timer.generation,
        delivery_id=detail.delivery_id,
        created_at=to_instant(detail.created_at),
        updated_at=to_instant(detail.updated_at),
        last_outcome=None
        if last is None
        else OutcomeView(outcome=last.outcome, at=to_instant(last.at), status=last.status, detail=last.detail),
        hasty_reschedules=detail.hasty,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        generation=attempt.generation,
        delivery_id=attempt.delivery_id,
        scheduled_at=to_instant(attempt.scheduled_at),
        started_at=to_instant(attempt.started_at),
        duration_ms=attempt.duration_ms,
        outcome=attempt.outcome,
        status=attempt.status,
        detail=attempt.detail,
        answer_head=attempt.answer_head,
        next=attempt.next,
        next_at=None if attempt.next_at is None else to_instant(attempt.next_at),
    )


def namespace_view(namespace: Namespace) -> NamespaceView:
    return NamespaceView(
        name=namespace.name,
        shard_count=namespace.shard_count,
        first_shard=namespace.first_shard,
        retry_policy=namespace.retry_policy,
        secret=namespace.secrets[0],
        host_limit=namespace.host_limit,
        history_retention_days=namespace.history_retention_days,
        created_at=to_instant(namespace.created_at),
        updated_at=to_instant(namespace.updated_at),
    )
