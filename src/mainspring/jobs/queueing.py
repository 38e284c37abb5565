"""One launch after another: what a launch does about the one before it that is not over. The rules are in `judging`.

One that waits names itself in the record of the other, and is told at its end. Its own record says `buffered` for as
long as no call of it can have been made.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring import telemetry
from mainspring.jobs.definition import Job
from mainspring.jobs.judging import looks_back, objection, step
from mainspring.jobs.ledger import Entry, Launch, Ledger, launch_id
from mainspring.jobs.rows import Rows
from mainspring.jobs.settling import Settler, Turn, later
from mainspring.kernel.carrier import Ending
from mainspring.model import State

RECHECK_MS: Final = 300_000
"""A launch that waits is told when its turn comes. That it looks by itself is for what nobody foresaw."""
_HOPS: Final = 32
"""How far back a launch follows those that were skipped before it."""


class Queueing:
    def __init__(self, *, ledger: Ledger, rows: Rows, settler: Settler) -> None:
        self._ledger = ledger
        self._rows = rows
        self._settler = settler

    async def take_turn(self, turn: Turn, job: Job) -> Ending | None:
        """An ending if the launch is not to go now, else None."""
        policy = job.definition.overlap
        blocker = await self._blocker(turn, job) if looks_back(policy, turn.errand.kind) else None
        if blocker is not None:
            late_ms = turn.started_at - turn.due_at
            taken = step(job.definition, turn.errand.kind, blocker.launch, is_repeat=turn.is_repeat, late_ms=late_ms)
            if taken == "skip":
                return await self._settler.settle(turn, "skipped", reason="overlap", blocked_by=blocker.mark)
            if taken == "wait":
                return await self._wait(turn, blocker)
            if taken == "cancel":
                await self._cancel(turn, blocker)
        if turn.entry is not None and turn.has_waited:
            # From here on a call may have been made: should this instance die, its repeat must not be skipped.
            began = replace(turn.entry.launch, state="planned")
            if not await self._ledger.put(turn.job, turn.mark, began, expect=turn.entry.version):
                return later(turn, turn.started_at)
        return None

    async def _blocker(self, turn: Turn, job: Job) -> Entry | None:
        """The launch before that is not over. One that was or will be skipped leads on to the one before it."""
        mark = turn.errand.previous
        for _ in range(_HOPS):
            if not mark or self._ledger.has_ended(turn.job, mark):
                return None
            entry = await self._ledger.get(turn.job, mark)
            if entry is None:
                return None
            if not entry.launch.is_final and not await self._gives_way(entry, turn, job):
                return entry
            if entry.launch.is_final and entry.launch.state != "skipped":
                return None
            mark = entry.launch.blocked_by or entry.launch.previous
        return None

    async def _gives_way(self, other: Entry, turn: Turn, job: Job) -> bool:
        """Whether a launch has not begun and will not: it was missed, and comes to look at itself after this one.

        It is superseded, maybe by this very one. If this one were skipped because of it, neither would go.
        """
        launch = other.launch
        if launch.state != "planned":
            return False
        due_at = launch.instant if launch.due_at is None else launch.due_at
        errand = replace(turn.errand, kind=launch.kind)
        now = turn.started_at
        if not objection(job, errand, instant=launch.instant, due_at=due_at, now=now, waited=False):
            return False
        [row] = await self._rows.launches([launch_id(turn.job, other.mark)])
        return row is None or not (row.attempts or row.state is State.RUNNING)

    async def _wait(self, turn: Turn, blocker: Entry) -> Ending:
        now = turn.started_at
        if blocker.launch.successor != turn.mark:
            told = replace(blocker.launch, successor=turn.mark)
            is_free = not blocker.launch.successor
            if not is_free or not await self._ledger.put(turn.job, blocker.mark, told, expect=blocker.version):
                return later(turn, now + 1_000)
        if turn.entry is not None and not turn.has_waited and not turn.is_repeat:
            buffered = replace(turn.entry.launch, state="buffered")
            if not await self._ledger.put(turn.job, turn.mark, buffered, expect=turn.entry.version):
                return later(turn, now)
        return later(turn, now + RECHECK_MS)

    async def _cancel(self, turn: Turn, other: Entry) -> None:
        identity = launch_id(turn.job, other.mark)
        [row] = await self._rows.launches([identity])
        reason = f"cancelled by the launch {launch_id(turn.job, turn.mark)}"
        attempts = 0 if row is None else row.attempts
        if attempts:
            reason += "; a call of it had been made, and may have taken effect"

        def cancelled(launch: Launch | None) -> Launch:
            return replace(
                launch or other.launch,
                state="cancelled",
                reason=reason,
                started_at=None if row is None else row.detail.first_attempt_at,
                finished_at=turn.started_at,
                attempts=attempts,
            )

        settled = await self._ledger.change(turn.job, other.mark, cancelled, known=other)
        if settled.state == "cancelled":
            telemetry.launches.add("cancelled")
            await self._rows.stop_launch(identity)
        await self._settler.hand_on(turn.job, settled)
