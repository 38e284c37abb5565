"""Records how attempts ended: one fenced `finish` for all that have ended meanwhile.

An ending is kept until it is recorded, or another owner has the shard. It waits for a store that is away; it is decided
again for a row that a user changed meanwhile; and it is recorded once, even if the store's answer got lost. A shard
that was lost and has come back may have had another owner, who has judged the attempt: then that judgement stands.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from mainspring import crashpoint, telemetry
from mainspring.background import guarded
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.agenda import Agenda
from mainspring.kernel.batches import Batches, Spawn
from mainspring.kernel.carrier import Ending, conclude, conclude_small
from mainspring.kernel.fenced import FencedWrites, contained
from mainspring.model import Result, State, Timer
from mainspring.store import Finish, Put, Store, Verdict

RECENT: Final = 100
"""How many attempts of a timer are searched for one that may have been recorded: a moment ago at most."""


class Ended:
    """An attempt that is over and not yet recorded."""

    __slots__ = (
        "begun",
        "current",
        "ending",
        "fence",
        "is_found",
        "is_small",
        "is_stale",
        "may_be_recorded",
        "written",
    )

    def __init__(self, begun: Timer, ending: Ending, fence: int, *, is_found: bool) -> None:
        self.begun = begun
        self.ending = ending
        self.fence = fence
        """The fence under which it is certain that nobody else has judged the attempt."""
        self.is_found = is_found
        """Nobody here made the attempt: it was found in flight. That holds only for this very version of the row."""
        self.current: Timer | None = begun
        """The row as it is, as far as is known."""
        self.may_be_recorded = False
        """It was written, and nobody knows whether that succeeded: it may land at any time from then on."""
        self.written: Timer | None = None
        """The row as it was to be then, if it was to stay."""
        self.is_stale = False
        """The store said that the row is no longer `current`."""
        self.is_small = False
        """The database refused the row with everything that was to be said about the attempt."""

    def note_doubt(self, verdict: Verdict, finish: Finish) -> None:
        """It may have been done, unless the fence was another's; even what was refused, if the store failed later."""
        if verdict is not Verdict.FENCED:
            self.may_be_recorded = True
            self.written = finish.change.timer if isinstance(finish.change, Put) else None


class Finisher:
    def __init__(
        self,
        *,
        store: Store,
        writes: FencedWrites,
        size_of: Callable[[Timer], int],
        clock: Clock,
        agenda: Agenda,
        gone: Callable[[Timer], None],
        note: Callable[[int, int], None],
        write_apart: Callable[[Timer, Ending], None],
        tell_failure: Callable[[Timer, Ending], None],
        spawn: Spawn,
        retry_seconds: float,
    ) -> None:
        """`size_of` tells what is in a row; `gone` is told about attempts that nobody waits for now, `note` about
        rows that are due later, `tell_failure` about what did not end well. `write_apart` has the record of an ending
        written first, and brings it back without."""
        self._store = store
        self._writes = writes
        self._agenda = agenda
        self._gone = gone
        self._note = note
        self._write_apart = write_apart
        self._tell_failure = tell_failure
        self._spawn = spawn
        self._retry_seconds = retry_seconds
        self._batches: Batches[Ended] = Batches(
            self._finish, size_of=lambda ended: size_of(ended.begun), clock=clock, spawn=spawn
        )

    def loop(self) -> Coroutine[Any, Any, None]:
        return self._batches.loop()

    def end(self, begun: Timer, ending: Ending, *, fence: int, is_found: bool = False) -> None:
        """`fence` is that of the shard when the attempt was begun, or when it turned out that none is to be begun."""
        if ending.kept:
            telemetry.attempts.add(ending.outcome)
        if ending.outcome is not Result.SUCCEEDED or ending.next == "parked":
            with guarded("a failure got no line"):
                self._tell_failure(begun, ending)
        self._put(Ended(begun, ending, fence, is_found=is_found))

    def _put(self, ended: Ended) -> None:
        self._batches.put(ended.begun.shard_id, ended)

    def _conclude(self, batch: Sequence[Ended], changed: list[Ended]) -> list[tuple[Ended, Finish]]:
        """What is to be written. Adds to `changed` what may have been judged by another owner."""
        items: list[tuple[Ended, Finish]] = []
        for ended in batch:
            shard = self._agenda.shards.get(ended.begun.shard_id)
            if shard is not None and shard.fence == ended.fence:
                decide = conclude_small if ended.is_small else conclude
                items.append((ended, decide(ended.begun, ended.current, ended.ending, shard.fence)))
            elif ended.ending.record is not None:
                self._write_apart(ended.begun, ended.ending)  # a record has no fence: it says how the attempt ended
            elif shard is None:
                self._gone(ended.begun)  # another owner judges it
            else:
                changed.append(ended)
        return items

    async def _finish(self, batch: Sequence[Ended]) -> None:
        changed: list[Ended] = []
        items = self._conclude(batch, changed)
        verdicts = await self._writes.finish([finish for _, finish in items])
        crashpoint.reach(crashpoint.ATTEMPT_FINISHED)
        later: list[Ended] = []
        deposed: set[int] = set()
        for (ended, finish), verdict in zip(items, verdicts, strict=True):
            if verdict is Verdict.APPLIED:
                self._recorded(ended, finish.change.timer if isinstance(finish.change, Put) else ended.current)
            elif ended.ending.record is not None:
                self._write_apart(ended.begun, ended.ending)
                if verdict is Verdict.FENCED and self._writes.is_deposed(finish.key.shard_id, finish.fence):
                    deposed.add(finish.key.shard_id)
            elif verdict is Verdict.STALE:
                ended.is_stale = True
                changed.append(ended)
            elif verdict is Verdict.FENCED and self._writes.is_deposed(finish.key.shard_id, finish.fence):
                deposed.add(finish.key.shard_id)
                self._gone(ended.begun)
            else:
                ended.note_doubt(verdict, finish)
                if verdict is Verdict.REFUSED and not ended.is_small:
                    ended.is_small = True
                    timer = ended.begun
                    telemetry.warning(
                        "an outcome is too large for the database, and is cut; a timer that goes on is parked",
                        namespace=timer.namespace,
                        timer_id=timer.timer_id,
                        delivery_id=timer.detail.delivery_id,
                    )
                    self._put(ended)
                else:
                    later.append(ended)
        self._writes.note_deposed(deposed)
        if later:
            self._spawn(self._look_later(later))
        if changed:
            await self._look_again(changed)

    def _recorded(self, ended: Ended, row: Timer | None) -> None:
        """`row` is what has become of it, if it is not gone."""
        begun = ended.begun
        if ended.ending.recorded is not None:
            ended.ending.recorded()
        self._gone(begun)
        shard = self._agenda.shards.get(begun.shard_id)
        if shard is not None:
            shard.end(begun)
        if row is not None and row is not begun:
            self._note(row.shard_id, row.due_at)

    async def _look_later(self, endings: Sequence[Ended]) -> None:
        """Endings wait for the store: they are bounded (`unrecorded_rows`); the fence decides if they are late."""
        await asyncio.sleep(self._retry_seconds)
        await self._look_again(endings)

    async def _look_again(self, endings: Sequence[Ended]) -> None:
        """The rows may not be what they were: changed by users, or by a record of ours whose answer was lost."""
        by_shard: defaultdict[int, list[Ended]] = defaultdict(list)
        for ended in endings:
            by_shard[ended.begun.shard_id].append(ended)
        await asyncio.gather(*(self._look_at(shard_id, ended) for shard_id, ended in by_shard.items()))

    async def _look_at(self, shard_id: int, endings: Sequence[Ended]) -> None:
        shard = self._agenda.shards.get(shard_id)
        fence = None if shard is None else shard.fence
        try:
            rows = await contained(self._store.get([ended.begun.key for ended in endings]))
            over = [await self._is_over(ended, row, fence) for ended, row in zip(endings, rows, strict=True)]
        except StoreUnavailable:
            self._spawn(self._look_later(endings))
            return
        later: list[Ended] = []
        for ended, current, is_over in zip(endings, rows, over, strict=True):
            is_refused = ended.is_stale and current == ended.current  # and would be again at once
            ended.current = current
            ended.fence = ended.fence if fence is None else fence
            ended.is_stale = False
            if is_over:
                self._recorded(ended, current)
            elif is_refused:
                later.append(ended)
            else:
                self._put(ended)
        if later:
            self._spawn(self._look_later(later))

    async def _is_over(self, ended: Ended, current: Timer | None, fence: int | None) -> bool:
        """Whether the attempt was recorded: here, with an answer that got lost, or by another owner meanwhile."""
        begun = ended.begun
        if ended.is_found and (current is None or current.version != begun.version):
            return True  # it is read again, as it is
        if ended.fence == fence:
            return ended.may_be_recorded and await self._is_recorded(ended, current)
        if current is None or current.detail.delivery_id != begun.detail.delivery_id:
            return await self._is_recorded(ended, current)
        still = (current.state, current.attempts, current.fence) == (begun.state, begun.attempts, begun.fence)
        return not still

    async def _is_recorded(self, ended: Ended, current: Timer | None) -> bool:
        """Whether the history has this attempt, or the row itself shows it, if that is all that was to be written."""
        begun = ended.begun
        if not ended.ending.kept:
            return current is not None and ended.written is not None and _shows(current, ended.written, begun)
        attempt = (begun.detail.delivery_id, begun.generation, begun.attempts)
        found = await contained(self._store.history(begun.key, limit=RECENT))
        return any((entry.delivery_id, entry.generation, entry.attempt) == attempt for entry in found)


def _shows(current: Timer, written: Timer, begun: Timer) -> bool:
    """Whether a row has become what was to be written, whatever users have changed in it since."""
    outcome = written.detail.last_outcome
    if current.detail.last_outcome != outcome:
        return False
    # An earlier attempt may have had the same outcome in the same millisecond.
    return begun.detail.last_outcome != outcome or current.state is not State.RUNNING
