"""The fetch routes."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import UNSET, Raw

from mainspring.api.routes import Route, always, operation
from mainspring.fetches.messages import (
    CreateFetch,
    FetchPage,
    FetchRef,
    FetchStats,
    FetchView,
    ListFetches,
    OutboundRequest,
    RedeliverFetches,
    RedeliveryView,
    StatsView,
)


class Fetches(Protocol):
    """What the fetch service does."""

    async def create(self, request: CreateFetch, /) -> FetchView: ...
    async def get(self, request: FetchRef, /) -> FetchView: ...
    async def list(self, request: ListFetches, /) -> FetchPage: ...
    async def cancel(self, request: FetchRef, /) -> FetchView: ...
    async def redeliver(self, request: RedeliverFetches, /) -> RedeliveryView: ...
    async def stats(self, request: FetchStats, /) -> StatsView: ...


_FETCH: Final = FetchRef(req_id="payment-42")
_CREATE: Final = CreateFetch(
    req_id=_FETCH.req_id,
    request=OutboundRequest(
        url="https://example.com/payments",
        method="POST",
        headers={"Content-Type": "application/json"},
        body='{"amount":1200}',
    ),
    timeout_seconds=20.0,
    result_url="https://example.com/hooks/payment-result",
    context=Raw(b'{"order":42}'),
    labels={"tenant": "acme"},
)


def fetch_routes(fetches: Fetches) -> tuple[Route, ...]:
    """The reqId of a fetch says what is a repeat, as long as the fetch is kept; for whoever gives none, a key does."""
    return (
        operation(
            "/v1/fetches/create",
            "Request a call that is made at most once",
            fetches.create,
            example=_CREATE,
            answer=FetchView,
            takes_key=True,
            safe_to_repeat=False,
            can_be_remade=lambda request: request.req_id is not UNSET,
            problems=("req_id_reuse",),
        ),
        operation(
            "/v1/fetches/get",
            "Read a fetch and its result",
            fetches.get,
            example=_FETCH,
            answer=FetchView,
            can_be_remade=always,
        ),
        operation(
            "/v1/fetches/list",
            "List fetches",
            fetches.list,
            example=ListFetches(may_have_acted=True, labels={"tenant": "acme"}, limit=50),
            answer=FetchPage,
            is_page=True,
        ),
        operation(
            "/v1/fetches/cancel",
            "Cancel a fetch",
            fetches.cancel,
            example=_FETCH,
            answer=FetchView,
            can_be_remade=always,
        ),
        operation(
            "/v1/fetches/redeliver",
            "Bring results to their origins again",
            fetches.redeliver,
            example=RedeliverFetches(labels={"tenant": "acme"}, dry_run=True),
            answer=RedeliveryView,
        ),
        operation(
            "/v1/fetches/stats",
            "Count fetches by state and see how long they take",
            fetches.stats,
            example=FetchStats(),
            answer=StatsView,
        ),
    )
