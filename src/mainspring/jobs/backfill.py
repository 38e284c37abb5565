"""Runs of the past: the instants of a past range that were never run, one after another.

What the ledger says about them stays. A backfilled instant has a run of its own beside it, once: asking for the same
range again runs only what is new, and completes what a crash had cut short.

There may be ten thousand of them, so it goes slice by slice, from the oldest on, and everybody else has a turn in
between. What could not be written in one slice stops no other: it is reported in the end, and asking again helps.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.errors import wrong_field
from mainspring.jobs.ledger import BACKFILL, Ledger, Run, behind, planned, stamp_of
from mainspring.jobs.messages import BackfillJob, BackfillView
from mainspring.jobs.record import Job
from mainspring.jobs.row_store import MissingRows, RowStore
from mainspring.wire.instants import to_instant, to_ms

BACKFILL_LIMIT: Final = 10_000
_SLICE: Final = 200


class Backfiller:
    def __init__(self, *, ledger: Ledger, rows: RowStore, clock: Clock) -> None:
        self._ledger = ledger
        self._rows = rows
        self._clock = clock

    async def backfill(self, job: Job, request: BackfillJob) -> BackfillView:
        instants = await self._instants(job, request)
        known = await self._run_before(job.name, instants) if instants else {}
        wanted = [instant for instant in instants if instant not in known]
        if not request.dry_run:
            unwritten = await self._run(job, wanted, request.by)
            unwritten += await self._start(job, [found for found in known.values() if found is not None])
            MissingRows((), unwritten).check()
        return BackfillView(
            name=job.name,
            instants=len(instants),
            launched=len(wanted),
            first=to_instant(wanted[0]) if wanted else None,
            last=to_instant(wanted[-1]) if wanted else None,
            dry_run=request.dry_run,
        )

    async def _instants(self, job: Job, request: BackfillJob) -> list[int]:
        since, until = to_ms(request.since), to_ms(request.until)
        if until > self._clock.now_ms():
            raise wrong_field("/until", "Expected an instant not in the future, got one that is")
        if since >= until:
            raise wrong_field("/until", "Expected an instant after since, got one that is not")
        definition = job.definition
        after = max(since, definition.starts_at or 0) - 1
        last = until - 1 if definition.ends_at is None else min(until - 1, definition.ends_at)
        # Counting them all may take as long as running them.
        instants: list[int] = []
        while found := job.calendar.between(after, last, limit=_SLICE):
            instants += found
            if len(instants) > BACKFILL_LIMIT:
                raise wrong_field("/since", f"Expected a range of at most {BACKFILL_LIMIT} instants, got more")
            after = found[-1]
            await asyncio.sleep(0)
        return instants

    async def _run_before(self, job: str, instants: list[int]) -> dict[int, tuple[str, Run] | None]:
        """The instants that have a run. One of an earlier backfill that is not over may have been cut short."""
        found: dict[int, tuple[str, Run] | None] = {}
        after = behind(instants[-1] + 1)
        while True:
            page, after = await self._ledger.page(job, after=after, limit=_SLICE)
            for entry in page:
                run = entry.run
                if run.instant < instants[0]:
                    return found
                if run.kind == "backfill":
                    found[run.instant] = None if run.is_final else (entry.stamp, run)
                elif run.kind != "manual" and run.state != "skipped":
                    found[run.instant] = None
            if not after:
                return found
            await asyncio.sleep(0)

    async def _run(self, job: Job, instants: list[int], by: str) -> list[str]:
        """Returns the stamps of those that may have no row."""
        now = self._clock.now_ms()
        unwritten: list[str] = []
        previous = ""
        for start in range(0, len(instants), _SLICE):
            runs: list[tuple[str, Run]] = []
            for instant in instants[start : start + _SLICE]:
                run = planned(
                    job, instant, "backfill", previous=previous, now=now, delivery_id=self._rows.new_delivery_id()
                )
                previous = stamp_of(instant, BACKFILL)
                runs.append((previous, replace(run, due_at=now, by=by)))
            entered = zip(runs, await self._ledger.enter(job.name, runs), strict=True)
            unwritten += await self._start(
                job, [(stamp, stands) for (stamp, _), stands in entered if not stands.is_final]
            )
        return unwritten

    async def _start(self, job: Job, runs: list[tuple[str, Run]]) -> list[str]:
        """The same of runs that are on record."""
        unwritten: list[str] = []
        for start in range(0, len(runs), _SLICE):
            missing = await self._rows.add_runs(job, runs[start : start + _SLICE])
            await self._ledger.refuse(job.name, missing.refused)
            unwritten += missing.unwritten
            await asyncio.sleep(0)
        return unwritten
