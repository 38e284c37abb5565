"""The ledger as pages of runs: of one job, or of all jobs by name, newest first within each."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from mainspring.jobs.ledger import Ledger, LedgerEntry, behind, key_of, launch_id
from mainspring.jobs.messages import ListRuns, RunsPage, RunView
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.views import run_view
from mainspring.store import BATCH_LIMIT
from mainspring.wire import cursors
from mainspring.wire.instants import to_ms

PAGES_LIMIT: Final = 100
"""How many pages of the ledger one request looks through at most; its answer may then be short, with a cursor."""


class RunReader:
    def __init__(self, *, registry: Registry, ledger: Ledger, rows: RowStore) -> None:
        self._registry = registry
        self._ledger = ledger
        self._rows = rows

    async def page(self, request: ListRuns) -> RunsPage:
        job, after = ("", "") if request.cursor is UNSET else cursors.read(request.cursor, tuple[str, str])
        if request.name is not UNSET:
            job = request.name
        elif not job:
            job = await self._job_behind("")
        found: list[RunView] = []
        for _ in range(PAGES_LIMIT):
            if not job or len(found) == request.limit:
                break
            views, after = await self._of_job(job, request, after=after, limit=request.limit - len(found))
            found += views
            if not after:
                job = await self._job_behind(job) if request.name is UNSET else ""
        return RunsPage(runs=tuple(found), next_cursor=cursors.write((job, after)) if job else None)

    async def _job_behind(self, name: str) -> str:
        page, _ = await self._registry.page(after=name, limit=1)
        return page[0].name if page else ""

    async def _of_job(self, job: str, request: ListRuns, *, after: str, limit: int) -> tuple[list[RunView], str]:
        """Matching runs of the next page, and the key behind which there is more, if there is."""
        if not after and request.until is not UNSET:
            after = behind(to_ms(request.until))
        since = None if request.since is UNSET else to_ms(request.since)
        entries, following = await self._ledger.page(job, after=after, limit=BATCH_LIMIT)
        views: list[RunView] = []
        for view, entry in zip(await self._views(job, entries), entries, strict=True):
            last = entry.run.instant if entry.run.until is None else entry.run.until
            if since is not None and last < since:
                return views, ""
            if len(views) == limit:
                return views, after
            after = key_of(entry.stamp)
            if (not request.states or view.state in request.states) and (
                not request.kinds or view.kind in request.kinds
            ):
                views.append(view)
        return views, following

    async def _views(self, job: str, entries: list[LedgerEntry]) -> list[RunView]:
        going = [launch_id(job, entry.stamp) for entry in entries if not entry.run.is_final]
        rows = await self._rows.runs(going) if going else []
        by_id = dict(zip(going, rows, strict=True))
        return [run_view(job, entry, by_id.get(launch_id(job, entry.stamp))) for entry in entries]
