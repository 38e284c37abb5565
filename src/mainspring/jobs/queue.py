"""One run after another: what a run does if the one before it is not over. The rules are in `overlap`.

One that waits names itself in the record of the other, and is told at its end. Its own record says `buffered` for as
long as no call of it can have been made.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring import telemetry
from mainspring.jobs.endings import RunEnder, Turn, later
from mainspring.jobs.ledger import Ledger, LedgerEntry, Run, launch_id, stamp_of
from mainspring.jobs.overlap import LATE_MS, catches_up, looks_back, objection, step, would_overlap
from mainspring.jobs.plan import MISSED_AFTER_MS
from mainspring.jobs.record import Job, Terms
from mainspring.jobs.row_store import RowStore
from mainspring.kernel.carrier import Ending
from mainspring.model import State, Timer

RECHECK_MS: Final = 300_000
"""A run that waits is told when its turn comes. It also looks by itself, for what nobody foresaw. One that waits for a
run that has not begun looks as soon as that one is missed: perhaps nobody comes to tell."""
LOOK_MS: Final = 10_000
"""A run that has begun and has made no call by then waits for the store no longer than this at a time."""
_HOPS: Final = 32
"""How many skipped runs before it a run follows back."""


class RunQueue:
    def __init__(self, *, ledger: Ledger, rows: RowStore, ender: RunEnder) -> None:
        self._ledger = ledger
        self._rows = rows
        self._ender = ender

    async def take_turn(self, turn: Turn, job: Job) -> Ending | None:
        """An ending if the run must not go now, else None."""
        definition, kind = job.definition, turn.errand.kind
        if not looks_back(definition.overlap, kind):
            return await self._begin(turn, catching_up="")
        is_first = not turn.is_repeat and not turn.has_waited
        own = turn.stamp if is_first and catches_up(definition, kind, late_ms=turn.late_ms) else ""
        before = await self._before(turn, job)
        if before is not None and before.run.is_final:
            delayed = _delayed(turn)
            if (
                delayed is not None
                and not _catches_up(before)
                and would_overlap(definition.overlap, before.run, delayed)
            ):
                return await self._ender.end(turn, "skipped", reason="overlap", blocked_by=before.stamp)
        elif before is not None:
            catching_up = own or await self._delayed_by(before, turn)
            taken = step(definition, kind, before.run, is_kept=not is_first or bool(catching_up))
            is_judged = is_first and not catching_up and definition.overlap in ("skip", "bufferOne")
            if is_judged and await self._may_only_look(before, turn):
                return later(turn, turn.started_at + 1_000)
            if taken == "skip":
                return await self._skip(turn, before, job)
            if taken == "wait":
                return await self._wait(turn, before, catching_up)
            if taken == "cancel":
                await self._cancel(turn, before)
        return await self._begin(turn, own)

    async def _skip(self, turn: Turn, blocker: LedgerEntry, job: Job) -> Ending:
        """Skip a run because of the one before it, unless it is better to look again."""
        if (pause := _pause_ms(turn)) and await self._may_be_missed(blocker, turn, job):
            return later(turn, turn.started_at + pause)
        return await self._ender.end(turn, "skipped", reason="overlap", blocked_by=blocker.stamp)

    async def _begin(self, turn: Turn, catching_up: str) -> Ending | None:
        """Say in the ledger what others have to know about a run that goes now, if that is not there yet."""
        if turn.entry is None:
            return None
        run = turn.entry.run
        if turn.has_waited:
            # From here on a call may have been made: if this instance dies, its repeat must not be skipped.
            delayed_by = run.catching_up if turn.late_ms > LATE_MS else ""
            began = replace(run, state="planned", catching_up=delayed_by)
        elif catching_up and run.kind != "catchup":
            began = replace(run, catching_up=catching_up)
        else:
            return None
        if await self._ledger.put(turn.job, turn.stamp, began, expect=turn.entry.version):
            return None
        return later(turn, turn.started_at)

    async def _before(self, turn: Turn, job: Job) -> LedgerEntry | None:
        """The run before, unless it is over and does not matter. One that was or will be skipped leads on.

        So does one whose record cannot be read, unless its row tells that it is not over.
        """
        stamp = turn.errand.previous
        for _ in range(_HOPS):
            if not stamp or (self._ledger.has_ended(turn.job, stamp) and _delayed(turn) is None):
                return None
            entry = await self._ledger.get(turn.job, stamp)
            if entry is None:
                return None
            if not entry.is_readable:
                if await self._is_going(entry, turn):
                    return replace(entry, run=replace(entry.run, state="planned"))
                stamp = _by_calendar(job, stamp)  # it may have been skipped
                continue
            if entry.run.is_final:
                if entry.run.state != "skipped":
                    return entry
            elif not await self._gives_way(entry, turn, job):
                return entry
            stamp = entry.run.blocked_by or entry.run.previous
        return None

    async def _delayed_by(self, before: LedgerEntry, turn: Turn) -> str:
        """The stamp of the run that an outage has delayed, and this one with it. One that ought to have begun, and
        has not, is such a run, too: nothing is under way with which this one would overlap."""
        if _catches_up(before) or (turn.errand.kind != "backfill" and await self._is_held_up(before, turn)):
            return before.stamp
        return before.run.catching_up

    async def _is_held_up(self, other: LedgerEntry, turn: Turn) -> bool:
        run = other.run
        if run.state != "planned" or run.moment > turn.started_at:
            return False
        row = await self._row(other, turn)
        return row is None or not _is_begun(row)

    async def _may_be_missed(self, other: LedgerEntry, turn: Turn, job: Job) -> bool:
        """Whether a run that has begun may have begun so late that it is superseded, maybe by this very one, and
        just has not said so: then neither would go. Or it has said so since the ledger was read, and has no row any
        more."""
        row = await self._row(other, turn)
        is_first = row is None or (row.state is State.RUNNING and row.attempts <= 1)
        return is_first and other.run.state == "planned" and self._is_missed(other, turn, job)

    async def _may_only_look(self, other: LedgerEntry, turn: Turn) -> bool:
        """Whether a run that has begun may just be looking, as it did before: it was put off, maybe because nobody
        could tell how the one before it stands. Then nothing is under way with which this one would overlap."""
        row, run = await self._row(other, turn), other.run
        if row is None or row.state is not State.RUNNING or row.attempts > 1 or run.state != "planned":
            return False
        if not run.moment < row.detail.execute_at <= turn.started_at < row.detail.execute_at + LOOK_MS:
            return False
        previous = await self._ledger.get(turn.job, run.previous) if run.previous else None
        has_waited = previous is not None and previous.run.successor == other.stamp
        return not has_waited

    async def _row(self, other: LedgerEntry, turn: Turn) -> Timer | None:
        [row] = await self._rows.runs([launch_id(turn.job, other.stamp)])
        return row

    async def _is_going(self, other: LedgerEntry, turn: Turn) -> bool:
        """Whether a run may still come to something, judged by its row alone. What was put aside never ends."""
        row = await self._row(other, turn)
        return row is not None and row.state is not State.PARKED

    async def _gives_way(self, other: LedgerEntry, turn: Turn, job: Job) -> bool:
        """Whether nothing more comes of a run that is not over: it was put aside, or it has not begun and will not.

        Then it was missed, and comes to look at itself after this one. It is superseded, maybe by this very one. If
        this one were skipped because of it, neither would go.
        """
        run, row = other.run, await self._row(other, turn)
        if row is not None and row.state is State.PARKED:
            return True
        if run.state != "planned" or (row is not None and _is_begun(row)):
            return False
        return self._is_missed(other, turn, job)

    def _is_missed(self, other: LedgerEntry, turn: Turn, job: Job) -> bool:
        """Whether a run should not be made if it begins now."""
        # It is not known which calendar planned it: the current one tells whether it has its instant.
        run, errand = other.run, replace(turn.errand, kind=other.run.kind, terms=Terms())
        now = turn.started_at
        return bool(objection(job, errand, instant=run.instant, due_at=run.moment, now=now, waited=False))

    async def _wait(self, turn: Turn, blocker: LedgerEntry, catching_up: str) -> Ending:
        now = turn.started_at
        if blocker.run.successor != turn.stamp:
            told = replace(blocker.run, successor=turn.stamp)
            is_free = not blocker.run.successor
            if not is_free or not await self._ledger.put(turn.job, blocker.stamp, told, expect=blocker.version):
                return later(turn, now + 1_000)
        if turn.entry is not None and not turn.has_waited and not turn.is_repeat:
            buffered = replace(turn.entry.run, state="buffered", catching_up=catching_up)
            if not await self._ledger.put(turn.job, turn.stamp, buffered, expect=turn.entry.version):
                return later(turn, now)
        gives_way_at = blocker.run.moment + MISSED_AFTER_MS + 1
        is_held_up = catching_up == blocker.stamp and not _catches_up(blocker)
        return later(turn, gives_way_at if is_held_up and gives_way_at > now else now + RECHECK_MS)

    async def _cancel(self, turn: Turn, other: LedgerEntry) -> None:
        identity = launch_id(turn.job, other.stamp)
        [row] = await self._rows.runs([identity])
        reason = f"cancelled by the run {launch_id(turn.job, turn.stamp)}"
        attempts = 0 if row is None else row.attempts
        last = None if row is None or not attempts else row.detail.last_outcome
        if attempts:
            reason += "; a call of it had been made, and may have taken effect"

        def cancelled(run: Run | None) -> Run:
            return replace(
                run or other.run,
                state="cancelled",
                reason=reason,
                started_at=None if row is None else row.detail.first_attempt_at,
                finished_at=turn.started_at,
                attempts=attempts,
                status=None if last is None else last.status,
                duration_ms=None if last is None else last.duration_ms,
            )

        on_record = await self._ledger.change(turn.job, other.stamp, cancelled, known=other)
        if on_record == cancelled(on_record):  # else it was over, or somebody else has cancelled and counted it
            telemetry.runs.add("cancelled")
        if on_record.state == "cancelled":
            await self._rows.stop_run(identity)
        if on_record.successor != turn.stamp:  # which has come to look by itself
            await self._ender.hand_on(turn.job, on_record)


def _pause_ms(turn: Turn) -> int:
    """How long a run waits before it looks again at one that may be missed; 0: it does not. One that is late itself has
    time. One that is on time looks once more: by then the other has said so, unless it is under way."""
    if turn.late_ms > LATE_MS:
        return 1_000
    return 0 if turn.timer.detail.execute_at > turn.due_at else LATE_MS // 4


def _is_begun(row: Timer) -> bool:
    return row.attempts > 0 or row.state is State.RUNNING


def _by_calendar(job: Job, stamp: str) -> str:
    """The stamp of the run before one that does not tell, if the calendar is still the same."""
    instant, _, suffix = stamp.partition("-")
    before = job.calendar.previous(int(instant))
    return "" if before is None else stamp_of(before, suffix)


def _catches_up(entry: LedgerEntry) -> bool:
    """Whether a run makes up for an outage."""
    return entry.run.kind == "catchup" or entry.run.catching_up == entry.stamp


def _delayed(turn: Turn) -> Run | None:
    """The run, if it has waited for nothing but the end of a catch-up and is judged now."""
    run = None if turn.entry is None else turn.entry.run
    return run if run is not None and turn.has_waited and run.catching_up not in ("", turn.stamp) else None
