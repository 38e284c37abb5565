"""From the state of a job's clock and its definition to what is run, what is skipped, and the next state. Pure.

A clock decides *as of* an instant that is stored in its row. So a repeat, by whomever and however late, decides the
same: it finds the records of the first try, and adds what that left out. Between two states every instant of the
calendar is accounted for once; only a changed calendar begins again at the change, for what was planned ahead by the
old one. Those instants may be skipped now, and have a record already: the range that they would be part of leaves them
out.

The `lastRun` of a record that is later than what the clock has accounted for is another program's: what is written here
is accounted for before (`last_runs`). Up to it, that program has run the job.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.jobs.calendar.calendar import Calendar, spread_ms
from mainspring.jobs.plan import RUN_LIMIT, Planned, plan
from mainspring.jobs.record import AHEAD_MS, Bounds, Definition, Job, Terms, calendar_of

LEAD_MS: Final = 5_000
LEAD_WAVES: Final = (AHEAD_MS - LEAD_MS) // 1000
"""Jobs of the same minute are planned in waves, a second apart: at the minute nothing is left but their runs, and
what is planned together is written together."""

UNDECIDED_LIMIT: Final = 100
"""How many runs of a job with `maxRuns` are followed until they are over. Older ones count as made."""

UNWRITTEN_LIMIT: Final = 100
"""How many runs of a job are left behind at most until their rows can be written. Then its clock waits for them."""

SkipReason = Literal["missed", "superseded", "outside-window", "changed", "paused", "broken", "run-elsewhere"]


class ClockState(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the clock row of a job knows. It changes with the row, under its fence."""

    seal: str = ""
    """Of the definition that was last looked at."""
    created_at: int = -1
    """Of that definition: a different one means another job of the same name."""
    updated_at: int = 0
    terms: Terms = Terms()
    bounds: Bounds | None = None
    """None: not known, because it was written before bounds were remembered."""
    accounted_until: int = 0
    last_run: int | None = None
    """The last instant that was run."""
    runs: int = 0
    """Runs that were planned, without those of a job with `maxRuns` that are known to have been skipped."""
    undecided: tuple[int, ...] = ()
    """Instants among them that may still be skipped; followed only for jobs with `maxRuns`."""
    unwritten: tuple[int, ...] = ()
    """Instants whose run is on record but may have no row: its part of the database could not be reached."""
    paused: bool = False
    finished: bool = False
    broken: bool = False
    """The definition could not be understood when it was last looked at; the rest is from before."""


class SkippedRange(Struct, frozen=True):
    first: int
    last: int
    count: int
    reason: SkipReason


class _Skips:
    """Collects what is skipped."""

    def __init__(self, on_record: Collection[int]) -> None:
        """`on_record` are instants that have a run: the run itself tells what became of it."""
        self._on_record = sorted(on_record)
        self.ranges: list[SkippedRange] = []

    def add(self, calendar: Calendar, *, after: int, until: int, reason: SkipReason) -> None:
        """Note the instants after one and not after the other, if there are any."""
        for instant in self._on_record:
            if after < instant <= until and calendar.next(instant - 1) == instant:
                self._add(calendar, after, instant - 1, reason)
                after = instant
        self._add(calendar, after, until, reason)

    def add_of(self, job: str, state: ClockState, *, after: int, until: int, reason: SkipReason) -> None:
        """The same for those among them that are the job's by this state."""
        bounds = state.bounds or Bounds()
        if bounds.runs_left(state.runs) == 0:
            return
        after = after if bounds.start_at is None else max(after, bounds.start_at - 1)
        until = until if bounds.end_at is None else min(until, bounds.end_at)
        self.add(calendar_of(job, state.terms), after=after, until=until, reason=reason)

    def _add(self, calendar: Calendar, after: int, until: int, reason: SkipReason) -> None:
        first = calendar.next(after) if until > after else None
        if first is None or first > until:
            return
        last = calendar.previous(until + 1)
        if last is not None:
            self.ranges.append(SkippedRange(first, last, calendar.count(after, until), reason))


class Tick(Struct, frozen=True):
    """What one look at a clock comes to. `next` is the next instant; None: there is nothing to wait for."""

    runs: tuple[Planned, ...]
    skipped: tuple[SkippedRange, ...]
    state: ClockState
    next: int | None


def lead_ms(job: str) -> int:
    """How long before an instant it is planned."""
    return LEAD_MS + 1000 * (spread_ms(job, 0, LEAD_WAVES) // 1000)


def first_state(definition: Definition, *, as_of: int = 0) -> ClockState:
    """The state of the clock of a job that nobody has looked at. With it, a change before the first look is noticed."""
    return ClockState(
        created_at=definition.created_at,
        updated_at=definition.updated_at,
        terms=definition.terms,
        bounds=definition.bounds,
        accounted_until=definition.created_at or as_of,
    )


def recounted(state: ClockState, *, skipped: Collection[int], over: Collection[int]) -> ClockState:
    """The state without those of its undecided runs that are over; skipped ones use up no run.

    A run that is over stays so. So a repeat has at least as many runs left: it runs what the first try did.
    """
    remaining = tuple(instant for instant in state.undecided if instant not in over)
    return replace(state, runs=state.runs - len(skipped), undecided=remaining)


def last_before(job: Job, state: ClockState, instant: int) -> int | None:
    """The newest run before an instant. After a change of the calendar, later ones may have been planned already."""
    if state.last_run is None:
        last_run = job.definition.run_until(instant)
        return last_run if 0 < last_run < instant else None
    if state.last_run < instant:
        return state.last_run
    before = calendar_of(job.name, state.terms).previous(instant)
    is_its_own = before is not None and before > state.created_at and (state.bounds or Bounds()).has(before)
    return before if is_its_own else None


def account(job: Job, state: ClockState, *, as_of: int, on_record: Collection[int] = ()) -> Tick:
    """`on_record` are instants that have a run. They need be named only if anything would be skipped without them."""
    definition = job.definition
    skips = _Skips(on_record)
    before, state = state, replace(_adopted(job, state, as_of), broken=False)
    if (elsewhere := definition.run_until(as_of)) > state.accounted_until:
        skips.add_of(job.name, state, after=state.accounted_until, until=elsewhere, reason="run-elsewhere")
        state = replace(state, accounted_until=elsewhere)
    if before.terms.schedule and before.created_at != state.created_at:
        # Another definition is in its place: only the old calendar knows what was left out meanwhile.
        reason: SkipReason = "broken" if before.broken else "changed"
        skips.add_of(job.name, before, after=before.accounted_until, until=state.accounted_until, reason=reason)
    bounds = definition.bounds
    state = replace(state, bounds=bounds if state.bounds is None else state.bounds)
    again: Collection[int] = ()
    if definition.terms != state.terms or bounds != state.bounds:
        changed_at = _changed_at(job, state, as_of)
        reason = "paused" if state.paused else "changed"
        skips.add_of(job.name, state, after=state.accounted_until, until=changed_at, reason=reason)
        again = _planned_ahead(job, state, changed_at)
        state = replace(state, accounted_until=changed_at)
    seen = replace(state, seal=job.seal, updated_at=definition.updated_at, terms=definition.terms, bounds=bounds)
    accounted = _pauses(job, seen, skips, as_of=as_of)
    seen = replace(seen, paused=definition.paused)
    if definition.paused:
        return Tick((), tuple(skips.ranges), replace(seen, accounted_until=accounted, finished=False), None)
    return _planned(job, seen, skips, accounted=accounted, as_of=as_of, again=again)


def _changed_at(job: Job, state: ClockState, as_of: int) -> int:
    """From when on the new calendar counts. What came before the last look has been dealt with, whatever it says."""
    definition = job.definition
    said = definition.updated_at if definition.updated_at > state.updated_at else as_of
    return max(said, state.accounted_until - lead_ms(job.name))


def _planned_ahead(job: Job, state: ClockState, changed_at: int) -> Collection[int]:
    """Instants that the old calendar had planned for after its end and that are also in the new one."""
    assert state.bounds is not None, "Expected a state whose bounds are known"
    old = calendar_of(job.name, state.terms).between(changed_at, state.accounted_until, limit=RUN_LIMIT)
    bounds = job.definition.bounds
    return {
        instant
        for instant in old
        if state.bounds.has(instant) and bounds.has(instant) and job.calendar.next(instant - 1) == instant
    }


def _pauses(job: Job, state: ClockState, skips: _Skips, *, as_of: int) -> int:
    """Account for the newest pause, as far as it has gone; returns how far that is."""
    definition, accounted = job.definition, state.accounted_until
    paused_at = max(accounted, definition.paused_at or 0)
    resumed_at = definition.resumed_at or (as_of if state.paused else 0)
    if not state.paused and (definition.paused or accounted < resumed_at):
        skips.add_of(job.name, state, after=accounted, until=paused_at, reason="missed")
        accounted = paused_at
    if not definition.paused and accounted < resumed_at:
        skips.add_of(job.name, state, after=accounted, until=resumed_at, reason="paused")
        accounted = resumed_at
    return accounted


def _adopted(job: Job, state: ClockState, as_of: int) -> ClockState:
    """The state itself; the first state for a new job, even if there was one of its name before."""
    definition = job.definition
    if state.created_at == definition.created_at:
        return state
    fresh = first_state(definition, as_of=as_of)
    last_run = definition.run_until(as_of)
    if not last_run or last_run < definition.created_at:
        return fresh
    # Nobody knows since when it has been there, but somebody has run it up to this instant. What a job of the same name
    # has accounted for stays so, and a calendar counts from its change on.
    accounted_until = state.accounted_until if state.terms.schedule else 0
    known_until = min(max(accounted_until, definition.updated_at), as_of)
    return replace(fresh, accounted_until=max(last_run, known_until), last_run=last_run)


def _planned(
    job: Job,
    state: ClockState,
    skips: _Skips,
    *,
    accounted: int,
    as_of: int,
    again: Collection[int],
) -> Tick:
    """`again` are instants for which there is a run already: they use up no run a second time."""
    definition = job.definition
    again = {instant for instant in again if instant > accounted}
    left = definition.bounds.runs_left(state.runs)
    runs_left = None if left is None else left + len(again)
    made = plan(
        job.calendar,
        accounted_until=accounted,
        now=as_of,
        ahead_ms=lead_ms(job.name),
        catchup=definition.catchup,
        window_ms=round(definition.catchup_window_seconds * 1000),
        start_at=definition.starts_at,
        end_at=definition.ends_at,
        runs_left=runs_left,
    )
    instants = tuple(item.instant for item in made.runs)
    new = tuple(instant for instant in instants if instant not in again)
    for part in made.skipped:
        skips.add(job.calendar, after=part.first - 1, until=part.last, reason=part.reason)
    state = replace(
        state,
        accounted_until=made.accounted_until,
        last_run=instants[-1] if instants else state.last_run,
        runs=state.runs + len(new),
        undecided=() if runs_left is None else (*state.undecided, *new)[-UNDECIDED_LIMIT:],
        finished=made.next is None,
    )
    return Tick(made.runs, tuple(skips.ranges), state, made.next)
