"""From due to done: begin, carry, finish.

    starter     takes timers from lanes that have a free slot; one fenced `begin` for all of them
    carriers    one task per attempt in flight; the slot is free again as soon as the call has ended
    finisher    records what came of it

Invariants. Nothing is begun before it has a slot, nothing is sent that was not begun under a valid lease.
The window holds every timer that is queued, in flight or unrecorded, at most once (`stages`); a row found in flight
that is not in the window belongs to an attempt on which no report will come (`Carrier.lost`). A row that leaves
the window without an outcome is bookmarked, and read again: what is in the store is then not known. What is wrong with
one row, or with one shard, is told by the store item by item, and costs no other row anything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.background import guarded
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.agenda import Agenda, ShardState
from mainspring.kernel.batches import Batches, Spawn
from mainspring.kernel.carrier import Carrier, Carry, Ending, ReadsAhead, TellsFailures, put_aside
from mainspring.kernel.fenced import FencedWrites, contained
from mainspring.kernel.finisher import Finisher
from mainspring.kernel.lanes import Lanes, LaneState
from mainspring.kernel.settings import EngineSettings
from mainspring.kernel.shares import Tier
from mainspring.kernel.stages import Stages
from mainspring.kernel.unsent import Unsent
from mainspring.model import State, Timer, TimerKey
from mainspring.store import BATCH_LIMIT, Begin, Store, Verdict
from mainspring.unreadable import Unreadable, reason_of, set_aside, timer_name

_NOT_GIVEN_BACK: Final = "what a timer had could not be given to others"


class Dispatcher:
    """Everything in memory between the moment a timer is found due and the record of its outcome."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        agenda: Agenda,
        carrier: Carrier,
        lease_valid: Callable[[], bool],
        deposed: Callable[[set[int]], None],
        spawn: Spawn,
        settings: EngineSettings,
    ) -> None:
        """`deposed` is called with shards that have a newer owner."""
        self._store = store
        self._clock = clock
        self._agenda = agenda
        self._carrier = carrier
        self._ahead = carrier if isinstance(carrier, ReadsAhead) else None
        self._lease_valid = lease_valid
        self._writes = FencedWrites(store=store, clock=clock, agenda=agenda, deposed=deposed)
        self._spawn = spawn
        self._settings = settings
        self._lanes = Lanes(settings, clock)
        self._stages = Stages(
            lanes=self._lanes,
            lane_of=self._lane_of,
            begin=self._begin,
            later=self._find_again,
            clock=clock,
            settings=settings,
        )
        self.window = self._stages.window
        self._calls: dict[str, tuple[LaneState, asyncio.Task[None] | None]] = {}
        self._unsent = Unsent(settings.window_limit)
        self._checking: set[int] = set()
        """Shards whose unsent attempts are being looked at."""
        self._changed: dict[str, tuple[int, int]] = {}
        """Rows that were found to differ from those in flight, their shards and due instants: to be read afterwards."""
        self._writing: dict[str, asyncio.Task[None]] = {}
        """Attempts whose call is over and whose carrier has yet to write something."""
        self._starting: Batches[tuple[LaneState, Timer]] = Batches(
            self._start, size_of=lambda item: self.window.most(item[1].uuid), clock=clock, spawn=spawn
        )
        self._finisher = Finisher(
            store=store,
            writes=self._writes,
            size_of=lambda timer: self.window.most(timer.uuid),
            clock=clock,
            agenda=agenda,
            gone=self._leave_window,
            note=self.note,
            write_apart=self._begin_to_write,
            tell_failure=carrier.tell_failure if isinstance(carrier, TellsFailures) else _nothing,
            spawn=spawn,
            retry_seconds=settings.store_retry_seconds,
        )
        self.wake_reader = asyncio.Event()

    @property
    def loops(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """To be run as long as the engine runs."""
        return self._starting.loop(), self._finisher.loop()

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    @property
    def queued(self) -> int:
        return len(self.window) - len(self._calls)

    @property
    def open_circuits(self) -> int:
        return sum(lane.is_open for lane in self._lanes)

    def note(self, shard_id: int, due_at: int) -> None:
        """A row with this due instant was committed. Costs nothing unless it is the next one due."""
        if self._agenda.note(shard_id, due_at):
            self.wake_reader.set()

    # --- from the reader ------------------------------------------------------------------------------

    def offer(self, timers: Iterable[Timer], page: int) -> None:
        """Take due rows of one shard in, in their order, or bookmark where they are.

        One with which that cannot be done, for whatever reason, is set aside and tried again, and others are not.
        """
        full: set[LaneState] = set()
        for timer in timers:
            try:
                self._offer(timer, page, full)
            except Exception as error:  # noqa: BLE001 - see above
                set_aside(Unreadable("timer", timer_name(timer.key), reason_of(error), timer.version))
                self._find_again(timer)

    def _offer(self, timer: Timer, page: int, full: set[LaneState]) -> None:
        """`full` are lanes of which a row was left in the store: those after it stand behind the same bookmark."""
        shard = self._agenda.shards.get(timer.shard_id)
        if shard is None or shard.draining or self._is_known(timer, shard, page):
            return
        if not self._unsent.has_room(timer):
            self._find_again(timer)  # and others that are behind it may be taken in: those for which it has to wait
            self._check_unsent(timer.shard_id)
            return
        lane = self._lane_of(timer)
        if timer.state is State.RUNNING and not self._unsent.has(timer, fence=shard.fence):
            reason = "Its owner stopped before it recorded an outcome; the call may have been made."
            lost = self._carrier.lost(timer, self._clock.now_ms(), reason)
            if self._stages.find(timer, lane):
                self._finisher.end(timer, lost, fence=shard.fence, is_found=True)
                return
        elif lane in full or self._stages.queue(timer, lane):
            return
        elif not self.window.large_size(timer):  # small ones of a lane may find room where a large one does not
            full.add(lane)
        if lane.idle and lane.tier is Tier.UNTRIED:
            self._lanes.forget(lane)

    def _is_known(self, timer: Timer, shard: ShardState, page: int) -> bool:
        """Whether a row is in memory, or was until just now. If it differs from that, it will be looked at again."""
        known = self.window.rows.get(timer.uuid)
        ended = shard.has_ended(timer, page)
        if ended is not None:
            if known is None and not ended - 1 <= timer.version <= ended:
                self._find_again(timer)  # the page may show it as it was, or as it is
            return True
        if known is None or known.version == timer.version:
            return known is not None
        if self.window.withdraw(known):
            return False
        self._changed[timer.uuid] = (timer.shard_id, timer.due_at)
        return True

    def _lane_of(self, timer: Timer) -> LaneState:
        return self._lanes.find(self._carrier.lane(timer))

    @property
    def waits_for_circuits(self) -> bool:
        """Whether lanes wait for something that nobody announces: a circuit that closes, a limit that moves."""
        return self._stages.waits_for_circuits

    def pump(self, *names: str) -> None:
        """Give free slots to waiting timers. For whoever knows that lanes of these names, or all, have room again."""
        lanes = [lane for name in names if (lane := self._lanes.get(name)) is not None]
        if lanes or not names:
            self._stages.rouse(*lanes)
        self._stages.give()

    def serve(self) -> None:
        """Give free slots to waiting timers."""
        self._stages.serve()

    def serve_soon(self) -> None:
        """The same in the next step of the event loop, once for all who ask for it in this one."""
        self._stages.give_soon()

    # --- starter --------------------------------------------------------------------------------------

    def _begin(self, lane: LaneState, timer: Timer) -> None:
        self._calls[timer.uuid] = (lane, None)
        self._starting.put(timer.shard_id, (lane, timer))

    def _judge(self, batch: Sequence[tuple[LaneState, Timer]], now: int) -> list[tuple[LaneState, Timer, int]]:
        """Those that may be begun, and under which fence."""
        going: list[tuple[LaneState, Timer, int]] = []
        for lane, timer in batch:
            shard = self._agenda.shards.get(timer.shard_id)
            if shard is None or shard.draining or not self._lease_valid():
                self._put_back(lane, timer)
            elif timer.state is State.RUNNING:  # begun before, and nothing was sent
                self._spawn(self._send_begun(lane, timer, shard.fence))
            elif (refused := self._carrier.refusal(timer, now)) is not None:
                self._end_call(lane, timer)
                self._finisher.end(timer, refused, fence=shard.fence)
            elif not self._unsent.add(timer, fence=shard.fence):
                self._put_back(lane, timer)
                self._check_unsent(timer.shard_id)
            else:
                going.append((lane, timer, shard.fence))
        return going

    async def _start(self, batch: Sequence[tuple[LaneState, Timer]]) -> None:
        now = self._clock.now_ms()
        going = self._judge(batch, now)
        verdicts = await self._writes.begin([Begin(timer.key, fence, timer.version) for _, timer, fence in going])
        crashpoint.reach(crashpoint.ATTEMPT_BEGUN)
        # The lease may have run out during the write: what was begun by then is read again, and judged.
        valid = self._lease_valid()
        deposed: set[int] = set()
        begun: list[tuple[LaneState, Timer]] = []
        for (lane, timer, fence), verdict in zip(going, verdicts, strict=True):
            if verdict is Verdict.APPLIED and valid:
                version = timer.version + 1
                running = replace(timer, state=State.RUNNING, attempts=timer.attempts + 1, version=version, fence=fence)
                begun.append((lane, running))
            elif verdict is Verdict.STALE:
                self._forget(lane, timer)
                self._spawn(self._recheck(timer))
            elif verdict is Verdict.REFUSED:
                self._unsent.remove(timer.shard_id, timer.uuid)
                self._end_call(lane, timer)
                reason = "The database cannot hold the record of another attempt."
                self._finisher.end(timer, put_aside(timer, now, reason), fence=fence)
            else:
                if verdict is Verdict.FENCED:
                    self._unsent.remove(timer.shard_id, timer.uuid)
                self._put_back(lane, timer)
                if verdict is Verdict.FENCED and self._writes.is_deposed(timer.shard_id, fence):
                    deposed.add(timer.shard_id)
        self._send(begun)
        self._writes.note_deposed(deposed)
        self.serve()

    def _send(self, begun: Sequence[tuple[LaneState, Timer]]) -> None:
        """Those that their carrier reads ahead for are sent when it has, and hold up no others."""
        together: defaultdict[str, list[tuple[LaneState, Timer]]] = defaultdict(list)
        for lane, timer in begun:
            if self._ahead is not None and self._ahead.reads_ahead(timer):
                self.window.rows[timer.uuid] = timer
                together[timer.namespace].append((lane, timer))
            else:
                self._begun(lane, timer)
        for ahead in together.values():
            self._spawn(self._send_together(ahead))

    async def _send_together(self, begun: Sequence[tuple[LaneState, Timer]]) -> None:
        assert self._ahead is not None, "Expected a carrier that reads ahead"
        carries: Sequence[Carry | None] = [None] * len(begun)
        with guarded("what many calls need could not be read at once"):
            carries = await self._ahead.read_ahead([timer for _, timer in begun])
        for (lane, timer), carry in zip(begun, carries, strict=True):
            self._begun(lane, timer, carry)

    async def _send_begun(self, lane: LaneState, timer: Timer, fence: int) -> None:
        """Since it was read, a row that was begun but not sent may have been changed, or judged by another owner."""
        try:
            [current] = await contained(self._store.get([timer.key]))
        except StoreUnavailable:
            self._put_back(lane, timer)
            return
        shard = self._agenda.shards.get(timer.shard_id)
        is_ours = shard is not None and not shard.draining and shard.fence == fence and self._lease_valid()
        if is_ours and current is not None and (current.version, current.fence) == (timer.version, fence):
            self._begun(lane, timer)
        else:
            self._put_back(lane, timer)
        self.serve()

    def _begun(self, lane: LaneState, begun: Timer, carry: Carry | None = None) -> None:
        self.window.rows[begun.uuid] = begun
        carry = carry or partial(self._carrier.carry, begun)
        self._calls[begun.uuid] = (lane, self._spawn(self._carry(lane, begun, carry)))

    def _check_unsent(self, shard_id: int) -> None:
        if shard_id not in self._checking:
            self._checking.add(shard_id)
            self._spawn(self._look_at_unsent(shard_id))

    async def _look_at_unsent(self, shard_id: int) -> None:
        """There is no room for further attempts: some of these may be over because users have changed their rows."""
        attempts = self._unsent.of(shard_id)
        try:
            for start in range(0, len(attempts), BATCH_LIMIT):
                batch = attempts[start : start + BATCH_LIMIT]
                rows = await contained(self._store.get([TimerKey(shard_id, uuid) for uuid, _ in batch]))
                for (uuid, attempt), row in zip(batch, rows, strict=True):
                    self._unsent.compare(shard_id, uuid, attempt, row)
        except StoreUnavailable:
            pass  # what was put back asks again
        finally:
            self._checking.discard(shard_id)

    async def _recheck(self, timer: Timer) -> None:
        """A row had changed between load and begin: look at it as it is now. Whoever has read it meanwhile may have it
        in memory already, and in flight."""
        try:
            [current] = await contained(self._store.get([timer.key]))
        except StoreUnavailable:
            self._find_again(timer)
            return
        if current is not None and current.version == timer.version:
            self._find_again(timer)  # whatever the store has against it, it would say so again at once
        elif current is not None:
            self.note(current.shard_id, current.due_at)

    async def _carry(self, lane: LaneState, timer: Timer, carry: Carry) -> None:
        if not self._lease_valid():
            self._put_back(lane, timer)  # frozen between the write and the call: whoever owns the shard judges it
            return
        self._unsent.remove(timer.shard_id, timer.uuid)
        ending = await self._ending(timer, carry())
        crashpoint.reach(crashpoint.ATTEMPT_SENT)
        if self.window.rows.get(timer.uuid) is not timer or timer.uuid not in self._calls:
            return  # given up meanwhile, and recorded as unknown
        reachable = ending.reachable
        if reachable is not None and lane.record(reachable=reachable, monotonic=self._clock.monotonic()):
            self._stages.promote()
        self._end_call(lane, timer)
        self._stages.give_soon()
        if ending.write is None or (ending.record is not None and self._writes.takes_records):
            self._finisher.end(timer, ending, fence=timer.fence)
        else:
            await self._write_apart(timer, ending)

    def _begin_to_write(self, timer: Timer, ending: Ending) -> None:
        self._spawn(self._write_apart(timer, ending))

    async def _write_apart(self, timer: Timer, ending: Ending) -> None:
        """Have the carrier write what it has to before the row is."""
        call = asyncio.current_task()
        assert call is not None, "Expected a task"
        assert ending.write is not None, "Expected something to write"
        self._writing[timer.uuid] = call
        ending = await self._ending(timer, ending.write())
        if self._writing.pop(timer.uuid, None) is not None:  # else it was given up, and recorded as unknown
            self._finisher.end(timer, ending, fence=timer.fence)

    async def _ending(self, timer: Timer, carrying: Coroutine[Any, Any, Ending]) -> Ending:
        try:
            return await carrying
        except Exception as error:  # noqa: BLE001 - a carrier does not raise; if it does, this timer ends and no other
            telemetry.exception(
                "a call ended with an unforeseen error", namespace=timer.namespace, timer_id=timer.timer_id
            )
            reason = f"An unforeseen error ended the attempt ({type(error).__name__}); the call may have been made."
            return self._carrier.lost(timer, self._clock.now_ms(), reason)

    def _end_call(self, lane: LaneState, timer: Timer) -> None:
        """From now on it waits for its record: it gets that whatever goes wrong here, and so do others after it."""
        self._calls.pop(timer.uuid, None)
        with guarded(_NOT_GIVEN_BACK):
            self._stages.await_record(timer, lane)

    def _forget(self, lane: LaneState, timer: Timer) -> None:
        self._calls.pop(timer.uuid, None)
        with guarded(_NOT_GIVEN_BACK):
            self._stages.release(timer, lane)
        self._leave_window(timer)

    def _leave_window(self, timer: Timer) -> None:
        with guarded(_NOT_GIVEN_BACK):
            self._stages.gone(timer)
        if timer.uuid in self._changed:
            self.note(*self._changed.pop(timer.uuid))
        if self.window.left_any:
            self.wake_reader.set()

    def _put_back(self, lane: LaneState, timer: Timer) -> None:
        """Whatever became of the row in the store, it is read again, but not at once: that would be too often."""
        self._forget(lane, timer)
        self._find_again(timer)

    def _find_again(self, timer: Timer) -> None:
        at = self._clock.monotonic() + self._settings.store_retry_seconds
        shard = self._agenda.shards.get(timer.shard_id)
        if shard is not None and not shard.draining:
            self.window.leave_until(timer, at)
            self._agenda.look_soon(timer.shard_id, at)

    # --- hand-over ------------------------------------------------------------------------------------

    def let_go(self, shard_ids: set[int]) -> None:
        """Take the queued timers of these shards out of memory; they stay in the store."""
        self.window.let_go(shard_ids, self._lanes)
        self._unsent.let_go(shard_ids)

    def give_up(self, shard_ids: set[int]) -> None:
        """Stop waiting for calls of these shards: their outcome is unknown, and recorded as that."""
        reason = "This instance stopped while the call was in flight; the call may have been made."
        calls = {uuid: call for uuid, (_, call) in self._calls.items() if call is not None} | self._writing
        for uuid, call in calls.items():
            timer = self.window.rows[uuid]
            if timer.shard_id in shard_ids:
                lost = self._carrier.lost(timer, self._clock.now_ms(), reason)
                if self._writing.pop(uuid, None) is None:
                    self._end_call(self._calls[uuid][0], timer)
                self._finisher.end(timer, lost, fence=timer.fence)
                call.cancel()


def _nothing(timer: Timer, ending: Ending) -> None:
    """For a carrier that tells nobody."""
