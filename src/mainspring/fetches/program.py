"""The fetches of a program that embeds Mainspring: the service, called with Python arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Unpack

from msgspec.structs import replace

from mainspring.fetches.arguments import FetchFields, create_request
from mainspring.fetches.messages import (
    FetchRef,
    FetchResult,
    FetchState,
    FetchStats,
    FetchSummary,
    FetchView,
    ListFetches,
    StatsView,
)
from mainspring.fetches.service import FetchService
from mainspring.wire.arguments import given, request
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
        result, or that of the call under way, is returned. Cancelling the wait does not cancel the fetch.
        """
        fetch = await self.create(url, **fields)
        while fetch.result is None:
            fetch = await self._service.wait(fetch.req_id, LOOK_SECONDS)
        return fetch.result

    async def create(self, url: str, **fields: Unpack[FetchFields]) -> FetchView:
        """Request a call. Returns once it is stored; a `req_id` that exists returns what is there."""
        return await self._service.create(create_request(url, **fields))

    async def get(self, req_id: str) -> FetchView:
        return await self._service.get(request(FetchRef, {"req_id": req_id}))

    async def cancel(self, req_id: str) -> FetchView:
        """Cancel a fetch. One that has ended stays as it is; a call under way continues."""
        return await self._service.cancel(request(FetchRef, {"req_id": req_id}))

    def list(
        self, *, states: Sequence[FetchState] = (), labels: Mapping[str, str] | None = None
    ) -> AsyncIterator[FetchSummary]:
        """All matching fetches: those still under way first, then those that have ended."""
        asked = request(ListFetches, {"states": states, "labels": given(labels)})
        return through_pages(lambda at: self._service.list(replace(asked, cursor=at)), lambda page: page.fetches)

    async def stats(self) -> StatsView:
        return await self._service.stats(FetchStats())
