"""Writes `lastRun` into the records of jobs: which instant was run last, for the other programs that use the registry.

When: an instant that its calendar has given to a job, as soon as its first call begins, or is repeated; not a manual
run, a rerun or a backfill. Nobody waits for the write: it comes when no run has begun for `QUIET_SECONDS`, and after
`LATEST_SECONDS` even so. Ten thousand jobs of one minute thus have their calls first. Of one job, only the newest
instant is written.

How: by compare-and-set of the record as it is, in which nothing else changes, and only forwards. So it overwrites
nobody's change, and whoever else has run a later instant is believed.

What if this instance dies before: the reconciler compares each clock with its record once a minute (`complete`).

A clock believes a `lastRun` that is later than what it has accounted for: somebody else has run that. So what is
written here must be in the clock's row first. That comes a few seconds before the run; if not, the write waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mainspring import telemetry
from mainspring.background import guarded, repeat
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.jobs.clock_state import ClockState
from mainspring.jobs.ledger import Ledger, stamp_of
from mainspring.jobs.record import BrokenJob, Job
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import read_state
from mainspring.model import Timer

QUIET_SECONDS: Final = 1.0
LATEST_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0
STOP_SECONDS: Final = 2.0
"""How long the last writes of an instance that stops may take."""
WAITING_LIMIT: Final = 20_000
"""How many jobs wait for their write at most. What does not fit is left to the reconciler."""
SETTLED_MS: Final = 30_000
"""How old an instant must be before the reconciler takes care of it: until then it is its run's business."""
_AT_ONCE: Final = 50
_COMPLAINT: Final = "the last runs of jobs were not written"


class _Made(NamedTuple):
    instant: int
    created_at: int
    """Of the job: one of the same name may take its place."""
    noted_at: float


class LastRuns:
    def __init__(self, *, registry: Registry, ledger: Ledger, rows: RowStore, clock: Clock) -> None:
        self._registry = registry
        self._ledger = ledger
        self._rows = rows
        self._clock = clock
        self._waiting: dict[str, _Made] = {}
        self._noted = asyncio.Event()

    def note(self, job: Job, instant: int) -> None:
        """A call of this instant is about to be made."""
        if job.definition.run_until(self._clock.now_ms()) >= instant:
            return
        waiting = self._waiting.get(job.name)
        if waiting is None and len(self._waiting) >= WAITING_LIMIT:
            return
        created_at = job.definition.created_at
        if waiting is None or waiting.created_at != created_at or waiting.instant < instant:
            self._waiting[job.name] = _Made(instant, created_at, self._clock.monotonic())
            self._noted.set()

    async def run(self) -> None:
        """Write what was noted, a moment later. Ends only by cancellation."""
        await repeat(self._write_when_quiet, seconds=0.0, complaint=_COMPLAINT)

    async def _write_when_quiet(self) -> None:
        await self._noted.wait()
        latest = self._clock.monotonic() + LATEST_SECONDS
        while self._noted.is_set() and self._clock.monotonic() < latest:
            self._noted.clear()
            await asyncio.sleep(QUIET_SECONDS)
        self._noted.clear()
        with guarded(_COMPLAINT):
            await self._write()
        if self._waiting and not self._noted.is_set():
            await asyncio.sleep(RETRY_SECONDS)
            self._noted.set()

    async def stop(self) -> None:
        """Write what is left, if the store is there; otherwise the reconciler will."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._write()
        except (StoreUnavailable, TimeoutError) as error:
            telemetry.debug("the last runs of jobs are left to the reconciler", reason=str(error))

    async def _write(self) -> None:
        """What cannot be written now waits for the next time."""
        waiting = list(self._waiting.items())
        for start in range(0, len(waiting), _AT_ONCE):
            some = waiting[start : start + _AT_ONCE]
            rows = await self._rows.clocks([name for name, _ in some])
            due = [each for each, row in zip(some, rows, strict=True) if self._is_accounted_for(*each, row)]
            await self._put((name, made.instant, made.created_at) for name, made in due)
            for name, made in due:
                self._forget(name, made)

    def _is_accounted_for(self, name: str, made: _Made, row: Timer | None) -> bool:
        state = ClockState() if row is None else read_state(row)
        if state.created_at == made.created_at and state.accounted_until >= made.instant:
            return True
        if self._clock.monotonic() - made.noted_at > LATEST_SECONDS:
            self._forget(name, made)  # the clock is of another job, or its look has failed and will be repeated
        return False

    def _forget(self, name: str, made: _Made) -> None:
        if self._waiting.get(name) == made:
            del self._waiting[name]

    async def _put(self, made: Iterable[tuple[str, int, int]]) -> None:
        puts = (self._registry.put_last_run(name, instant, created_at=created_at) for name, instant, created_at in made)
        for outcome in await asyncio.gather(*puts, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def complete(self, clocks: Mapping[str, tuple[Job | BrokenJob, ClockState]]) -> None:
        """Write what an instance that is gone has left out: records that tell less than their clocks. A run that is not
        over will be repeated, and writes it then."""
        now = self._clock.now_ms()
        behind = [
            (name, state.last_run, state.created_at)
            for name, (job, state) in clocks.items()
            if isinstance(job, Job)
            and state.last_run is not None
            and state.created_at == job.definition.created_at
            and job.definition.run_until(now) < state.last_run <= now - SETTLED_MS
        ]
        for start in range(0, len(behind), _AT_ONCE):
            some = behind[start : start + _AT_ONCE]
            made = await asyncio.gather(
                *(self._ledger.last_ended(name, stamp_of(last_run)) for name, last_run, _ in some)
            )
            await self._put(
                (name, instant, created_at)
                for (name, _, created_at), instant in zip(some, made, strict=True)
                if instant is not None
            )
