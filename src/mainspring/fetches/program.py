"""The fetches of a program that embeds Mainspring: the service, called with Python arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Unpack

from msgspec.structs import replace

from mainspring.fetches.arguments import LONGEST_WAIT_SECONDS, FetchesWhere, FetchFields, create_request
from mainspring.fetches.messages import (
    FetchPage,
    FetchRef,
    FetchResult,
    FetchStats,
    FetchSummary,
    FetchView,
    ListFetches,
    RedeliverFetches,
    RedeliveryView,
    StatsView,
)
from mainspring.fetches.service import FetchService
from mainspring.wire.arguments import check_number, given, request
from mainspring.wire.cursors import through_pages

LOOK_SECONDS: Final = 60.0


class Fetches:
    """`ms.fetches`; and `run` is `ms.fetch`."""

    def __init__(self, service: FetchService) -> None:
        self._service = service

    async def run(self, url: str, **fields: Unpack[FetchFields]) -> FetchResult:
        """Request a call and wait for its result, which arrives at the latest ten seconds after the timeout, counted
        from the start of the call. The call starts within the same time, or the fetch fails with nothing sent.

        With a `req_id` that was used before, even by an earlier run of this program, nothing is sent: the recorded
        result, or that of the call under way, is returned; for another method, URL, body or `result_url`, `ReqIdReuse`
        is raised. Cancelling the wait does not cancel the fetch.
        """
        fetch = await self.create(url, **fields)
        while fetch.result is None:
            fetch = await self._service.wait(fetch.req_id, LOOK_SECONDS)
        return fetch.result

    async def create(self, url: str, **fields: Unpack[FetchFields]) -> FetchView:
        """Request a call. Returns once it is stored; a `req_id` that exists returns what is there, or raises
        `ReqIdReuse` if that is another call."""
        return await self._service.create(create_request(url, **fields))

    async def get(self, req_id: str) -> FetchView:
        return await self._service.get(request(FetchRef, {"req_id": req_id}))

    async def wait(self, req_id: str, seconds: float) -> FetchView:
        """The fetch once it has ended, or as it is when the time is up."""
        check_number("seconds", seconds, least=0, most=LONGEST_WAIT_SECONDS)
        asked = request(FetchRef, {"req_id": req_id})
        return await self._service.wait(asked.req_id, seconds)

    async def cancel(self, req_id: str) -> FetchView:
        """Cancel a fetch. One that has ended stays as it is; a call under way continues."""
        return await self._service.cancel(request(FetchRef, {"req_id": req_id}))

    async def redeliver(
        self, req_id: str | None = None, *, all: bool = False, dry_run: bool = False, **where: Unpack[FetchesWhere]
    ) -> RedeliveryView:
        """Have the result of one fetch brought to its origin now, or those of all that match and were given up; with
        `deliveries=("waiting", "failed")` also those that wait for their next offer."""
        said = {**where, "req_id": given(req_id), "all": all, "dry_run": dry_run}
        return await self._service.redeliver(request(RedeliverFetches, said))

    async def list(self, *, limit: int = 100, cursor: str | None = None, **where: Unpack[FetchesWhere]) -> FetchPage:
        """One page of fetches: those still under way first, then those that have ended.

        A short page is not necessarily the last one.
        """
        return await self._service.list(request(ListFetches, {**where, "limit": limit, "cursor": given(cursor)}))

    def iterate(self, *, page_size: int = 100, **where: Unpack[FetchesWhere]) -> AsyncIterator[FetchSummary]:
        """All matching fetches, page by page."""
        asked = request(ListFetches, {**where, "limit": page_size})
        return through_pages(lambda at: self._service.list(replace(asked, cursor=at)), lambda page: page.fetches)

    async def stats(self) -> StatsView:
        return await self._service.stats(FetchStats())
