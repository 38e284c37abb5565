"""A fetch as it is stored: one record, and the functions that lead it from state to state.

    pending ──▶ running ──▶ succeeded │ failed │ unknown      the first final state stays, whoever comes with another
        ├───────────┴─────▶ cancelled
        └─────────────────▶ failed                            nobody has begun the call in time

Whoever writes compares and sets, so each step happens once: whoever has written `running` makes the call, and nobody
else ever does. What comes after the end is kept as a late result.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from mainspring.fetches.call import body_of
from mainspring.fetches.messages import CreateFetch, DeliveryState, FetchState, OutboundRequest
from mainspring.fetches.outcome import Outcome, cut

FETCHES: Final = "fetch"
"""The collection of the records."""
NAMESPACE: Final = "mainspring.fetches"
"""The namespace of the rows."""
FINAL: Final = frozenset({"succeeded", "failed", "unknown", "cancelled"})
WATCHDOG_MS: Final = 10_000
"""How long after its timeout a fetch is given up: one interval between looks, and some slack."""
FIRST_OFFER_MS: Final = 8_000
"""How long an executor offers the result of its call, which it does at once. Others wait a little longer, and look
this often whether it is alive."""
FIRST_OFFER_AIR_MS: Final = 1_000
LAST_OFFER_AIR_MS: Final = 600_000
"""A fetch is kept at least this much longer than its result is offered, so that the last offer is recorded, too."""
SPARE: Final = " " * 2048
"""As long as what is added to a record until its end, not counting a response."""
LATE_KEPT: Final = 3
LATE_BODY_BYTES: Final = 65_536
IN_PROCESS: Final = "in-process"
FINGERPRINT_DIGITS: Final = 16


class ResultReturn(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the result gets to its origin."""

    state: DeliveryState = "none"
    attempts: int = 0
    last_status: int | None = None
    detail: str = ""
    next_at: int = 0
    delivered_at: int | None = None
    since: int | None = None
    """When it was last asked for again: its time counts from then."""
    left: bool = False
    """Whoever was to offer it does not know the origin: a program that does may take it at any time."""


class Fetch(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The whole truth about a fetch. Instants are epoch milliseconds."""

    req_id: str
    request: OutboundRequest
    timeout_ms: int
    created_at: int
    delivery_ms: int
    result_url: str | None = None
    context: Raw = Raw(b"null")
    labels: dict[str, str] = {}
    pool: str | None = None
    """Whose executors make the call; None: the instance that owns the row."""
    state: FetchState = "pending"
    executor: str = ""
    """Who makes the call, once that is decided."""
    mark: str = ""
    """Which of its attempts to begin the call has succeeded."""
    started_at: int | None = None
    watchdog_at: int | None = None
    outcome: Outcome | None = None
    late: tuple[Outcome, ...] = ()
    """What came after the outcome, newest last."""
    delivery: ResultReturn = ResultReturn()
    expires_at: int | None = None
    correlation_id: str = ""
    """That of the request for it: it goes with the result to the origin."""
    fingerprint: str = ""
    """Of the body, which is not kept. Empty: the fetch was requested under an earlier version."""
    spare: str = ""
    """Takes up room until the call is begun: a store with small records refuses at once what would not fit later."""

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def begin_by(self) -> int:
        """When a call that nobody has begun is given up, so that each fetch ends soon after its timeout."""
        return self.created_at + self.timeout_ms + WATCHDOG_MS


_read = msgspec.json.Decoder(Fetch).decode
encode = msgspec.json.Encoder().encode


def new_fetch(request: CreateFetch, *, req_id: str, now: int, correlation_id: str = "") -> Fetch:
    return Fetch(
        req_id=req_id,
        request=request.request,
        timeout_ms=round(request.timeout_seconds * 1000),
        created_at=now,
        delivery_ms=round(request.delivery_seconds * 1000),
        result_url=request.result_url,
        context=Raw(b"null") if request.context is UNSET else request.context,
        labels=request.labels,
        pool=None if request.executor == IN_PROCESS else request.executor,
        correlation_id=correlation_id,
        fingerprint=fingerprint_of(req_id, request.request),
        spare=SPARE,
    )


def fingerprint_of(req_id: str, request: OutboundRequest) -> str:
    """By it two bodies are told apart; short, and of no use for comparing the bodies of different fetches."""
    return hashlib.sha256(req_id.encode() + b"\n" + body_of(request)).hexdigest()[:FINGERPRINT_DIGITS]


def other_request(first: Fetch, repeat: Fetch) -> tuple[str, ...]:
    """Where a repeat asks for something else than the first with its reqId did, as JSON pointers.

    What makes a call another one is its method, URL and body, and where its result goes. Headers do not count: a repeat
    may carry a newer token. A record of an earlier version does not tell.
    """
    if not first.fingerprint:
        return ()
    parts = {
        "/request/method": (first.request.method, repeat.request.method),
        "/request/url": (first.request.url, repeat.request.url),
        "/request/body": (first.fingerprint, repeat.fingerprint),
        "/resultUrl": (first.result_url, repeat.result_url),
    }
    return tuple(pointer for pointer, (before, now) in parts.items() if before != now)


def decode(value: bytes) -> Fetch:
    """What is read raw is a slice of the record, and would keep all of it in memory."""
    fetch = _read(value)
    return replace(fetch, context=fetch.context.copy())


def started(fetch: Fetch, *, executor: str, mark: str, now: int) -> Fetch:
    return replace(
        fetch,
        state="running",
        executor=executor,
        mark=mark,
        started_at=now,
        watchdog_at=now + fetch.timeout_ms + WATCHDOG_MS,
        spare="",
    )


def ended(fetch: Fetch, outcome: Outcome, *, offer_ms: int, retention_ms: int) -> Fetch:
    """The end. The request's headers and body, and the secrets in them, are not kept: nothing is ever sent again.

    `offer_ms`: whoever ends it makes the first offer of the result, so that nobody else need do so for this long.
    """
    delivery = fetch.delivery
    if fetch.result_url is not None:
        wait_ms = offer_ms + FIRST_OFFER_AIR_MS if offer_ms else 0
        delivery = ResultReturn(state="waiting", next_at=outcome.finished_at + wait_ms)
        retention_ms = max(retention_ms, fetch.delivery_ms + LAST_OFFER_AIR_MS)
    return replace(
        fetch,
        state=outcome.state,
        request=bare(fetch.request),
        outcome=outcome,
        delivery=delivery,
        spare="",
        expires_at=outcome.finished_at + retention_ms,
    )


def offered_again(fetch: Fetch, now: int) -> Fetch | None:
    """Somebody wants the result brought to its origin, now: one that was given up is tried anew. None: it is on its
    way, has arrived, or nobody waits for it."""
    delivery = fetch.delivery
    if delivery.state == "waiting" and delivery.next_at > now and delivery.attempts and not delivery.left:
        return replace(fetch, delivery=replace(delivery, next_at=now))  # before that, the first offer is under way
    if delivery.state != "failed":
        return None
    kept_until = max(fetch.expires_at or 0, now + fetch.delivery_ms + LAST_OFFER_AIR_MS)
    return replace(fetch, delivery=ResultReturn(state="waiting", next_at=now, since=now), expires_at=kept_until)


def bare(request: OutboundRequest) -> OutboundRequest:
    """Without what may be large, or secret."""
    return replace(request, headers={}, body=UNSET, body_base64=UNSET)


def with_late(fetch: Fetch, outcome: Outcome) -> Fetch:
    late = cut(outcome, LATE_BODY_BYTES)
    return fetch if late in fetch.late else replace(fetch, late=(*fetch.late, late)[-LATE_KEPT:])


def smaller(fetch: Fetch, body_bytes: int) -> Fetch:
    """For a store that does not take the whole: no late results, and at most this much of the response's body."""
    return replace(fetch, outcome=fetch.outcome and cut(fetch.outcome, body_bytes), late=())
