"""The ledger as pages of runs, newest first: of one job, or of all jobs together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from mainspring.errors import wrong_field
from mainspring.jobs.ledger import Ledger, LedgerEntry, behind, key_of, launch_id
from mainspring.jobs.ledgers import Ledgers, Place
from mainspring.jobs.messages import ListRuns, RunsPage, RunView
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.views import run_view
from mainspring.store import BATCH_LIMIT
from mainspring.wire import cursors
from mainspring.wire.instants import to_ms

PAGES_LIMIT: Final = 100
"""How many pages of the ledger one request looks through at most; its answer may then be short, with a cursor."""
ENTRIES_LIMIT: Final = 20_000
"""The same for entries of all jobs."""
JOBS_LIMIT: Final = 20_000
"""Of how many jobs the runs are listed together."""
_AT_ONCE: Final = 200


class RunReader:
    def __init__(self, *, registry: Registry, ledger: Ledger, rows: RowStore) -> None:
        self._registry = registry
        self._ledger = ledger
        self._rows = rows

    async def page(self, request: ListRuns) -> RunsPage:
        return await self._page_of_all(request) if request.name is UNSET else await self._page_of(request.name, request)

    # --- of one job -----------------------------------------------------------------------------------

    async def _page_of(self, job: str, request: ListRuns) -> RunsPage:
        _, after = ("", "") if request.cursor is UNSET else cursors.read(request.cursor, tuple[str, str])
        if not after and request.until is not UNSET:
            after = behind(to_ms(request.until))
        found: list[RunView] = []
        for _ in range(PAGES_LIMIT):
            if len(found) == request.limit:
                break
            views, after = await self._part(job, request, after=after, limit=request.limit - len(found))
            found += views
            if not after:
                break
        return RunsPage(runs=tuple(found), next_cursor=cursors.write((job, after)) if after else None)

    async def _part(self, job: str, request: ListRuns, *, after: str, limit: int) -> tuple[list[RunView], str]:
        """Matching runs of the next page, and the key behind which there is more, if there is."""
        entries, following = await self._ledger.page(job, after=after, limit=BATCH_LIMIT)
        views: list[RunView] = []
        for view, entry in zip(await self._views([(job, entry) for entry in entries]), entries, strict=True):
            if _is_before(entry, request):
                return views, ""
            if len(views) == limit:
                return views, after
            after = key_of(entry.stamp)
            if _matches(view, request):
                views.append(view)
        return views, following

    # --- of all jobs ----------------------------------------------------------------------------------

    async def _page_of_all(self, request: ListRuns) -> RunsPage:
        place = None if request.cursor is UNSET else Place(*cursors.read(request.cursor, tuple[str, str, bool])[:2])
        until = None if request.until is UNSET else to_ms(request.until)
        ledgers = Ledgers(self._ledger, await self._names(), after=place, until=until)
        await ledgers.open()
        found: list[RunView] = []
        looked_at = 0
        while looked_at < ENTRIES_LIMIT:
            some = await self._some(ledgers, request)
            if not some:
                return RunsPage(runs=tuple(found), next_cursor=None)
            for view, (job, entry) in zip(await self._views(some), some, strict=True):
                if len(found) == request.limit:
                    return _cut_off(found, place)
                place = Place(key_of(entry.stamp), job)
                if _matches(view, request):
                    found.append(view)
            looked_at += len(some)
        return _cut_off(found, place)

    async def _names(self) -> list[str]:
        names: list[str] = []
        after = ""
        while True:
            page, after = await self._registry.page(after=after, limit=BATCH_LIMIT)
            names += [job.name for job in page]
            if len(names) > JOBS_LIMIT:
                detail = f"Expected the name of a job: the runs of more than {JOBS_LIMIT} are not listed together"
                raise wrong_field("/name", detail)
            if not after:
                return names

    async def _some(self, ledgers: Ledgers, request: ListRuns) -> list[tuple[str, LedgerEntry]]:
        some: list[tuple[str, LedgerEntry]] = []
        while len(some) < _AT_ONCE and (found := await ledgers.next()) is not None:
            job, entry = found
            if _is_before(entry, request):
                ledgers.leave(job)
            else:
                some.append(found)
        return some

    # --- both -----------------------------------------------------------------------------------------

    async def _views(self, entries: Sequence[tuple[str, LedgerEntry]]) -> list[RunView]:
        going = [launch_id(job, entry.stamp) for job, entry in entries if not entry.run.is_final]
        rows = await self._rows.runs(going) if going else []
        by_id = dict(zip(going, rows, strict=True))
        return [run_view(job, entry, by_id.get(launch_id(job, entry.stamp))) for job, entry in entries]


def _cut_off(found: Sequence[RunView], place: Place | None) -> RunsPage:
    """The third part tells the cursor from one of a single job."""
    return RunsPage(runs=tuple(found), next_cursor=None if place is None else cursors.write((*place, True)))


def _is_before(entry: LedgerEntry, request: ListRuns) -> bool:
    """Whether an entry, and so all behind it, is of instants before those that are asked for."""
    last = entry.run.instant if entry.run.until is None else entry.run.until
    return request.since is not UNSET and last < to_ms(request.since)


def _matches(view: RunView, request: ListRuns) -> bool:
    return (not request.states or view.state in request.states) and (not request.kinds or view.kind in request.kinds)
