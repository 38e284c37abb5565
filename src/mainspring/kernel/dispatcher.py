"""From due to done: begin, carry, finish.

    starter     takes timers from lanes that have a free slot; one fenced `begin` for all of them
    carriers    one task per attempt in flight; the slot is free again as soon as the call has ended
    finisher    one fenced `finish` for all attempts that have ended meanwhile

Begin and finish each run one batch at a time, so what arrives during a commit shares the next one.

Invariants. Nothing is begun before it has a slot, nothing is sent that was not begun under a valid lease.
The window holds every timer that is queued or in flight, at most once; a row found in flight that is not in the
window belongs to an attempt on which nobody will report any more (`Carrier.lost`). After a failed write the
shard is read again from its start: what is in the store is then not known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.carrier import Carrier, Ending, conclude
from mainspring.kernel.lanes import LaneState, place_before
from mainspring.kernel.reader import Agenda
from mainspring.kernel.settings import EngineSettings
from mainspring.model import State, Timer
from mainspring.store import BATCH_LIMIT, Begin, Finish, Put, Store, Verdict

T = TypeVar("T")
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Dispatcher:
    """Everything that is in memory between the moment a timer is found due and the record of its outcome."""

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
        """`deposed` is told of shards that have a newer owner."""
        self._store = store
        self._clock = clock
        self._agenda = agenda
        self._carrier = carrier
        self._lease_valid = lease_valid
        self._deposed = deposed
        self._spawn = spawn
        self._settings = settings
        self._lanes: dict[str, LaneState] = {}
        self._window: dict[str, Timer] = {}
        self._calls: dict[str, tuple[LaneState, asyncio.Task[None] | None]] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}
        """Attempts whose call is over and whose carrier has yet to write something."""
        self._ready: deque[LaneState] = deque()
        self._starting: deque[tuple[LaneState, Timer]] = deque()
        self._finishing: deque[tuple[Timer, Ending]] = deque()
        self._start_wake = asyncio.Event()
        self._finish_wake = asyncio.Event()
        self._ended: set[str] = set()
        """Rows that left the window since the page under way was asked for: that page may show them as they were."""
        self._short: dict[str, LaneState] = {}
        """Lanes with rows left in the store, waiting for room in the window."""
        self.refills: deque[LaneState] = deque()
        """Lanes that have emptied enough to read on where they had to leave off."""
        self.wake_reader = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    @property
    def queued(self) -> int:
        return len(self._window) - len(self._calls)

    @property
    def open_circuits(self) -> int:
        return sum(lane.is_open for lane in self._lanes.values())

    def note(self, shard_id: int, due_at: int) -> None:
        """A row with this due instant was committed. Costs nothing unless it is the next one due."""
        if self._agenda.note(shard_id, due_at):
            self.wake_reader.set()

    # --- from the reader ------------------------------------------------------------------------------

    def expect_page(self) -> None:
        """A page is about to be read. There is one reader, so nobody waits for an older one."""
        self._ended.clear()

    def offer(self, timer: Timer) -> bool:
        """Take a due row in, or let its lane remember where it is. False if it had to be left in the store."""
        known = self._window.get(timer.uuid)
        if timer.uuid in self._ended or (known is not None and not self._withdraw(known, timer.version)):
            return True
        if timer.state is State.RUNNING:
            self._window[timer.uuid] = timer
            reason = "Its owner stopped before it recorded an outcome; the call may have been made."
            self._end(timer, self._carrier.lost(timer, self._clock.now_ms(), reason))
            return True
        lane = self._lane_of(timer)
        if len(lane.queue) > self._settings.window_limit - len(self._window):
            lane.remember(timer.shard_id, place_before(timer))
            return False
        self._window[timer.uuid] = timer
        lane.queue.append(timer)
        if not lane.listed:
            lane.listed = True
            self._ready.append(lane)
        return True

    def _withdraw(self, timer: Timer, version: int) -> bool:
        """Give up a queued row if there is a newer version: that may belong to another lane, and its own may stand."""
        if timer.version >= version or not self._lane_of(timer).withdraw(timer):
            return False
        del self._window[timer.uuid]
        return True

    def _lane_of(self, timer: Timer) -> LaneState:
        wanted = self._carrier.lane(timer)
        lane = self._lanes.get(wanted.name)
        if lane is None:
            settings = self._settings
            if len(self._lanes) >= settings.window_limit:
                self._lanes = {name: old for name, old in self._lanes.items() if not old.idle}
            lane = self._lanes[wanted.name] = LaneState(
                wanted, circuit_failures=settings.circuit_failures, circuit_seconds=settings.circuit_seconds
            )
        lane.limit = wanted.limit
        return lane

    def belongs(self, timer: Timer, lane: LaneState) -> bool:
        return self._carrier.lane(timer).name == lane.name

    def pump(self) -> None:
        """Give free slots to waiting timers, lane by lane in turn."""
        monotonic = self._clock.monotonic()
        for _ in range(len(self._ready)):
            lane = self._ready.popleft()
            self._fill(lane, monotonic)
            lane.listed = bool(lane.queue)
            if lane.listed:
                self._ready.append(lane)

    def _fill(self, lane: LaneState, monotonic: float) -> None:
        fair = lane.fair_slots(taken=self.in_flight, slots=self._settings.in_flight_limit)
        slots = min(lane.free_slots(monotonic), fair)
        while slots > 0 and lane.queue:
            timer = lane.queue.popleft()
            lane.in_flight += 1
            self._calls[timer.uuid] = (lane, None)
            self._starting.append((lane, timer))
            slots -= 1
        if self._starting:
            self._start_wake.set()
        self.request_refill(lane)

    def request_refill(self, lane: LaneState) -> None:
        """Have the reader read on for a lane that had to leave rows in the store, once it is worth a page."""
        if not lane.backlog:
            self._short.pop(lane.name, None)
        elif not lane.refilling:
            if self.wants_more(lane):
                lane.refilling = True
                self._short.pop(lane.name, None)
                self.refills.append(lane)
                self.wake_reader.set()
            else:
                self._short[lane.name] = lane

    def wants_more(self, lane: LaneState) -> bool:
        """Whether a lane has room for about a page more, and nearly nothing left to do."""
        limit = self._settings.window_limit
        room = limit - len(self._window)
        return len(lane.queue) < min(self._settings.page_size, room) and room >= min(
            self._settings.page_size, limit // 4
        )

    # --- starter --------------------------------------------------------------------------------------

    async def start_loop(self) -> None:
        while True:
            await self._start_wake.wait()
            self._start_wake.clear()
            while self._starting:
                await self._start([self._starting.popleft() for _ in range(min(len(self._starting), BATCH_LIMIT))])

    async def _start(self, batch: list[tuple[LaneState, Timer]]) -> None:
        now = self._clock.now_ms()
        going: list[tuple[LaneState, Timer, int]] = []
        for lane, timer in batch:
            shard = self._agenda.shards.get(timer.shard_id)
            if shard is None or shard.draining or not self._lease_valid():
                self._forget(lane, timer)
            elif (refused := self._carrier.refusal(timer, now)) is not None:
                self._release_slot(lane, timer)
                self._end(timer, refused)
            else:
                going.append((lane, timer, shard.fence))
        try:
            verdicts = await self._store.begin([Begin(t.key, fence, t.version) for _, t, fence in going])
        except StoreUnavailable as error:
            telemetry.warning("attempts cannot be begun", reason=error.detail)
            for lane, timer, _ in going:
                self._forget(lane, timer)
                self._reread_soon(timer.shard_id)
            return
        crashpoint.reach(crashpoint.ATTEMPT_BEGUN)
        # The lease may have run out during the write: what was begun then is for the next owner to judge.
        valid = self._lease_valid()
        deposed: set[int] = set()
        for (lane, timer, fence), verdict in zip(going, verdicts, strict=True):
            if verdict is Verdict.APPLIED and valid:
                begun = replace(
                    timer, state=State.RUNNING, attempts=timer.attempts + 1, version=timer.version + 1, fence=fence
                )
                self._window[timer.uuid] = begun
                self._calls[timer.uuid] = (lane, self._spawn(self._carry(lane, begun)))
                continue
            self._forget(lane, timer)
            if verdict is Verdict.FENCED and self._is_deposed(timer.shard_id, fence):
                deposed.add(timer.shard_id)
            elif verdict is not Verdict.APPLIED:
                self._spawn(self._recheck(timer))
        self._note_deposed(deposed)

    async def _recheck(self, timer: Timer) -> None:
        """A row had changed between load and begin: look at it as it is now."""
        try:
            [current] = await self._store.get([timer.key])
        except StoreUnavailable:
            self._reread_soon(timer.shard_id)
            return
        if current is not None:
            self.note(current.shard_id, current.due_at)

    async def _carry(self, lane: LaneState, timer: Timer) -> None:
        if not self._lease_valid():
            # Frozen between the write and the call. Whoever owns the shard now judges the attempt.
            self._forget(lane, timer)
            self._reread_soon(timer.shard_id)
            return
        ending = await self._ending(timer, self._carrier.carry(timer))
        crashpoint.reach(crashpoint.ATTEMPT_SENT)
        if self._window.get(timer.uuid) is not timer or timer.uuid not in self._calls:
            return  # given up meanwhile, and recorded as unknown
        monotonic = self._clock.monotonic()
        others_wait = self.in_flight >= self._settings.in_flight_limit
        if ending.reachable is not None:
            lane.record(reachable=ending.reachable, monotonic=monotonic)
        call = self._calls[timer.uuid][1]
        self._release_slot(lane, timer)
        if others_wait:
            self.pump()
        else:
            self._fill(lane, monotonic)
        if ending.settle is not None and call is not None:
            self._settling[timer.uuid] = call
            ending = await self._ending(timer, ending.settle())
            if self._settling.pop(timer.uuid, None) is None:
                return  # given up, and recorded as unknown
        self._end(timer, ending)

    async def _ending(self, timer: Timer, carrying: Coroutine[Any, Any, Ending]) -> Ending:
        try:
            return await carrying
        except Exception as error:  # noqa: BLE001 - a carrier does not raise; should it, this timer ends and no other
            telemetry.logger.exception("a call ended with an unforeseen error")
            reason = f"An unforeseen error ended the attempt ({type(error).__name__}); the call may have been made."
            return self._carrier.lost(timer, self._clock.now_ms(), reason)

    def _release_slot(self, lane: LaneState, timer: Timer) -> None:
        lane.in_flight -= 1
        self._calls.pop(timer.uuid, None)

    def _forget(self, lane: LaneState, timer: Timer) -> None:
        self._release_slot(lane, timer)
        self._window.pop(timer.uuid, None)

    def _reread_soon(self, shard_id: int) -> None:
        self._agenda.reread(shard_id, self._clock.now_ms() + round(self._settings.store_retry_seconds * 1000))

    # --- finisher -------------------------------------------------------------------------------------

    def _end(self, timer: Timer, ending: Ending) -> None:
        if ending.kept:
            telemetry.attempts.add(ending.outcome)
        self._finishing.append((timer, ending))
        self._finish_wake.set()

    async def finish_loop(self) -> None:
        while True:
            await self._finish_wake.wait()
            self._finish_wake.clear()
            while self._finishing:
                await self._finish([self._finishing.popleft() for _ in range(min(len(self._finishing), BATCH_LIMIT))])

    async def _finish(self, batch: list[tuple[Timer, Ending]]) -> None:
        stale = await self._write([(timer, timer, ending) for timer, ending in batch])
        if not stale:
            return
        rows = await self._until_available(lambda: self._store.get([timer.key for timer, _ in stale]))
        again = [(timer, current, ending) for (timer, ending), current in zip(stale, rows, strict=True)]
        self._finishing.extend(await self._write(again))  # changed once more meanwhile: another round
        for current in rows:
            if current is not None:
                self.note(current.shard_id, current.due_at)

    async def _write(self, endings: list[tuple[Timer, Timer | None, Ending]]) -> list[tuple[Timer, Ending]]:
        """Record endings against the rows as they stand; answers those whose row has changed since."""
        items: list[tuple[Timer, Ending, Finish]] = []
        for timer, current, ending in endings:
            shard = self._agenda.shards.get(timer.shard_id)
            if shard is None:
                self._window.pop(timer.uuid, None)  # another owner judges it
            else:
                items.append((timer, ending, conclude(timer, current, ending, shard.fence)))
        verdicts = await self._until_available(lambda: self._store.finish([finish for _, _, finish in items]))
        crashpoint.reach(crashpoint.ATTEMPT_FINISHED)
        stale: list[tuple[Timer, Ending]] = []
        deposed: set[int] = set()
        for (timer, ending, finish), verdict in zip(items, verdicts, strict=True):
            if verdict is Verdict.FENCED and self._is_deposed(timer.shard_id, finish.fence):
                deposed.add(timer.shard_id)
                self._window.pop(timer.uuid, None)
                continue
            if verdict is not Verdict.APPLIED:
                stale.append((timer, ending))
                continue
            self._window.pop(timer.uuid, None)
            self._ended.add(timer.uuid)
            if isinstance(finish.change, Put):
                self.note(timer.shard_id, finish.change.timer.due_at)
        self._note_deposed(deposed)
        for lane in list(self._short.values()):
            self.request_refill(lane)
        return stale

    def _is_deposed(self, shard_id: int, fence: int) -> bool:
        """Whether a fence was refused because of another's. False if that is our own: lost, and claimed anew."""
        shard = self._agenda.shards.get(shard_id)
        return shard is None or shard.fence == fence

    def _note_deposed(self, shard_ids: set[int]) -> None:
        """Of these, what has been given up already is no news; it may be about to be claimed anew."""
        known = shard_ids & self._agenda.shards.keys()
        if known:
            self._deposed(known)

    async def _until_available(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Endings wait for the store: they are few (the slots), and the fence decides when they come too late."""
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                telemetry.warning("outcomes wait for the store", reason=error.detail)
                await asyncio.sleep(self._settings.store_retry_seconds)

    # --- hand-over ------------------------------------------------------------------------------------

    def let_go(self, shard_ids: set[int]) -> None:
        """Take the queued timers of these shards out of memory; they stay in the store."""
        for lane in self._lanes.values():
            leaving = [timer for timer in lane.queue if timer.shard_id in shard_ids]
            if leaving:
                lane.queue = deque(timer for timer in lane.queue if timer.shard_id not in shard_ids)
            for timer in leaving:
                self._window.pop(timer.uuid, None)
            for shard_id in shard_ids & lane.backlog.keys():
                del lane.backlog[shard_id]

    def busy(self, shard_ids: set[int]) -> bool:
        """Whether anything of these shards is in flight or not yet recorded."""
        return any(timer.shard_id in shard_ids for timer in self._window.values())

    def give_up(self, shard_ids: set[int]) -> None:
        """Stop waiting for calls of these shards: their outcome is unknown, and recorded so."""
        reason = "This instance stopped while the call was in flight; the call may have been made."
        calls = {uuid: call for uuid, (_, call) in self._calls.items() if call is not None} | self._settling
        for uuid, call in calls.items():
            timer = self._window[uuid]
            if timer.shard_id in shard_ids:
                if self._settling.pop(uuid, None) is None:
                    self._release_slot(self._calls[uuid][0], timer)
                self._end(timer, self._carrier.lost(timer, self._clock.now_ms(), reason))
                call.cancel()
