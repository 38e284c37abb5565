"""The carrier of clock rows: when one is due, its job's instants are planned, a few seconds ahead of them.

The order within a look lets a repeat make good a crash at any line: first the ledger, then the rows of the runs, then
the clock row itself, with all that the clock knows, in the engine's fenced write. A look that comes late is first given
a new date (`refusal`), in a write of its own: what it decides depends on that, see `clock_state`.
A row that cannot be written keeps the clock from no other instant: it is noted, and tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.errors import Conflict, StoreUnavailable
from mainspring.jobs.clock_state import UNWRITTEN_LIMIT, ClockState, Tick, account, last_before, lead_ms, recounted
from mainspring.jobs.endings import LONGEST_PAUSE_MS, pause_ms
from mainspring.jobs.ledger import Ledger, LedgerEntry, Run, instant_of, launch_id, planned, stamp_of
from mainspring.jobs.plan import MISSED_AFTER_MS
from mainspring.jobs.record import BrokenJob, Job
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import CLOCKS, read_state
from mainspring.jobs.webhook import next_instants
from mainspring.kernel.carrier import Ending, Lane
from mainspring.model import FOREVER, Result, Timer, to_json

CLOCK_LANE: Final = Lane("mainspring.jobs", 256, namespace=CLOCKS, site="store", calls_nobody=True)
RECHECK_MS: Final = 300_000
"""A clock is told when a run that it counts is skipped. It also looks by itself, for what nobody foresaw."""
_SHORTEST_PAUSE_MS: Final = 1_000


class ClockCarrier:
    """The engine's `Carrier` for clock rows."""

    def __init__(self, *, registry: Registry, ledger: Ledger, rows: RowStore, clock: Clock) -> None:
        self._registry = registry
        self._ledger = ledger
        self._rows = rows
        self._clock = clock

    def lane(self, timer: Timer) -> Lane:
        return CLOCK_LANE

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        if timer.attempts or now <= timer.detail.execute_at + MISSED_AFTER_MS:
            return None
        return self._moved(now, next_at=now)

    async def carry(self, timer: Timer) -> Ending:
        now = self._clock.now_ms()
        state = read_state(timer)
        try:
            job = await self._registry.get(timer.timer_id)
            if job is None:
                if timer.attempts > 1 or state.unwritten:
                    await self._abandon(timer.timer_id, state)
                return Ending(outcome=Result.SUCCEEDED, next="done", started_at=now, reachable=None, kept=False)
            if isinstance(job, BrokenJob):
                telemetry.warning("a job is broken", job=job.name, problem=job.problem)
                return self._moved(now, next_at=FOREVER, state=replace(state, seal=job.seal, broken=True))
            if state.undecided:
                state = await self._recount(job, state)
            tick = await self._account(job, state, as_of=timer.detail.execute_at)
            earlier = await self._write_again(job, state.unwritten)
            is_decided, left = await self._record(job, state, tick, now)
            unwritten = tuple(sorted({*earlier, *left}))
            if len(unwritten) > UNWRITTEN_LIMIT:
                raise StoreUnavailable("Too many runs could not be stored")
        except (StoreUnavailable, Conflict) as error:
            return self._again(timer, now, error.detail)
        if tick.next is not None:
            next_at = tick.next - lead_ms(job.name)
        elif tick.state.undecided:
            next_at = now if is_decided else now + RECHECK_MS
        else:
            next_at = FOREVER
        if left:
            telemetry.warning("runs are waiting for the store", job=job.name, count=len(unwritten))
        if unwritten:
            next_at = min(next_at, now + _pause_ms(late_ms=now - unwritten[-1]))
        return self._moved(now, next_at=next_at, state=replace(tick.state, unwritten=unwritten))

    async def _account(self, job: Job, state: ClockState, *, as_of: int) -> Tick:
        """A range must not begin with an instant that has a record already: there is one record for each key."""
        tick = account(job, state, as_of=as_of)
        on_record: set[int] = set()
        for part in tick.skipped:
            # What has a run was planned ahead: before a change, or by another job of this name.
            ahead = min(part.last, part.first + 2 * lead_ms(job.name))
            on_record |= await self._ledger.on_record(job.name, part.first, ahead)
        return account(job, state, as_of=as_of, on_record=on_record) if on_record else tick

    async def _abandon(self, job: str, state: ClockState) -> None:
        """Skip what was put on record for a job that is gone, and has no row to end by: by an earlier try of this look,
        or by earlier ones that could not write it."""
        planned = [
            *await self._ledger.planned(job, after=state.accounted_until),
            *await self._not_over(job, state.unwritten),
        ]
        rows = await self._rows.runs([launch_id(job, entry.stamp) for entry in planned]) if planned else []
        for entry, row in zip(planned, rows, strict=True):
            if row is None:
                await self._ledger.skip(job, entry, "deleted")

    async def _recount(self, job: Job, state: ClockState) -> ClockState:
        """What has become of the runs that were planned before: a job with `maxRuns` makes so many of them."""
        entries = await asyncio.gather(*(self._ledger.get(job.name, stamp_of(instant)) for instant in state.undecided))
        found = dict(zip(state.undecided, entries, strict=True))
        return recounted(
            state,
            skipped={at for at, entry in found.items() if entry is not None and entry.run.state == "skipped"},
            over={at for at, entry in found.items() if entry is None or entry.run.is_final},
        )

    async def _not_over(self, job: str, instants: Sequence[int]) -> list[LedgerEntry]:
        entries = await asyncio.gather(*(self._ledger.get(job, stamp_of(instant)) for instant in instants))
        return [entry for entry in entries if entry is not None and not entry.run.is_final]

    async def _write_again(self, job: Job, instants: Sequence[int]) -> list[int]:
        """Have rows for the runs that were left behind. Returns those that still may have none."""
        waiting = [(entry.stamp, entry.run) for entry in await self._not_over(job.name, instants)]
        return await self._run(job, waiting) if waiting else []

    async def _run(self, job: Job, runs: Sequence[tuple[str, Run]], upcoming: Sequence[int] = ()) -> list[int]:
        missing = await self._rows.add_runs(job, runs, upcoming=upcoming)
        await self._ledger.refuse(job.name, missing.refused)
        return [instant_of(stamp) for stamp in missing.unwritten]

    async def _record(self, job: Job, state: ClockState, tick: Tick, now: int) -> tuple[bool, list[int]]:
        """Returns whether some of the runs turned out to be over already: then nobody will tell of their end. And
        the instants of those that may have no row."""
        ranges = [
            (
                stamp_of(part.first),
                Run(
                    kind="scheduled",
                    state="skipped",
                    instant=part.first,
                    until=part.last,
                    count=part.count,
                    reason=part.reason,
                    planned_at=now,
                ),
            )
            for part in tick.skipped
        ]
        last_run = last_before(job, state, tick.runs[0].instant) if tick.runs else None
        previous = "" if last_run is None else stamp_of(last_run)
        runs: list[tuple[str, Run]] = []
        for instant, is_late in ((item.instant, item.is_late) for item in tick.runs):
            run = planned(
                job,
                instant,
                "catchup" if is_late else "scheduled",
                previous=previous,
                now=now,
                delivery_id=self._rows.new_delivery_id(),
            )
            runs.append((stamp_of(instant), run))
            previous = stamp_of(instant)
        entered = await self._ledger.enter(job.name, [*ranges, *runs])
        crashpoint.reach(crashpoint.RUNS_RECORDED)
        for (_, wanted), run in zip(ranges, entered, strict=False):
            if run is wanted:  # else an earlier try has counted it
                telemetry.runs.add("skipped", run.count)
        stamps = (stamp for stamp, _ in runs)
        waiting = [(stamp, run) for stamp, run in zip(stamps, entered[len(ranges) :], strict=True) if not run.is_final]
        unwritten: list[int] = []
        if waiting:
            instants = [item.instant for item in tick.runs]
            upcoming = [*instants, *next_instants(job, instants[-1])]
            unwritten = await self._run(job, waiting, upcoming)
        crashpoint.reach(crashpoint.CLOCK_CARRIED)
        return len(waiting) < len(runs), unwritten

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        return self._again(timer, now, reason)

    def _again(self, timer: Timer, now: int, reason: str) -> Ending:
        return Ending(
            outcome=Result.FAILED,
            next="retry",
            next_at=now + pause_ms(timer.attempts),
            detail=reason,
            started_at=now,
            reachable=None,
            kept=False,
        )

    def _moved(self, now: int, *, next_at: int, state: ClockState | None = None) -> Ending:
        return Ending(
            outcome=Result.SUCCEEDED,
            next="rescheduled",
            next_at=next_at,
            payload=msgspec.UNSET if state is None else to_json(state).decode(),
            delivery_id=self._rows.new_delivery_id(),
            started_at=now,
            reachable=None,
            kept=False,
        )


def _pause_ms(*, late_ms: int) -> int:
    """The pause before runs that were left behind are written again: the later they are anyway, the longer."""
    return min(LONGEST_PAUSE_MS, max(_SHORTEST_PAUSE_MS, late_ms))
