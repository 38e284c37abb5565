"""Runs a run again that did not succeed: under its own instant, beside the record of what became of it.

A rerun is a run of its own, with a delivery id of its own: somebody has asked for it, and it is no repeat of what was
sent before. There is at most one at a time for an instant: whoever asks while one is under way gets that one, and
completes it if a crash had cut it short.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.errors import Conflict, NotFound, TooLarge
from mainspring.jobs.ledger import RERUN, Ledger, LedgerEntry, key_of, launch_id, planned, stamp_of
from mainspring.jobs.messages import RerunJob, RunView
from mainspring.jobs.record import Job
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.views import run_view
from mainspring.store import just_before

RERUN_LIMIT: Final = 999
"""How often one instant is run again."""


class Rerunner:
    def __init__(self, *, ledger: Ledger, rows: RowStore, clock: Clock) -> None:
        self._ledger = ledger
        self._rows = rows
        self._clock = clock

    async def rerun(self, job: Job, stamp: str, request: RerunJob) -> RunView:
        entry = await self._ledger.get(job.name, stamp)
        if entry is None:
            raise NotFound(f"Run {request.launch_id!r} does not exist")
        if why := _objection(job, entry):
            raise Conflict(f"Run {request.launch_id!r} {why}")
        latest = await self._latest(job.name, entry.run.instant)
        if latest is not None and latest.run.state == "succeeded":
            raise Conflict(f"Run {request.launch_id!r} has succeeded since, as {launch_id(job.name, latest.stamp)!r}")
        if latest is None or latest.run.is_final:
            latest = await self._enter(job, entry, latest, request)
        if not latest.run.is_final:
            missing = await self._rows.add_runs(job, [(latest.stamp, latest.run)])
            await self._ledger.refuse(job.name, missing.refused)
            missing.check()
            if missing.refused:
                raise TooLarge("The run is larger than the database can hold")
        return run_view(job.name, latest, None)

    async def _latest(self, job: str, instant: int) -> LedgerEntry | None:
        """The newest rerun of an instant."""
        first = stamp_of(instant, RERUN)
        page, _ = await self._ledger.page(job, after=just_before(key_of(first)), limit=RERUN_LIMIT)
        return next((entry for entry in reversed(page) if entry.stamp.startswith(first)), None)

    async def _enter(self, job: Job, entry: LedgerEntry, latest: LedgerEntry | None, request: RerunJob) -> LedgerEntry:
        """Put a new one on record. If somebody else was faster, theirs stands."""
        number = 1 + (0 if latest is None else int(latest.stamp[-3:]))
        if number > RERUN_LIMIT:
            raise Conflict(
                f"Run {request.launch_id!r} was run again {RERUN_LIMIT} times, which is as often as it can be"
            )
        now = self._clock.now_ms()
        run = planned(
            job,
            entry.run.instant,
            "rerun",
            previous=entry.run.previous,
            now=now,
            delivery_id=self._rows.new_delivery_id(),
        )
        stamp = stamp_of(entry.run.instant, f"{RERUN}{number:03d}")
        run = replace(run, due_at=now, by=request.by, rerun_of=entry.stamp)
        [stands] = await self._ledger.enter(job.name, [(stamp, run)])
        return LedgerEntry(stamp, stands, 1)


def _objection(job: Job, entry: LedgerEntry) -> str:
    """Why a run is not run again, if so."""
    run = entry.run
    if not entry.is_readable or not run.is_final:
        return "is not over" if entry.is_readable else "cannot be read"
    if run.state == "skipped":
        return "was skipped: a backfill runs instants that were not run"
    if run.state == "succeeded":
        return "has succeeded: trigger the job to run it outside the calendar"
    if run.kind == "manual":
        return "was requested outside the calendar: trigger the job once more"
    if run.planned_at < job.definition.created_at:
        return "is of a deleted job of the same name"
    return ""
