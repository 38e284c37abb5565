"""How a run ends: first in the ledger, then those that wait for it are told, and only then is its row removed.

If nobody waits for it, as for most, the first and the last may be one write (`end_with_row`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.background import guarded, until_available
from mainspring.clock import Clock
from mainspring.jobs.ledger import Ledger, LedgerEntry, Run, launch_id
from mainspring.jobs.messages import RunState
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import Errand
from mainspring.kernel.carrier import Ending
from mainspring.model import Result, Timer

T = TypeVar("T")
_WAITING: Final = "the end of a run waits for the store"
_ENDED_AS: Final = "; it ended as "
LONGEST_PAUSE_MS: Final = 60_000


class Turn(Struct, frozen=True):
    """One attempt at one run: what is known at its start."""

    timer: Timer
    job: str
    stamp: str
    errand: Errand
    entry: LedgerEntry | None
    started_at: int
    instant: int
    """That of its stamp."""

    @property
    def due_at(self) -> int:
        return self.instant if self.entry is None else self.entry.run.moment

    @property
    def late_ms(self) -> int:
        return self.started_at - self.due_at

    @property
    def is_repeat(self) -> bool:
        """A call may have been made before."""
        return self.timer.attempts > 1

    @property
    def has_waited(self) -> bool:
        """It waits for another run, or has waited until now: no call was made."""
        return self.entry is not None and self.entry.run.state == "buffered"


class RunEnder:
    def __init__(
        self, *, ledger: Ledger, rows: RowStore, clock: Clock, tell_failure: Callable[[Turn, Run], None]
    ) -> None:
        """`tell_failure` is told about every run that was ended here, and picks those that did not end well."""
        self._ledger = ledger
        self._tell_failure = tell_failure
        self._rows = rows
        self._clock = clock

    async def end(
        self, turn: Turn, state: RunState, *, reason: str, blocked_by: str = "", ending: Ending | None = None
    ) -> Ending:
        """Write the end of a run into the ledger. Waits for the store, as the engine's endings do."""
        tried: list[Run] = []

        def ended(run: Run | None) -> Run:
            made = self._ended(turn, run, state, reason=reason, blocked_by=blocked_by, ending=ending)
            tried.append(made)
            return made

        on_record = await until_available(
            lambda: self._ledger.change(turn.job, turn.stamp, ended, known=turn.entry), complaint=_WAITING
        )
        if on_record in tried:  # else somebody else has ended it, and has counted it
            self._count(turn, on_record)
        elif on_record.state == "cancelled" and ending is not None:
            await until_available(lambda: self._tell_of_call(turn, ending), complaint=_WAITING)
        crashpoint.reach(crashpoint.RUN_ENDED)
        await until_available(lambda: self.hand_on(turn.job, on_record), complaint=_WAITING)
        return over(turn.started_at)

    async def _tell_of_call(self, turn: Turn, ending: Ending) -> None:
        """Say in the record of a run that was cancelled how the call ended that was under way then."""
        call = self._ended(turn, None, "cancelled", reason="", ending=ending)
        words = f"{ending.outcome}{': ' if ending.detail else ''}{ending.detail}".removesuffix(".")

        def told(run: Run) -> Run:
            if _ENDED_AS in run.reason:
                return run  # it was told, and the answer got lost
            return replace(
                run,
                reason=f"{run.reason}{_ENDED_AS}{words}",
                started_at=call.started_at,
                attempts=call.attempts,
                status=call.status,
                duration_ms=call.duration_ms,
                answer_head=call.answer_head,
            )

        await self._ledger.complete(turn.job, turn.stamp, told)

    def retry(self, turn: Turn, ending: Ending, *, may_be_cancelled: bool) -> Ending:
        """The ending of a run that will be repeated, unless it was cancelled during its call."""
        ending = replace(ending, kept=False)
        return replace(ending, write=partial(self._retry, turn, ending)) if may_be_cancelled else ending

    async def _retry(self, turn: Turn, ending: Ending) -> Ending:
        entry = await until_available(lambda: self._ledger.get(turn.job, turn.stamp), complaint=_WAITING)
        if entry is None or entry.run.state != "cancelled":
            return ending
        await until_available(lambda: self._tell_of_call(turn, ending), complaint=_WAITING)
        return over(turn.started_at)

    def end_with_row(self, turn: Turn, state: RunState, ending: Ending) -> Ending:
        """The ending of a run after a call. Nobody waits for it if its record is still as it was at the start, so that
        may be written with the row; otherwise it ends in steps."""
        write = partial(self.end, turn, state, reason=ending.detail, ending=ending)
        entry = turn.entry
        if entry is None or entry.run.successor:
            return replace(ending, kept=False, write=write)
        run = self._ended(turn, entry.run, state, reason=ending.detail, ending=ending)
        return replace(
            ending,
            next="done",
            kept=False,
            write=write,
            record=self._ledger.change_to(turn.job, turn.stamp, run, expect=entry.version),
            recorded=partial(self._recorded, turn, run),
        )

    def _recorded(self, turn: Turn, run: Run) -> None:
        self._ledger.note(turn.job, turn.stamp, run)
        self._count(turn, run)
        crashpoint.reach(crashpoint.RUN_ENDED)

    def _count(self, turn: Turn, run: Run) -> None:
        telemetry.runs.add(run.state)
        with guarded("a failure got no line"):
            self._tell_failure(turn, run)

    def _ended(
        self,
        turn: Turn,
        run: Run | None,
        state: RunState,
        *,
        reason: str,
        blocked_by: str = "",
        ending: Ending | None,
    ) -> Run:
        timer = turn.timer
        first = timer.detail.first_attempt_at
        was_tried = ending is not None or turn.is_repeat
        return replace(
            run or _forgotten(turn),
            state=state,
            reason=reason,
            blocked_by=blocked_by,
            started_at=(turn.started_at if first is None else first) if was_tried else None,
            finished_at=self._clock.now_ms(),
            attempts=timer.attempts if ending is not None else timer.attempts - 1,
            status=None if ending is None else ending.status,
            duration_ms=None if ending is None else ending.duration_ms,
            answer_head="" if ending is None else ending.answer_head,
        )

    async def end_lost(self, turn: Turn, reason: str) -> Ending:
        """No attempt is left, or there is nothing to attempt with: the last outcome stays."""
        last = turn.timer.detail.last_outcome
        state: RunState = "unknown" if last is None or last.outcome is Result.UNKNOWN else "failed"
        words = f"{'' if last is None else last.detail} {reason}".strip()
        return await self.end(turn, state, reason=words)

    async def hand_on(self, job: str, run: Run) -> None:
        """Tell the run that waits for this one, and the clock if another may be made instead of this one.

        Telling twice does no harm, so a repeat tells them again.
        """
        if run.successor:
            await self._rows.hasten_run(launch_id(job, run.successor))
        if run.counted and run.state == "skipped":
            await self._rows.hasten_clock(job)


def pause_ms(attempts: int) -> int:
    """The pause before a repeat of what nobody saw the end of: the first comes at once, others later and later."""
    return min(LONGEST_PAUSE_MS, 250 * 2 ** min(attempts, 12)) if attempts > 1 else 0


def over(now: int) -> Ending:
    """The row is removed; the ledger tells the rest."""
    return Ending(outcome=Result.SUCCEEDED, next="done", started_at=now, reachable=None, kept=False)


def later(turn: Turn, at: int) -> Ending:
    """No call was made by this attempt. One that may have been made before keeps its count, and its outcome."""
    last = turn.timer.detail.last_outcome
    return Ending(
        outcome=Result.SUCCEEDED if last is None else last.outcome,
        next="retry" if turn.is_repeat else "rescheduled",
        next_at=at,
        status=None if last is None else last.status,
        detail="" if last is None else last.detail,
        delivery_id=turn.timer.detail.delivery_id,
        started_at=turn.started_at,
        reachable=None,
        kept=False,
        is_attempt=False,
    )


def _forgotten(turn: Turn) -> Run:
    """The record of a run that has none: it comes after its row, or it has expired."""
    detail = turn.timer.detail
    return Run(
        kind=turn.errand.kind,
        state="planned",
        instant=turn.instant,
        planned_at=detail.created_at,
        due_at=turn.due_at,
        previous=turn.errand.previous,
        delivery_id=detail.delivery_id,
    )
