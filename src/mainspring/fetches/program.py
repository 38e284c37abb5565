"""The fetches of a program that has Mainspring inside: the service, asked with Python arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Unpack

from msgspec import UNSET, UnsetType

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

LOOK_SECONDS: Final = 60.0


class Fetches:
    """`ms.fetches`; and `run` is `ms.fetch`."""

    def __init__(self, service: FetchService) -> None:
        self._service = service

    async def run(self, url: str, **fields: Unpack[FetchFields]) -> FetchResult:
        """Ask for a call and wait for its result. There is one ten seconds after the timeout at the latest, counted
        from the moment when the call is begun. It is begun within the same time, or ends as failed with nothing sent.

        With a `req_id` that was asked for before, also by an earlier life of this program, nothing is sent: the answer
        is the result that is recorded, or that of the call under way. Cancelling the wait does not cancel the fetch.
        """
        fetch = await self.create(url, **fields)
        while fetch.result is None:
            fetch = await self._service.wait(fetch.req_id, LOOK_SECONDS)
        return fetch.result

    async def create(self, url: str, **fields: Unpack[FetchFields]) -> FetchView:
        """Ask for a call. Returns once it is stored; a `req_id` that exists answers with what is there."""
        return await self._service.create(create_request(url, **fields))

    async def get(self, req_id: str) -> FetchView:
        return await self._service.get(FetchRef(req_id=req_id))

    async def cancel(self, req_id: str) -> FetchView:
        """Cancel a fetch. One that has ended stays what it was; a call under way goes on."""
        return await self._service.cancel(FetchRef(req_id=req_id))

    async def list(
        self, *, states: Sequence[FetchState] = (), labels: Mapping[str, str] | None = None
    ) -> AsyncIterator[FetchSummary]:
        """All matching fetches: those that wait first, then the ended ones."""
        cursor: str | UnsetType | None = UNSET
        while cursor is not None:
            request = ListFetches(states=tuple(states), labels=dict(labels or {}), cursor=cursor)
            page = await self._service.list(request)
            for fetch in page.fetches:
                yield fetch
            cursor = page.next_cursor

    async def stats(self) -> StatsView:
        return await self._service.stats(FetchStats())
