"""Fetches on the wire: requests, answers, and the views of stored values.

Like those of timers: camelCase, unknown fields refused, instants written as RFC 3339 in UTC.
`FetchResult` is what an origin receives and what `FetchView.result` shows: the same type everywhere.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from mainspring.fetches.errors import fetch_error
from mainspring.text import POOL, REQUEST_ID
from mainspring.wire.instants import Instant
from mainspring.wire.message import CallbackUrl, Cursor, Headers, Labels, Message, PageSize, View

RequestId = Annotated[
    str,
    Meta(min_length=1, max_length=128, pattern=REQUEST_ID, description="Chosen by the origin."),
]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
FetchTimeout = Annotated[float, Meta(ge=0.1, le=86_400)]
FetchState = Literal["pending", "running", "succeeded", "failed", "unknown", "cancelled"]
"""The last four are final. `succeeded` means that there is a response, whatever its status."""
ErrorKind = Literal["network", "timeout", "unreadable", "watchdog", "refused", "overloaded", "cancelled"]
DeliveryState = Literal["none", "waiting", "delivered", "failed"]
Undelivered = Literal["waiting", "failed"]
PoolName = Annotated[str, Meta(min_length=1, max_length=63, pattern=POOL)]


class OutboundRequest(Message, frozen=True, kw_only=True):
    """The call to be made. At most one of body (text) and bodyBase64."""

    url: CallbackUrl
    method: Method = "GET"
    headers: Headers = {}
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    max_redirects: Annotated[
        int, Meta(ge=0, le=10, description="Redirects to follow, for GET and HEAD only. 0: a redirect is the response.")
    ] = 0


class CreateFetch(Message, frozen=True, kw_only=True):
    """Request a call. A second create with the same reqId returns the first fetch and makes no second call; with
    another method, URL, body or resultUrl it is refused."""

    request: OutboundRequest
    timeout_seconds: FetchTimeout = 30.0
    result_url: CallbackUrl | None = None
    context: Annotated[Raw | UnsetType, Meta(description="Any JSON; returned with the result.")] = UNSET
    req_id: RequestId | UnsetType = UNSET
    executor: Annotated[PoolName | None, Meta(description="A pool of executors; null: the server itself.")] = None
    delivery_seconds: Annotated[
        float, Meta(ge=1, le=2_592_000, description="How long delivery to the resultUrl is attempted.")
    ] = 86_400.0
    labels: Labels = {}


class FetchRef(Message, frozen=True, kw_only=True):
    """Names one fetch."""

    req_id: RequestId


class FetchFilter(Message, frozen=True, kw_only=True):
    """Which fetches; all conditions must hold."""

    states: Annotated[tuple[FetchState, ...], Meta(max_length=6)] = ()
    may_have_acted: Annotated[
        bool,
        Meta(
            description="Only those without a response whose target may have acted: `unknown`, and `cancelled` while "
            "the call was under way. They need a person to look at them."
        ),
    ] = False
    deliveries: Annotated[
        tuple[Undelivered, ...],
        Meta(max_length=2, description="Only those whose result is on its way to its origin, or did not reach it."),
    ] = ()
    labels: Labels = {}
    since: Annotated[Instant | UnsetType, Meta(description="Created at or after this instant.")] = UNSET
    until: Annotated[Instant | UnsetType, Meta(description="Created before this instant.")] = UNSET


class ListFetches(FetchFilter, frozen=True, kw_only=True):
    """A page of fetches, newest change last. `mayHaveActed: true` gives those that need a person to look at them."""

    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class RedeliverFetches(FetchFilter, frozen=True, kw_only=True):
    """Bring results to their origins now: that of one fetch, or of all that match and did not reach theirs.

    One that was given up gets its whole `deliverySeconds` again. Without reqId and without any condition, `all` must be
    true.
    """

    req_id: Annotated[RequestId | UnsetType, Meta(description="One fetch; then there are no conditions.")] = UNSET
    deliveries: Annotated[
        tuple[Undelivered, ...],
        Meta(
            min_length=1,
            max_length=2,
            description="Those that were given up, or also those that wait for their next offer.",
        ),
    ] = ("failed",)
    all: bool = False
    dry_run: bool = False


class FetchStats(Message, frozen=True, kw_only=True):
    """How the fetches are doing."""


class ResponseView(View, frozen=True, kw_only=True):
    """A response. `body` when its bytes are UTF-8, else `bodyBase64`."""

    status: int
    headers: dict[str, str]
    body: str | None
    body_base64: str | None
    truncated: Annotated[
        bool,
        Meta(
            description="The body is not the whole one: it was longer, there was no room for it, or `bodyProblem` says "
            "what became of it."
        ),
    ]
    url: str
    redirected: bool
    set_cookies: Annotated[
        tuple[str, ...], Meta(description="Each Set-Cookie on its own; `headers` joins repeated headers with commas.")
    ] = ()
    body_problem: Annotated[
        str,
        Meta(
            description="Why the body broke off or could not be read, if it was; then it is here as far as it came, as "
            "it came."
        ),
    ] = ""

    @property
    def content(self) -> bytes:
        """The body as it arrived."""
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64)
        return (self.body or "").encode()

    def json(self) -> object:
        """The body, read as JSON. Raises ValueError if it is not JSON."""
        value: object = msgspec.json.decode(self.content)
        return value


class ErrorView(View, frozen=True, kw_only=True):
    """Why there is no response. `definite`: the target has certainly not acted on it."""

    kind: ErrorKind
    message: str
    definite: bool


class FetchResult(View, frozen=True, kw_only=True):
    """What became of a fetch: a response, or an error. It is POSTed to the resultUrl, with the context."""

    req_id: str
    state: Literal["succeeded", "failed", "unknown", "cancelled"]
    response: ResponseView | None
    error: ErrorView | None
    context_json: Raw = field(name="context")
    started_at: datetime | None
    finished_at: datetime
    duration_ms: int

    @property
    def context(self) -> Any:
        """What was given with the request, as a Python value."""
        return msgspec.json.decode(self.context_json)

    def raise_for_error(self) -> ResponseView:
        """Return the response, whatever its status, or raise the `FetchError` that says why there is none."""
        if self.response is not None:
            return self.response
        error = self.error
        if error is None:
            raise fetch_error("", "", definite=False, req_id=self.req_id)
        raise fetch_error(error.kind, error.message, definite=error.definite, req_id=self.req_id)


class DeliveryView(View, frozen=True, kw_only=True):
    """The delivery of the result to its origin."""

    state: DeliveryState
    attempts: int
    last_status: int | None
    detail: str
    delivered_at: datetime | None


class FetchView(View, frozen=True, kw_only=True):
    """A fetch. A `lateResult` arrived after the one that counts."""

    req_id: str
    state: FetchState
    method: str
    url: str
    timeout_seconds: float
    result_url: str | None
    executor: str
    labels: dict[str, str]
    context_json: Raw = field(name="context")
    created_at: datetime
    started_at: datetime | None
    watchdog_at: datetime | None
    result: FetchResult | None
    late_result: FetchResult | None
    delivery: DeliveryView

    @property
    def context(self) -> Any:
        """What was given with the request, as a Python value."""
        return msgspec.json.decode(self.context_json)


class FetchSummary(View, frozen=True, kw_only=True):
    """A fetch in a list; `get` returns the rest."""

    req_id: str
    state: FetchState
    method: str
    url: str
    labels: dict[str, str]
    created_at: datetime
    detail: str
    delivery: Annotated[
        DeliveryState | None,
        Meta(description="Of its result; null for one that ended under an earlier version, where `get` tells."),
    ] = None


class FetchPage(View, frozen=True, kw_only=True):
    """A page of fetches; `nextCursor` is null on the last one. Others may be short, or empty: if many were looked
    through in vain."""

    fetches: tuple[FetchSummary, ...]
    next_cursor: str | None


class RedeliveryView(View, frozen=True, kw_only=True):
    """How many results matched, and how many are now being brought to their origins. A dry run changes none."""

    matched: int
    changed: int
    dry_run: bool


class ExecutorView(View, frozen=True, kw_only=True):
    """An executor that is alive."""

    executor: str
    pool: str
    address: str
    in_flight: int
    limit: int


class StatsView(View, frozen=True, kw_only=True):
    """Stored fetches by state, and how long those took that ended recently on this instance."""

    pending: int
    running: int
    succeeded: int
    failed: int
    unknown: int
    cancelled: int
    counts_are_minimum: bool
    p50_ms: float | None
    p99_ms: float | None
    executors: tuple[ExecutorView, ...]
