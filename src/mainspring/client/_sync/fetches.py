# Generated from _async/fetches.py by tools/generate_sync.py; change that one.
"""The fetches of a server. Each method but `wait` is one request; its docstring says whether it is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Unpack

from mainspring.client._sync.connection import Connection
from mainspring.client.reply import Repeat
from mainspring.fetches.arguments import LONGEST_WAIT_SECONDS, FetchesWhere, FetchFields, create_request
from mainspring.fetches.messages import (
    FetchPage,
    FetchRef,
    FetchStats,
    FetchSummary,
    FetchView,
    ListFetches,
    RedeliverFetches,
    RedeliveryView,
    StatsView,
)
from mainspring.wire.arguments import check_number, given, request

FIRST_LOOK_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 1.0


class Fetches:
    """`client.fetches`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, url: str, **fields: Unpack[FetchFields]) -> FetchView:
        """Request a call. A `req_id` that exists returns what is there and makes no second call; for another method,
        URL, body or `result_url`, it raises `ReqIdReuse`.

        Repeated: all attempts use the same reqId, generated here if none is given.
        """
        asked = create_request(url, **fields)
        return self._connection.post("/v1/fetches/create", asked, FetchView, repeat=Repeat.HARMLESS)

    def get(self, req_id: str) -> FetchView:
        """The fetch, with its result if it has ended; NotFound if it does not exist. A read, so it is repeated."""
        asked = request(FetchRef, {"req_id": req_id})
        return self._connection.post("/v1/fetches/get", asked, FetchView, repeat=Repeat.READ)

    def wait(self, req_id: str, seconds: float) -> FetchView:
        """The fetch once it has ended, or as it is when the time is up. Polls the server."""
        check_number("seconds", seconds, least=0, most=LONGEST_WAIT_SECONDS)
        deadline = self._connection.monotonic() + seconds
        pause = FIRST_LOOK_SECONDS
        while True:
            fetch = self.get(req_id)
            left = deadline - self._connection.monotonic()
            if fetch.result is not None or left <= 0:
                return fetch
            self._connection.pause(min(pause, left))
            pause = min(pause * 1.5, LOOK_SECONDS)

    def list(self, *, limit: int = 100, cursor: str | None = None, **where: Unpack[FetchesWhere]) -> FetchPage:
        """One page of fetches: those still under way first, then those that have ended.

        A short page is not necessarily the last one. A read, so it is repeated.
        """
        asked = request(ListFetches, {**where, "limit": limit, "cursor": given(cursor)})
        return self._connection.post("/v1/fetches/list", asked, FetchPage, repeat=Repeat.READ)

    def iterate(self, *, page_size: int = 100, **where: Unpack[FetchesWhere]) -> Iterator[FetchSummary]:
        """All matching fetches, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(limit=page_size, cursor=cursor, **where)
            yield from page.fetches
            cursor = page.next_cursor
            if cursor is None:
                return

    def cancel(self, req_id: str) -> FetchView:
        """Cancel a fetch. One that has ended stays as it is; a call under way continues. Repeated."""
        asked = request(FetchRef, {"req_id": req_id})
        return self._connection.post("/v1/fetches/cancel", asked, FetchView, repeat=Repeat.HARMLESS)

    def redeliver(
        self, req_id: str | None = None, *, all: bool = False, dry_run: bool = False, **where: Unpack[FetchesWhere]
    ) -> RedeliveryView:
        """Have the result of one fetch brought to its origin now, or those of all that match and were given up; with
        `deliveries=("waiting", "failed")` also those that wait for their next offer. Repeated: it does no more then.
        """
        said = {**where, "req_id": given(req_id), "all": all, "dry_run": dry_run}
        asked = request(RedeliverFetches, said)
        return self._connection.post("/v1/fetches/redeliver", asked, RedeliveryView, repeat=Repeat.HARMLESS)

    def stats(self) -> StatsView:
        """Fetches by state, how long they took, and which executors make the calls. A read, so it is repeated."""
        return self._connection.post("/v1/fetches/stats", FetchStats(), StatsView, repeat=Repeat.READ)
