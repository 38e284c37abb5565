"""The due rows that are in memory, and where in the store the others begin.

A row is in the window from the moment it is taken in until its outcome is recorded: queued in its lane, in flight, or
waiting for the record. The window is bounded, so rows are left in the store, and for each of them there is a *mark*: a
place in its shard from where on rows of its lane were left. A lane with rows queued has marks of its own; all other
lanes of a tier share one mark a shard. Reading on from a mark serves every lane that has room, and moves all marks that
it passes.

Invariant: a row that was offered and is not in the window stands behind a mark that covers it. What is taken out of
memory without an outcome, for whatever reason, is marked; nothing is ever neither here nor marked.

Who gets room: a lane takes rows as long as it holds no more than it leaves free. When the window is full, a lane takes
the place of the last row of the heaviest lane, if that is heavier by two: a lane weighs what it has queued, and one
more while it has a call. So long queues shrink to make room for lanes that have little, and a lane that has nothing at
all is kept out only by lanes that have one row each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final

from mainspring.kernel.lanes import LaneState, Mark, Tier, place_before
from mainspring.model import Timer
from mainspring.store import Position

_ENOUGH_TO_EVICT: Final = 2


class Window:
    def __init__(self, *, limit: int, page_size: int, lane_of: Callable[[Timer], LaneState]) -> None:
        self._limit = limit
        self._page_size = page_size
        self._lane_of = lane_of
        self.rows: dict[str, Timer] = {}
        self.admitted = 0
        """Rows that were queued, ever."""
        self._by_weight: defaultdict[int, dict[str, LaneState]] = defaultdict(dict)
        """The lanes that have something queued."""
        self._heaviest = 0
        self._queues = 0
        self._lanes_left: defaultdict[int, dict[str, LaneState]] = defaultdict(dict)
        """For each shard, the lanes with rows in memory that have left rows there."""
        self._others_left: dict[tuple[int, Tier], Mark] = {}
        """For each shard and tier, where rows of other lanes begin."""
        self._again: dict[int, tuple[Mark, int]] = {}
        """For each shard, where rows begin that could not be worked on, and when to try again."""
        self._promoted: dict[int, None] = {}
        """Shards in which rows may have been left whose lane has been proven since: it may have more than it could."""
        self.pages = 0
        """Pages that were asked for."""

    def __len__(self) -> int:
        return len(self.rows)

    # --- queues ---------------------------------------------------------------------------------------

    def admit(self, timer: Timer, lane: LaneState) -> bool:
        """Queue a row in its lane, or mark where it is. False if it had to be left in the store."""
        if not self._take_in(timer, lane, has_room=self._has_room(lane)):
            return False
        self.admitted += 1
        lane.queue.append(timer)
        self.weigh(lane)
        return True

    def hold(self, timer: Timer, lane: LaneState) -> bool:
        """The same for a row that waits for nothing but the record of its outcome: that is soon over."""
        return self._take_in(timer, lane, has_room=self.room > 0)

    def _take_in(self, timer: Timer, lane: LaneState, *, has_room: bool) -> bool:
        if not has_room:
            if not self._can_evict(lane):
                self.leave(timer, lane)
                return False
            self._evict()
        self.rows[timer.uuid] = timer
        return True

    def take(self, lane: LaneState) -> Timer:
        """The next row of a lane, for its next call; it stays in the window, but is not queued any more."""
        timer = lane.queue.popleft()
        lane.in_flight += 1
        self.weigh(lane)
        return timer

    def withdraw(self, timer: Timer) -> bool:
        """Take a row out again. False if it is not queued any more."""
        lane = self._lane_of(timer)
        for place, queued in enumerate(lane.queue):
            if queued is timer:
                del lane.queue[place]
                self.weigh(lane)
                del self.rows[timer.uuid]
                return True
        return False

    def _has_room(self, lane: LaneState) -> bool:
        return len(lane.queue) < lane.tier.part_of(self._limit) - len(self.rows)

    def _can_evict(self, lane: LaneState) -> bool:
        return self._heaviest >= len(lane.queue) + bool(lane.in_flight) + _ENOUGH_TO_EVICT

    def _evict(self) -> None:
        lane = next(iter(self._by_weight[self._heaviest].values()))
        timer = lane.queue.pop()
        del self.rows[timer.uuid]
        self.leave(timer, lane)
        self.weigh(lane)

    def weigh(self, lane: LaneState) -> None:
        """The queue of a lane has changed, or the number of its calls."""
        before = lane.weight
        after = lane.weight = len(lane.queue) + bool(lane.in_flight) if lane.queue else 0
        if after == before:
            return
        if before:
            del self._by_weight[before][lane.name]
        else:
            self._queues += 1
        if after:
            self._by_weight[after][lane.name] = lane
        else:
            self._queues -= 1
            self._share_marks(lane)
        self._heaviest = max(self._heaviest, after)
        while self._heaviest and not self._by_weight[self._heaviest]:
            del self._by_weight[self._heaviest]
            self._heaviest -= 1

    # --- marks ----------------------------------------------------------------------------------------

    def leave(self, timer: Timer, lane: LaneState) -> None:
        """A row stays in the store for want of room."""
        mark = self._mark(timer)
        if lane.queue:
            lane.left[timer.shard_id] = mark.joined(lane.left.get(timer.shard_id))
            self._lanes_left[timer.shard_id][lane.name] = lane
        else:
            self._mark_others(timer.shard_id, lane.tier, mark)

    def leave_until(self, timer: Timer, at: int) -> None:
        """A row is not to be worked on before `at`; it is found again then."""
        mark, known = self._mark(timer), self._again.get(timer.shard_id)
        self._again[timer.shard_id] = (mark, at) if known is None else (mark.joined(known[0]), min(at, known[1]))

    def promote(self) -> None:
        """A lane was proven: what it had to leave before may be taken in now, though its tier then may not."""
        self._promoted.update(dict.fromkeys(shard for shard, _ in self._others_left))

    def _mark(self, timer: Timer) -> Mark:
        return Mark(place_before(timer), self.pages)

    def _mark_others(self, shard_id: int, tier: Tier, mark: Mark) -> None:
        self._others_left[shard_id, tier] = mark.joined(self._others_left.get((shard_id, tier)))

    def _share_marks(self, lane: LaneState) -> None:
        """A lane without rows in memory has no marks of its own."""
        for shard_id, mark in lane.left.items():
            self._unlist(shard_id, lane)
            self._mark_others(shard_id, lane.tier, mark)
        lane.left.clear()

    def _unlist(self, shard_id: int, lane: LaneState) -> None:
        lanes = self._lanes_left[shard_id]
        lanes.pop(lane.name, None)
        if not lanes:
            del self._lanes_left[shard_id]

    def shards_left(self) -> list[int]:
        """The shards in which rows were left."""
        return list(dict.fromkeys((*(shard for shard, _ in self._others_left), *self._lanes_left, *self._again)))

    @property
    def left_any(self) -> bool:
        return bool(self._others_left or self._lanes_left or self._again)

    def read_from(self, shard_id: int, now: int) -> Position | None:
        """The first mark in a shard behind which there is something for a lane that has room now."""
        lanes = self._lanes_left.get(shard_id, {}).values()
        places = [lane.left[shard_id].place for lane in lanes if self._wants(lane)]
        for tier in Tier:
            mark = self._others_left.get((shard_id, tier))
            if mark is not None and (self._welcomes(tier) or (shard_id in self._promoted and self.room)):
                places.append(mark.place)
        if shard_id in self._again and self._again[shard_id][1] <= now:
            places.append(self._again[shard_id][0].place)
        return min(places, default=None)

    def _wants(self, lane: LaneState) -> bool:
        """Whether a lane has used up half of its share. Less would be many pages for few rows each."""
        share = min(self._page_size, self._limit // self._queues)
        return len(lane.queue) < max(1, share // 2) and (self._has_room(lane) or self._can_evict(lane))

    @property
    def room(self) -> int:
        return max(0, self._limit - len(self.rows))

    def _welcomes(self, tier: Tier) -> bool:
        """Whether there is room for a lane that has nothing queued."""
        may_have_call = tier is not Tier.UNTRIED
        return len(self.rows) < tier.part_of(self._limit) or self._heaviest >= may_have_call + _ENOUGH_TO_EVICT

    def passed(self, shard_id: int, start: Position, end: Position | None, *, now: int, page: int) -> None:
        """What is due behind `start` up to `end` was read, and is about to be offered; None: up to the last.

        Marks that were set since the page was asked for stay: it may not show what was left meanwhile.
        """

        def moved(mark: Mark) -> Mark | None:
            if mark.pages >= page or mark.place < start or (end is not None and mark.place >= end):
                return mark
            return None if end is None else Mark(end, mark.pages)

        for lane in list(self._lanes_left.get(shard_id, {}).values()):
            if (mark := moved(lane.left[shard_id])) is not None:
                lane.left[shard_id] = mark
            else:
                del lane.left[shard_id]
                self._unlist(shard_id, lane)
        for tier in Tier:
            if (known := self._others_left.pop((shard_id, tier), None)) and (mark := moved(known)):
                self._others_left[shard_id, tier] = mark
        if shard_id in self._again and self._again[shard_id][1] <= now:
            known, at = self._again.pop(shard_id)
            if (mark := moved(known)) is not None:
                self._again[shard_id] = (mark, at)
        if end is None:
            self._promoted.pop(shard_id, None)

    # --- hand-over ------------------------------------------------------------------------------------

    def let_go(self, shard_ids: set[int], lanes: Iterable[LaneState]) -> None:
        """Take the queued rows and the marks of these shards out of memory; another owner will see to them."""
        for lane in lanes:
            leaving = [timer for timer in lane.queue if timer.shard_id in shard_ids]
            if leaving:
                lane.queue = deque(timer for timer in lane.queue if timer.shard_id not in shard_ids)
                self.weigh(lane)
            for timer in leaving:
                del self.rows[timer.uuid]
        for shard_id in shard_ids:
            for lane in list(self._lanes_left.get(shard_id, {}).values()):
                del lane.left[shard_id]
                self._unlist(shard_id, lane)
            for tier in Tier:
                self._others_left.pop((shard_id, tier), None)
            self._again.pop(shard_id, None)
            self._promoted.pop(shard_id, None)

    def busy(self, shard_ids: set[int]) -> bool:
        """Whether anything of these shards is in memory."""
        return any(timer.shard_id in shard_ids for timer in self.rows.values())
