"""What users do with jobs: requests in, views out.

Every change is a compare-and-set of the definition; then the clock is told, then the caller. The change is in force as
soon as the definition is written: a run looks at it before it begins. Deleting a job leaves its ledger until it
expires.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Final

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import asdict, replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.secrets import Secrets
from mainspring.errors import Conflict, NotFound, StoreUnavailable, TooLarge, wrong_field
from mainspring.jobs.backfill import Backfiller
from mainspring.jobs.checks import check
from mainspring.jobs.clock_state import ClockState, first_state
from mainspring.jobs.ledger import Ledger, LedgerEntry, planned, split_id, stamp_of
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
    UpdateJob,
)
from mainspring.jobs.record import BrokenJob, Definition, Job, Terms, calendar_of
from mainspring.jobs.registry import Registry
from mainspring.jobs.rerun import Rerunner
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import read_state
from mainspring.jobs.runs import RunReader
from mainspring.jobs.views import instant_view, job_view, run_view, with_standing
from mainspring.model import Record, to_json
from mainspring.store import BATCH_LIMIT, just_before
from mainspring.wire import cursors
from mainspring.wire.checks import CheckUrl, check_change
from mainspring.wire.instants import to_ms

_NO_PART_OF_A_JOB: Final = frozenset({"name", "if_generation", "dry_run"})
SCAN_LIMIT: Final = 100_000
"""How many jobs one filtered list looks through at most."""
PREVIEW_MS: Final = 100 * 366 * 86_400_000
"""How far a preview looks: for 1000 leap days it would have to look through four thousand years."""


class JobService:
    def __init__(
        self,
        *,
        registry: Registry,
        ledger: Ledger,
        rows: RowStore,
        clock: Clock,
        check_url: CheckUrl,
        max_body: int,
        secrets: Secrets,
    ) -> None:
        """`check_url` refuses destinations of new definitions."""
        self._registry = registry
        self._ledger = ledger
        self._rows = rows
        self._clock = clock
        self._check_url = check_url
        self._max_body = max_body
        self._secrets = secrets
        self._runs = RunReader(registry=registry, ledger=ledger, rows=rows)
        self._backfiller = Backfiller(ledger=ledger, rows=rows, clock=clock)
        self._rerunner = Rerunner(ledger=ledger, rows=rows, clock=clock)

    # --- one job --------------------------------------------------------------------------------------

    async def create(self, request: CreateJob) -> JobView:
        now = self._clock.now_ms()
        given = {name: value for name, value in asdict(request).items() if name not in _NO_PART_OF_A_JOB}
        definition = Definition(**given, paused_at=now if request.paused else None, created_at=now, updated_at=now)
        self._check(request.name, definition)
        self._secrets.check(definition.headers)
        self._secrets.check_url(definition.url or "", "/url")
        self._secrets.check_url(definition.route or "", "/route")
        if request.dry_run and await self._registry.get(request.name) is None:
            return await self._unwritten(request.name, definition)
        job = None if request.dry_run else await self._registry.put(request.name, _stored(definition), expect=0)
        if job is None:
            raise Conflict(f"Job {request.name!r} already exists")
        await self._rows.new_clock(request.name, first_state(definition))
        return await self._view(job)

    async def get(self, request: JobRef) -> JobView:
        return await self._view(await self._find(request.name))

    async def update(self, request: UpdateJob) -> JobView:
        check_change(request)
        given = {
            name: value
            for name, value in asdict(request).items()
            if value is not UNSET and name not in _NO_PART_OF_A_JOB
        }

        def change(present: Definition | None) -> Definition:
            if present is None and request.schedule is UNSET:
                raise Conflict(f"Job {request.name!r} is broken: give a schedule to redefine it")
            definition = present or Definition(schedule="", created_at=self._clock.now_ms())
            kept = self._kept(request, definition)
            if request.if_generation is not UNSET and request.if_generation != definition.generation:
                raise Conflict(f"Expected generation {request.if_generation}, got {definition.generation}")
            if given.get("url") is not None and "route" not in given:
                definition = replace(definition, route=None)
            if given.get("route") is not None and "url" not in given:
                definition = replace(definition, url=None)
            changed = replace(definition, **(given | kept))
            self._check(request.name, changed)
            return changed

        return await self._change(request.name, change, dry_run=request.dry_run)

    def _kept(self, request: UpdateJob, stored: Definition) -> dict[str, object]:
        """The fields that may come back hidden, as they are to be stored."""
        kept: dict[str, object] = {}
        if request.headers is not UNSET:
            kept["headers"] = self._secrets.kept_headers(request.headers, stored.headers)
        for name, given, present in (("url", request.url, stored.url), ("route", request.route, stored.route)):
            if isinstance(given, str):
                kept[name] = self._secrets.kept_url(given, present or "", f"/{name}")
        return kept

    async def delete(self, request: JobRef) -> DeletedJobView:
        while True:
            job = await self._find(request.name)
            view = await self._view(job)
            if await self._registry.delete(request.name, expect=job.version):
                await self._stop_clock(request.name)
                return DeletedJobView(job=view)

    async def _stop_clock(self, name: str) -> None:
        """The job is deleted, whatever becomes of its clock: one that is left ends by itself, or is replaced."""

        async def is_wanted() -> bool:
            return await self._registry.get(name) is not None

        try:
            await self._rows.stop_clock(name, is_wanted=is_wanted)
        except StoreUnavailable as error:
            telemetry.debug(
                "the clock of a deleted job was not removed; it will find out on its own", job=name, reason=error.detail
            )

    async def pause(self, request: PauseJob) -> JobView:
        now = self._clock.now_ms()

        def change(present: Definition | None) -> Definition:
            definition = _readable(request.name, present)
            paused_at = definition.paused_at if definition.paused else now
            return replace(definition, paused=True, paused_at=paused_at, note=request.note, by=request.by)

        return await self._change(request.name, change)

    async def resume(self, request: ResumeJob) -> JobView:
        now = self._clock.now_ms()

        def change(present: Definition | None) -> Definition:
            definition = _readable(request.name, present)
            if not definition.paused:
                raise Conflict(f"Job {request.name!r} is not paused")
            return replace(definition, paused=False, resumed_at=now, note="", by=request.by)

        return await self._change(request.name, change)

    async def trigger(self, request: TriggerJob) -> RunView:
        job = await self._understood(request.name)
        self._check_body(request.body)
        now = self._clock.now_ms()
        delivery_id = self._rows.new_delivery_id()
        run = planned(job, now, "manual", previous="", now=now, delivery_id=delivery_id)
        run = replace(run, due_at=now, by=request.by)
        stamp = stamp_of(now, delivery_id[-8:])
        # The row first: a caller without an answer may ask again, but what is answered will be run.
        missing = await self._rows.add_runs(job, [(stamp, run)], body=request.body)
        missing.check()
        if missing.refused:
            raise TooLarge("The run is larger than the database can hold")
        [run] = await self._ledger.enter(job.name, [(stamp, run)])
        return run_view(job.name, LedgerEntry(stamp, run, 1), None)

    async def rerun(self, request: RerunJob) -> RunView:
        try:
            name, stamp = split_id(request.launch_id)
        except ValueError as error:
            detail = f"Expected the launchId of a run, such as report@1793520000000, got {request.launch_id[:100]!r}"
            raise wrong_field("/launchId", detail) from error
        return await self._rerunner.rerun(await self._understood(name), stamp, request)

    async def preview(self, request: PreviewJob) -> PreviewView:
        base = Definition(schedule="")
        name = ""
        if request.name is not UNSET:
            name = request.name
            job = await self._registry.get(name) if request.schedule is not UNSET else await self._find(name)
            base = base if job is None else _readable(name, job.definition)
        elif request.schedule is UNSET:
            detail = "Expected a name or a schedule, got neither"
            raise wrong_field("/schedule", detail)
        terms = Terms(
            base.schedule if request.schedule is UNSET else request.schedule,
            base.timezone if request.timezone is UNSET else request.timezone,
            base.seconds if request.seconds is UNSET else request.seconds,
            base.dst if request.dst is UNSET else request.dst,
        )
        calendar = calendar_of(name, terms)
        after = self._clock.now_ms() if request.from_ is UNSET else to_ms(request.from_)
        after = max(after, (base.starts_at or 0) - 1)
        until = after + PREVIEW_MS if base.ends_at is None else min(base.ends_at, after + PREVIEW_MS)
        instants = calendar.between(after, until, limit=request.count)
        return PreviewView(
            schedule=terms.schedule,
            timezone=terms.timezone,
            instants=tuple(instant_view(calendar, instant) for instant in instants),
        )

    # --- many -----------------------------------------------------------------------------------------

    async def list(self, request: ListJobs) -> JobPage:
        prefix = request.name_prefix
        after = "" if request.cursor is UNSET else cursors.read(request.cursor, str)
        after = max(after, just_before(prefix))
        size = BATCH_LIMIT if request.labels or request.states else request.limit + 1
        secrets = None if request.secrets else self._secrets
        found: MutableSequence[JobView] = []
        for _ in range(SCAN_LIMIT // BATCH_LIMIT):
            page, after = await self._registry.page(after=after, limit=size)
            within = [job for job in page if job.name.startswith(prefix)]
            found += [view for view in await self._views(within, secrets, listed=True) if _matches(view, request)]
            if after > prefix and not after.startswith(prefix):
                after = ""
            is_large = len(page) < size  # though there are more behind it
            if not after or len(found) > request.limit or (found and is_large):
                break
        if len(found) > request.limit:
            after = found[request.limit - 1].name
        shown = await self._with_last_runs(found[: request.limit])
        return JobPage(jobs=tuple(shown), next_cursor=cursors.write(after) if after else None)

    async def runs(self, request: ListRuns) -> RunsPage:
        return await self._runs.page(request)

    async def backfill(self, request: BackfillJob) -> BackfillView:
        return await self._backfiller.backfill(await self._understood(request.name), request)

    # --- what they share ------------------------------------------------------------------------------

    def _check(self, name: str, definition: Definition) -> None:
        check(name, definition, self._registry.routing, check_url=self._check_url)
        self._check_body(definition.body)

    def _check_body(self, body: Raw | UnsetType) -> None:
        if body is not UNSET and len(bytes(body)) > self._max_body:
            detail = f"Expected at most {self._max_body} bytes, got more"
            raise wrong_field("/body", detail)

    async def _find(self, name: str) -> Job | BrokenJob:
        job = await self._registry.get(name)
        if job is None:
            raise NotFound(f"Job {name!r} does not exist")
        return job

    async def _understood(self, name: str) -> Job:
        """For what only a job that is not broken can do."""
        job = await self._find(name)
        if isinstance(job, BrokenJob):
            raise Conflict(f"Job {name!r} is broken: {job.problem}")
        return job

    async def _change(
        self, name: str, change: Callable[[Definition | None], Definition], *, dry_run: bool = False
    ) -> JobView:
        while True:
            present = await self._find(name)
            changed = change(present.definition)
            now = max(self._clock.now_ms(), changed.updated_at + 1)
            changed = replace(changed, generation=changed.generation + 1, updated_at=now)
            if dry_run:
                return await self._unwritten(name, changed)
            job = await self._registry.put(name, _stored(changed), expect=present.version)
            if job is not None:
                # If there is no clock yet, it has to know what the job was before this change.
                # If another program made it, nobody knows since when it has been there.
                known = (
                    first_state(present.definition) if present.definition and present.definition.created_at else None
                )
                await self._rows.tell_clock(name, known)
                return await self._view(job)

    async def _unwritten(self, name: str, definition: Definition) -> JobView:
        """A job as it would be."""
        return await self._view(self._registry.understand(Record(name, to_json(_stored(definition)), 0)))

    async def _view(self, job: Job | BrokenJob) -> JobView:
        [view] = await self._with_last_runs(await self._views([job], self._secrets))
        return view

    async def _with_last_runs(self, views: Sequence[JobView]) -> Sequence[JobView]:
        """A clock knows what was planned last, which may still be to come; the ledger knows what came of it."""
        known = [(view.name, stamp_of(to_ms(view.last_run))) for view in views if view.last_run is not None]
        standings = iter(await self._ledger.standings(known, now=self._clock.now_ms()))
        return [view if view.last_run is None else with_standing(view, next(standings)) for view in views]

    async def _views(
        self, jobs: Sequence[Job | BrokenJob], secrets: Secrets | None, *, listed: bool = False
    ) -> Sequence[JobView]:
        """Jobs and what their clocks know about them."""
        now = self._clock.now_ms()
        rows = await self._rows.clocks([job.name for job in jobs]) if jobs else []
        return [
            job_view(job, ClockState() if row is None else read_state(row), now=now, secrets=secrets, listed=listed)
            for job, row in zip(jobs, rows, strict=True)
        ]


def _stored(definition: Definition) -> Definition:
    """As it is written: instants in milliseconds, however they came. JSON null is no body."""
    body = UNSET if definition.body is not UNSET and bytes(definition.body) == b"null" else definition.body
    return replace(definition, start_at=definition.starts_at, end_at=definition.ends_at, body=body)


def _readable(name: str, definition: Definition | None) -> Definition:
    if definition is None:
        raise Conflict(f"Job {name!r} is broken: its record cannot be read")
    return definition


def _matches(view: JobView, request: ListJobs) -> bool:
    return (not request.states or view.state in request.states) and all(
        view.labels.get(label) == value for label, value in request.labels.items()
    )
