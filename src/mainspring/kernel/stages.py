"""Where each row of the window is, and what makes it move on.

    queued       in the queue of its lane. It moves when it is the lane's turn and there is a slot, for a large row also
                 bytes, and room among what waits for its record; or it gives way to others, and is bookmarked
    in flight    it has a slot, and its bytes: about to be begun, or with its call. It moves when the call is over
    unrecorded   its call is over, or was given up, or nobody here made it. It keeps its bytes, and is counted with its
                 namespace and its shard. It moves when the record is written, or another owner has the shard

Invariants. Every row in the window is in exactly one of these. A lane with something queued waits for exactly one thing
(`turns`), and whoever gives that back wakes it. Small rows wait for no bytes. Rows of a shard in which nothing is
recorded are set aside, so that they do not stand in front of others in their lane.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.kernel.lanes import Lanes, LaneState
from mainspring.kernel.settings import EngineSettings
from mainspring.kernel.shares import Tier
from mainspring.kernel.slots import Bytes, Slots
from mainspring.kernel.turns import Turns
from mainspring.kernel.unrecorded_rows import UnrecordedRows
from mainspring.kernel.window import Window, bytes_for_large
from mainspring.model import Timer

ROUSE_SECONDS: Final = 0.05
"""The pause between two looks at lanes that wait for a slot of their own."""
PROMOTE_SECONDS: Final = 1.0
"""The pause between two looks for what was left of lanes that have been proven since."""
_TIERS_FROM: Final = tuple(tuple(Tier)[first:] + tuple(Tier)[:first] for first in Tier)
"""All tiers, beginning with each."""


class Stages:
    def __init__(
        self,
        *,
        lanes: Lanes,
        lane_of: Callable[[Timer], LaneState],
        begin: Callable[[LaneState, Timer], None],
        later: Callable[[Timer], None],
        clock: Clock,
        settings: EngineSettings,
    ) -> None:
        """`begin` is called with each row that is in flight from now on, `later` with those to be found again."""
        self._begin = begin
        self._later = later
        self._clock = clock
        everybody = lanes.parties.all
        self._turns = Turns()
        self.window = Window(
            limit=settings.window_limit,
            byte_limit=settings.window_bytes,
            lane_of=lane_of,
            emptied=self._turns.leave,
            everybody=everybody,
        )
        # What is in flight is also in the window, and cannot give way: part of the window is for what waits.
        self._slots = Slots(min(settings.in_flight_limit, max(1, settings.window_limit * 3 // 4)), everybody)
        self._bytes = Bytes(max(1, bytes_for_large(settings.window_bytes) * 3 // 4), everybody.large)
        self._unrecorded = UnrecordedRows(limit=max(2, settings.window_limit * 3 // 4), clock=clock)
        self._rouse_at = 0.0
        self._any_promoted = False
        self._promote_at = 0.0
        self._is_about_to_give = False
        self._first_tier = 0
        """The tier that gets the next slot before the others do."""

    # --- a row moves ----------------------------------------------------------------------------------

    def queue(self, timer: Timer, lane: LaneState) -> bool:
        """Take a row in, or bookmark where it is. False if it had to be left in the store."""
        if self._unrecorded.is_stuck(timer.shard_id):
            self._later(timer)
            return False
        if not self.window.admit(timer, lane):
            return False
        self._turns.arrive(lane)
        return True

    def find(self, timer: Timer, lane: LaneState) -> bool:
        """The same for a row that was found in flight: it waits for nothing but its record."""
        tier = lane.tier
        if not self._has_all(timer, lane, tier, self.window.large_size(timer)):
            self._later(timer)
            return False
        if not self.window.hold(timer, lane):
            return False
        self._take_bytes(timer, lane, tier)
        self._unrecorded.add(timer.uuid, lane.site.around[0], timer.shard_id)
        return True

    def release(self, timer: Timer, lane: LaneState) -> None:
        """It is no longer in flight."""
        lane.occupy(-1)
        self._slots.release(timer.uuid)
        self.window.weigh(lane)
        self._turns.rouse(lane)

    def await_record(self, timer: Timer, lane: LaneState) -> None:
        """Its call is over."""
        self._unrecorded.add(timer.uuid, lane.site.around[0], timer.shard_id)
        self.release(timer, lane)

    def gone(self, timer: Timer) -> None:
        """It is no longer in memory."""
        self.window.drop(timer.uuid)
        self._bytes.release(timer.uuid)
        self._unrecorded.remove(timer.uuid)
        if self._turns.relieve():
            self.give()

    # --- lanes get slots ------------------------------------------------------------------------------

    @property
    def waits_for_circuits(self) -> bool:
        """Whether lanes wait for something that nobody announces: a circuit that closes, a limit that moves."""
        return self._turns.any_resting

    def promote(self) -> None:
        """A lane has been proven."""
        self._any_promoted = True

    def rouse(self, *lanes: LaneState) -> None:
        """Let these lanes, or all, try again."""
        self._turns.rouse(*lanes)

    def serve(self) -> None:
        """Give free slots to waiting timers; now and then, also to lanes that their own limit or circuit held back."""
        monotonic = self._clock.monotonic()
        if monotonic >= self._rouse_at:
            self._rouse_at = monotonic + ROUSE_SECONDS
            self._turns.rouse()
        if self._any_promoted and monotonic >= self._promote_at:
            self._any_promoted, self._promote_at = False, monotonic + PROMOTE_SECONDS
            self.window.promote()
        self.give()

    def give_soon(self) -> None:
        """The same in the next step of the event loop, once for all who ask for it in this one: of many calls that end
        together, each frees a slot, and looking for whom costs the same for one as for all of them."""
        if not self._is_about_to_give:
            self._is_about_to_give = True
            asyncio.get_running_loop().call_soon(self.give)

    def give(self) -> None:
        """Whichever tier has got a slot comes last next time: none that never runs out of timers shuts out another.

        What is wrong with one lane costs no other, nor whoever has given something back.
        """
        self._is_about_to_give = False
        monotonic = self._clock.monotonic()
        for tier in _TIERS_FROM[self._first_tier]:
            for _ in range(self._turns.count(tier)):
                free = self._slots.free(tier)
                lane = self._turns.next(tier, free=free, kept=self._slots.kept_for_others(tier)) if free > 0 else None
                if lane is None:
                    break
                try:
                    if self._fill(lane, tier, monotonic):
                        self._first_tier = (tier + 1) % len(_TIERS_FROM)
                except Exception:  # noqa: BLE001 - see above
                    telemetry.exception("a lane cannot be served; it will be tried again")
                    if lane.queue and not lane.turn:
                        self._turns.wait(lane, "resting")

    def _fill(self, lane: LaneState, tier: Tier, monotonic: float) -> bool:
        """Returns whether the lane has taken any slots."""
        own = lane.free_slots(monotonic)
        most = min(own, self._slots.fair(lane, tier)) if own else 0
        taken = 0
        is_short = False
        try:
            while taken < most and lane.queue and self._slots.free(tier) > 0:
                rows = self._next(lane, tier)
                if rows is not None:
                    self._take(lane, tier, rows)
                    taken += 1
                elif not self._set_aside(lane):
                    is_short = True
                    break
        finally:
            self.window.weigh(lane)
        if lane.queue:
            turn: Literal["ready", "resting", "short"] = "ready"
            if is_short:
                turn = "short"
            elif taken >= own or (lane.tier is tier and self._slots.has_room(lane.site, tier)):
                turn = "resting"  # others could have more: it has its share, until one of its calls ends
            self._turns.wait(lane, turn)
        return taken > 0

    def _next(self, lane: LaneState, tier: Tier) -> deque[Timer] | None:
        """Where the next row of a lane is that has everything it needs besides a slot."""
        first, small = lane.queue.first(), lane.queue.small
        if self._has_all(first[0], lane, tier, self.window.size(first[0].uuid)):
            return first
        return small if first is not small and small and self._has_all(small[0], lane, tier, 0) else None

    def _has_all(self, timer: Timer, lane: LaneState, tier: Tier, size: int) -> bool:
        """Whether there are bytes for a large row, and room for another that will wait for its record."""
        if size and not self._bytes.has_room_for(lane.large, tier, size):
            return False
        return self._unrecorded.has_room(lane.site.around[0], timer.shard_id)

    def _take(self, lane: LaneState, tier: Tier, rows: deque[Timer]) -> None:
        timer = self.window.take(lane, rows)
        lane.occupy(1)
        self._slots.take(timer.uuid, lane, tier)
        self._take_bytes(timer, lane, tier)
        self._begin(lane, timer)

    def _take_bytes(self, timer: Timer, lane: LaneState, tier: Tier) -> None:
        if size := self.window.size(timer.uuid):
            self._bytes.take(timer.uuid, lane.large, tier, size)

    def _set_aside(self, lane: LaneState) -> bool:
        """Take rows of a stuck shard out of a lane. False if that is not the reason."""
        for rows in (lane.queue.small, lane.queue.large):
            if rows and self._unrecorded.is_stuck(rows[0].shard_id):
                for timer in self.window.take_out(lane, rows[0].shard_id):
                    self._later(timer)
                return True
        return False
