"""The jobs of a program that has an engine of its own: `ms.jobs`, and functions on a calendar.

The registry holds what `@ms.job` declares as soon as the block is entered or, for a function declared inside it,
before any method of `ms.jobs` returns. A job whose function no longer exists in the program stays, and its runs fail
for that reason: delete it. A pause is an operator's decision and is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.jobs.arguments import (
    FunctionFields,
    JobFields,
    JobsWhere,
    RunsWhere,
    create_request,
    update_request,
)
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.difference import CONTENT, content, differences
from mainspring.jobs.handlers import DueJob, JobHandler
from mainspring.jobs.messages import (
    BackfillJob,
    BackfillView,
    CreateJob,
    DeletedJobView,
    JobPage,
    JobRef,
    JobView,
    ListJobs,
    ListRuns,
    PauseJob,
    PreviewJob,
    PreviewView,
    RerunJob,
    ResumeJob,
    RunsPage,
    RunView,
    TriggerJob,
)
from mainspring.jobs.record import Terms, calendar_of
from mainspring.jobs.service import JobService
from mainspring.timers.handlers import HANDLER_SCHEME, awaited
from mainspring.wire.arguments import given, json_of, request
from mainspring.wire.cursors import through_pages

TRIES: Final = 5
"""How often a declaration is rewritten when somebody else has changed the job at the same moment."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]
F = TypeVar("F", bound=Callable[[DueJob], object])


class Jobs:
    """The jobs of this program and of all others on its registry."""

    def __init__(self, service: JobService, handlers: dict[str, JobHandler], spawn: Spawn) -> None:
        """`spawn` starts a task that ends with the block."""
        self._service = service
        self._handlers = handlers
        self._spawn = spawn
        self._is_open = False
        self._waiting: dict[str, CreateJob] = {}
        """Declared, but not in the registry yet."""
        self._writing = asyncio.Lock()

    # --- functions on a calendar ----------------------------------------------------------------------

    def declare(self, function: F, schedule: str, *, name: str | None, **fields: Unpack[FunctionFields]) -> F:
        """Run a function on a calendar; see `Mainspring.job`. A mistake in the calendar is raised here."""
        handler = awaited(function)
        name = getattr(function, "__name__", "") if name is None else name
        declared = create_request(name, schedule, url=f"{HANDLER_SCHEME}{name}", **fields)
        calendar_of(name, Terms(declared.schedule, declared.timezone, declared.seconds, declared.dst))
        if name in self._handlers:
            raise InvalidInput(f"Job {name!r} already has a function")
        self._handlers[name] = handler
        self._waiting[name] = declared
        if self._is_open:
            self._spawn(self._write())
        return function

    async def open(self) -> None:
        """Write what was declared; later declarations are written at once."""
        await self._write()
        self._is_open = True

    async def _write(self) -> None:
        async with self._writing:
            while self._waiting:
                name, wanted = next(iter(self._waiting.items()))
                await self._put(wanted)
                del self._waiting[name]

    async def _put(self, wanted: CreateJob) -> None:
        """Create the job, or change what is not as wanted; nothing is written for one that is."""
        for tries in range(1, TRIES + 1):
            try:
                await self._put_once(wanted)
                break
            except Conflict:
                if tries == TRIES:
                    raise

    async def _put_once(self, wanted: CreateJob) -> None:
        try:
            present = await self._service.get(JobRef(name=wanted.name))
        except NotFound:
            await self._service.create(wanted)
            return
        is_broken = present.state == "broken"  # then nobody knows what it holds: everything is written
        fields: Collection[str] = CONTENT if is_broken else differences(wanted, present)
        if fields:
            generation = UNSET if is_broken else present.generation
            await self._service.update(
                update_request(
                    wanted.name, if_generation=generation, schedule=wanted.schedule, **content(wanted, fields)
                )
            )

    # --- what users do with jobs ----------------------------------------------------------------------

    async def create(
        self,
        name: str,
        schedule: str,
        *,
        paused: bool = False,
        note: str = "",
        by: str = "",
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> JobView:
        """Create a job that calls a URL, or only check it; Conflict if the name is taken."""
        await self._write()
        asked = create_request(name, schedule, paused=paused, note=note, by=by, dry_run=dry_run, **fields)
        return await self._service.create(asked)

    async def get(self, name: str) -> JobView:
        await self._write()
        return await self._service.get(_ref(name))

    async def update(
        self,
        name: str,
        *,
        if_generation: int | UnsetType = UNSET,
        schedule: str | UnsetType = UNSET,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> JobView:
        """Change what is given and keep the rest. Conflict if `if_generation` is not the current generation.

        For a declared job, the code wins again at the next start.
        """
        await self._write()
        asked = update_request(name, if_generation=if_generation, schedule=schedule, dry_run=dry_run, **fields)
        return await self._service.update(asked)

    async def delete(self, name: str) -> DeletedJobView:
        await self._write()
        return await self._service.delete(_ref(name))

    async def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[JobsWhere]
    ) -> JobPage:
        """One page of jobs, in the order of their names. `secrets` shows hidden values."""
        await self._write()
        said = {**where, "limit": limit, "cursor": given(cursor), "secrets": secrets}
        return await self._service.list(request(ListJobs, said))

    async def iterate(
        self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[JobsWhere]
    ) -> AsyncIterator[JobView]:
        """All matching jobs, in the order of their names. `secrets` shows hidden values."""
        await self._write()
        asked = request(ListJobs, {**where, "limit": page_size, "secrets": secrets})
        read = through_pages(lambda at: self._service.list(replace(asked, cursor=at)), lambda page: page.jobs)
        async for job in read:
            yield job

    async def pause(self, name: str, *, note: str = "", by: str = "") -> JobView:
        await self._write()
        return await self._service.pause(request(PauseJob, {"name": name, "note": note, "by": by}))

    async def resume(self, name: str, *, by: str = "") -> JobView:
        """Run it again from now on. The instants of the pause are recorded as skipped."""
        await self._write()
        return await self._service.resume(request(ResumeJob, {"name": name, "by": by}))

    async def trigger(self, name: str, *, body: object = None, by: str = "") -> RunView:
        """Run it now, in addition to its calendar. Returns the run, which may not have started yet."""
        await self._write()
        raw = UNSET if body is None else json_of(body, "a body")
        return await self._service.trigger(request(TriggerJob, {"name": name, "body": raw, "by": by}))

    async def preview(
        self,
        name: str | None = None,
        *,
        schedule: str | UnsetType = UNSET,
        timezone: str | UnsetType = UNSET,
        seconds: bool | UnsetType = UNSET,
        dst: Dst | UnsetType = UNSET,
        from_: datetime | None = None,
        count: int = 10,
    ) -> PreviewView:
        """The next instants of a job, or of any schedule."""
        await self._write()
        said = {
            "name": given(name),
            "schedule": schedule,
            "timezone": timezone,
            "seconds": seconds,
            "dst": dst,
            "from_": given(from_),
            "count": count,
        }
        return await self._service.preview(request(PreviewJob, said))

    async def runs(
        self, name: str | None = None, *, limit: int = 100, cursor: str | None = None, **where: Unpack[RunsWhere]
    ) -> RunsPage:
        """One page of the ledger, newest first; without a name, of all jobs, by name."""
        await self._write()
        said = {**where, "name": given(name), "limit": limit, "cursor": given(cursor)}
        return await self._service.runs(request(ListRuns, said))

    async def iterate_runs(
        self, name: str | None = None, *, page_size: int = 100, **where: Unpack[RunsWhere]
    ) -> AsyncIterator[RunView]:
        """What became of each instant, newest first; of one job, or of all jobs."""
        await self._write()
        asked = request(ListRuns, {**where, "name": given(name), "limit": page_size})
        read = through_pages(lambda at: self._service.runs(replace(asked, cursor=at)), lambda page: page.runs)
        async for run in read:
            yield run

    async def backfill(
        self, name: str, *, since: datetime, until: datetime, dry_run: bool = False, by: str = ""
    ) -> BackfillView:
        """Run the instants from `since` until before `until` that were not run; a dry run counts them."""
        await self._write()
        said = {"name": name, "since": since, "until": until, "dry_run": dry_run, "by": by}
        return await self._service.backfill(request(BackfillJob, said))

    async def rerun(self, launch_id: str, *, by: str = "") -> RunView:
        """Run a run again that failed, was cancelled, or whose outcome is unknown: under its own instant, now.

        Returns the new run, which may not have started yet.
        """
        await self._write()
        return await self._service.rerun(request(RerunJob, {"launch_id": launch_id, "by": by}))


def _ref(name: str) -> JobRef:
    return request(JobRef, {"name": name})
