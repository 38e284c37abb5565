"""Fetches as users see them: from the record to the wire."""

from __future__ import annotations

import base64
from typing import Final

from msgspec import Raw

from mainspring.fetches.messages import (
    DeliveryView,
    ErrorView,
    FetchResult,
    FetchView,
    ResponseView,
)
from mainspring.fetches.outcome import Outcome, Response
from mainspring.fetches.record import IN_PROCESS, Fetch, ResultReturn
from mainspring.wire.instants import to_instant

_NULL: Final = Raw(b"null")


def fetch_view(fetch: Fetch) -> FetchView:
    return FetchView(
        req_id=fetch.req_id,
        state=fetch.state,
        method=fetch.request.method,
        url=fetch.request.url,
        timeout_seconds=fetch.timeout_ms / 1000,
        result_url=fetch.result_url,
        executor=fetch.executor or fetch.pool or IN_PROCESS,
        labels=fetch.labels,
        context_json=fetch.context,
        created_at=to_instant(fetch.created_at),
        started_at=None if fetch.started_at is None else to_instant(fetch.started_at),
        watchdog_at=None if fetch.watchdog_at is None else to_instant(fetch.watchdog_at),
        result=None if fetch.outcome is None else result_of(fetch, fetch.outcome),
        late_result=result_of(fetch, fetch.late[-1]) if fetch.late else None,
        delivery=_delivery_view(fetch.delivery),
    )


def result_of(fetch: Fetch, outcome: Outcome) -> FetchResult:
    failure = outcome.failure
    return FetchResult(
        req_id=fetch.req_id,
        state=outcome.state,
        response=None if outcome.response is None else _response_view(outcome.response),
        error=None
        if failure is None
        else ErrorView(kind=failure.kind, message=failure.message, definite=failure.definite),
        context_json=fetch.context,
        started_at=None if fetch.started_at is None else to_instant(fetch.started_at),
        finished_at=to_instant(outcome.finished_at),
        duration_ms=outcome.duration_ms,
    )


def _response_view(response: Response) -> ResponseView:
    text: str | None
    try:
        text = response.body.decode()
    except UnicodeDecodeError:
        text = None
    return ResponseView(
        status=response.status,
        headers=response.headers,
        body=text,
        body_base64=base64.b64encode(response.body).decode() if text is None else None,
        truncated=response.truncated,
        url=response.url,
        redirected=response.redirected,
        set_cookies=response.set_cookies or _only(response.headers.get("set-cookie")),
        body_problem=response.problem,
    )


def _only(cookie: str | None) -> tuple[str, ...]:
    return () if cookie is None else (cookie,)


def _delivery_view(delivery: ResultReturn) -> DeliveryView:
    return DeliveryView(
        state=delivery.state,
        attempts=delivery.attempts,
        last_status=delivery.last_status,
        detail=delivery.detail,
        delivered_at=None if delivery.delivered_at is None else to_instant(delivery.delivered_at),
    )
