"""Launches afterwards: the instants of a range of the past that were never launched, one after another.

What the ledger says of them stays. A backfilled instant has a launch of its own beside it, once: to ask for the same
range again launches only what is new, and completes what a crash had cut short.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.errors import FieldError, InvalidInput
from mainspring.jobs.definition import Job
from mainspring.jobs.ledger import BACKFILL, Launch, Ledger, behind, mark_of
from mainspring.jobs.messages import BackfillJob, BackfillView
from mainspring.jobs.rows import Rows, planned
from mainspring.store import BATCH_LIMIT
from mainspring.timers.messages import to_instant, to_ms

BACKFILL_LIMIT: Final = 10_000


class Backfiller:
    def __init__(self, *, ledger: Ledger, rows: Rows, clock: Clock) -> None:
        self._ledger = ledger
        self._rows = rows
        self._clock = clock

    async def backfill(self, job: Job, request: BackfillJob) -> BackfillView:
        instants = self._instants(job, request)
        launched = await self._launched(job.name, instants) if instants else {}
        wanted = [instant for instant in instants if instant not in launched]
        if not request.dry_run:
            await self._launch(job, wanted, request.by)
            await self._start(job, [found for found in launched.values() if found is not None])
        return BackfillView(
            name=job.name,
            instants=len(instants),
            launched=len(wanted),
            first=to_instant(wanted[0]) if wanted else None,
            last=to_instant(wanted[-1]) if wanted else None,
            dry_run=request.dry_run,
        )

    def _instants(self, job: Job, request: BackfillJob) -> list[int]:
        since, until = to_ms(request.since), to_ms(request.until)
        if until > self._clock.now_ms():
            raise _invalid("/until", "Expected an end that is not in the future, got one that is")
        if since >= until:
            raise _invalid("/until", "Expected an end after the start, got one that is not")
        definition = job.definition
        after = max(since, definition.starts_at or 0) - 1
        last = until - 1 if definition.ends_at is None else min(until - 1, definition.ends_at)
        # To count them all may take as long as to launch them.
        instants = job.calendar.between(after, last, limit=BACKFILL_LIMIT + 1)
        if len(instants) > BACKFILL_LIMIT:
            raise _invalid("/since", f"Expected a range of at most {BACKFILL_LIMIT} instants, got more")
        return instants

    async def _launched(self, job: str, instants: list[int]) -> dict[int, tuple[str, Launch] | None]:
        """The instants that have a launch. One of an earlier backfill that is not over may have been cut short."""
        found: dict[int, tuple[str, Launch] | None] = {}
        after = behind(instants[-1] + 1)
        while True:
            page, after = await self._ledger.page(job, after=after, limit=BATCH_LIMIT)
            for entry in page:
                launch = entry.launch
                if launch.instant < instants[0]:
                    return found
                if launch.kind == "backfill":
                    found[launch.instant] = None if launch.is_final else (entry.mark, launch)
                elif launch.kind != "manual" and launch.state != "skipped":
                    found[launch.instant] = None
            if not after:
                return found

    async def _launch(self, job: Job, instants: list[int], by: str) -> None:
        now = self._clock.now_ms()
        launches: list[tuple[str, Launch]] = []
        previous = ""
        for instant in instants:
            launch = planned(
                job, instant, "backfill", previous=previous, now=now, delivery_id=self._rows.new_delivery_id()
            )
            previous = mark_of(instant, BACKFILL)
            launches.append((previous, replace(launch, due_at=now, by=by)))
        entered = await self._ledger.enter(job.name, launches)
        marks = (mark for mark, _ in launches)
        await self._start(
            job, [(mark, launch) for mark, launch in zip(marks, entered, strict=True) if not launch.is_final]
        )

    async def _start(self, job: Job, launches: list[tuple[str, Launch]]) -> None:
        missing = await self._rows.launch(job, launches)
        await self._ledger.refuse(job.name, missing.refused)
        missing.check()


def _invalid(pointer: str, detail: str) -> InvalidInput:
    return InvalidInput(detail, errors=(FieldError(pointer, detail),))
