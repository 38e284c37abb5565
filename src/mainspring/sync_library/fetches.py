# Generated from fetches/program.py by tools/generate_sync.py; change that one.
"""`Fetches` of `mainspring.fetches.program`, for code that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Unpack

from mainspring.fetches.arguments import FetchesWhere, FetchFields
from mainspring.fetches.messages import FetchPage, FetchResult, FetchSummary, FetchView, RedeliveryView, StatsView
from mainspring.sync_library.engine_thread import EngineThread


class SyncFetches:
    """`ms.fetches`."""

    def __init__(self, engine: Callable[[], EngineThread]) -> None:
        self._engine = engine

    def run(self, url: str, **fields: Unpack[FetchFields]) -> FetchResult:
        """Request a call and wait for its result, which arrives at the latest ten seconds after the timeout, counted
        from the start of the call. The call starts within the same time, or the fetch fails with nothing sent.

        With a `req_id` that was used before, even by an earlier run of this program, nothing is sent: the recorded
        result, or that of the call under way, is returned; for another method, URL, body or `result_url`, `ReqIdReuse`
        is raised. Cancelling the wait does not cancel the fetch.
        """
        return self._engine().run(lambda ms: ms.fetches.run(url, **fields))

    def create(self, url: str, **fields: Unpack[FetchFields]) -> FetchView:
        """Request a call. Returns once it is stored; a `req_id` that exists returns what is there, or raises
        `ReqIdReuse` if that is another call.
        """
        return self._engine().run(lambda ms: ms.fetches.create(url, **fields))

    def get(self, req_id: str) -> FetchView:
        return self._engine().run(lambda ms: ms.fetches.get(req_id))

    def wait(self, req_id: str, seconds: float) -> FetchView:
        """The fetch once it has ended, or as it is when the time is up."""
        return self._engine().run(lambda ms: ms.fetches.wait(req_id, seconds))

    def cancel(self, req_id: str) -> FetchView:
        """Cancel a fetch. One that has ended stays as it is; a call under way continues."""
        return self._engine().run(lambda ms: ms.fetches.cancel(req_id))

    def redeliver(
        self, req_id: str | None = None, *, all: bool = False, dry_run: bool = False, **where: Unpack[FetchesWhere]
    ) -> RedeliveryView:
        """Have the result of one fetch brought to its origin now, or those of all that match and were given up; with
        `deliveries=("waiting", "failed")` also those that wait for their next offer.
        """
        return self._engine().run(lambda ms: ms.fetches.redeliver(req_id, all=all, dry_run=dry_run, **where))

    def list(self, *, limit: int = 100, cursor: str | None = None, **where: Unpack[FetchesWhere]) -> FetchPage:
        """One page of fetches: those still under way first, then those that have ended.

        A short page is not necessarily the last one.
        """
        return self._engine().run(lambda ms: ms.fetches.list(limit=limit, cursor=cursor, **where))

    def iterate(self, *, page_size: int = 100, **where: Unpack[FetchesWhere]) -> Iterator[FetchSummary]:
        """All matching fetches, page by page."""
        return self._engine().iterate(lambda ms: ms.fetches.iterate(page_size=page_size, **where))

    def stats(self) -> StatsView:
        return self._engine().run(lambda ms: ms.fetches.stats())
