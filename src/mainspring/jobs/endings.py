"""How a run ends: first in the ledger, then those that wait for it are told, and only then is its row removed."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.background import until_available
from mainspring.clock import Clock
from mainspring.jobs.ledger import Ledger, LedgerEntry, Run, instant_of, launch_id
from mainspring.jobs.messages import RunState
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import Errand
from mainspring.kernel.carrier import Ending
from mainspring.model import Result, Timer

T = TypeVar("T")
_WAITING: Final = "the end of a run waits for the store"
LONGEST_PAUSE_MS: Final = 60_000


class Turn(Struct, frozen=True):
    """One attempt at one run: what is known at its start."""

    timer: Timer
    job: str
    stamp: str
    errand: Errand
    entry: LedgerEntry | None
    started_at: int

    @property
    def instant(self) -> int:
        return instant_of(self.stamp)

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
    def __init__(self, *, ledger: Ledger, rows: RowStore, clock: Clock) -> None:
        self._ledger = ledger
        self._rows = rows
        self._clock = clock

    async def end(
        self, turn: Turn, state: RunState, *, reason: str, blocked_by: str = "", ending: Ending | None = None
    ) -> Ending:
        """Write the end of a run into the ledger. Waits for the store, as the engine's endings do."""
        timer = turn.timer
        first = timer.detail.first_attempt_at
        was_tried = ending is not None or turn.is_repeat
        tried: list[Run] = []

        def ended(run: Run | None) -> Run:
            made = replace(
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
            tried.append(made)
            return made

        on_record = await until_available(
            lambda: self._ledger.change(turn.job, turn.stamp, ended, known=turn.entry), complaint=_WAITING
        )
        if on_record in tried:  # else somebody else has ended it, and has counted it
            telemetry.runs.add(on_record.state)
        crashpoint.reach(crashpoint.RUN_ENDED)
        await until_available(lambda: self.hand_on(turn.job, on_record), complaint=_WAITING)
        return over(turn.started_at)

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
