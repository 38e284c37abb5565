"""The due rows that are in memory, and where in the store the others begin.

A row is in the window from the moment it is taken in until its outcome is recorded: queued in its lane, in flight, or
waiting for the record. The window is bounded, so rows are left in the store, and for each of them there is a *mark*: a
place in its shard from where on rows of its lane were left. A lane with rows queued has marks of its own, and so have
the site and the namespace around it, for their lanes without; all others share the marks of everybody, one for a shard
and a tier. Reading on from a mark serves every lane that has room, and moves all marks that it passes.

Invariant: a row that was offered and is not in the window stands behind a mark that covers it. What is taken out of
memory without an outcome, for whatever reason, is marked; nothing is ever neither here nor marked.

Who gets room: a lane takes rows as long as it holds no more than it leaves free, and the same holds for its site and
its namespace (see `shares`). When the window is full, one takes the place of the last row of the heaviest, if that is
heavier by two: of the heaviest namespace, or else of the heaviest site in its own, or else of the heaviest lane there.
A lane weighs what it has queued, and one more while it has a call. So long queues, and crowds of one site, shrink to
make room for those that have little; one that has nothing at all is kept out only by others that have one row each.

The window is bounded in bytes, too: where rows are large there is room for as many as fit at their average size. The
last of them may be larger than what was left, so that none is too large to be taken in.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final

from mainspring.kernel.lanes import LaneState, place_before
from mainspring.kernel.shares import Mark, Member, Party, Tier, fitting
from mainspring.model import Timer
from mainspring.store import Position

_ENOUGH_TO_EVICT: Final = 2


class Window:
    def __init__(
        self,
        *,
        limit: int,
        byte_limit: int,
        page_size: int,
        lane_of: Callable[[Timer], LaneState],
        everybody: Party,
    ) -> None:
        self._limit = limit
        self._byte_limit = byte_limit
        self._page_size = page_size
        self._lane_of = lane_of
        self.rows: dict[str, Timer] = {}
        self.bytes = 0
        """What is in them."""
        self.admitted = 0
        """Rows that were queued, ever."""
        self._everybody = everybody
        self._queues = 0
        """Lanes that have something queued."""
        self._left: defaultdict[int, dict[Member, None]] = defaultdict(dict)
        """For each shard, who has left rows there."""
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
            while (heavier := self._heavier(lane.site, _weight_of(lane))) is not None:
                self._evict(heavier)
                if self.room:  # a small row does not make room for a large one
                    break
            else:
                self.leave(timer, lane)
                return False
        self.rows[timer.uuid] = timer
        self.bytes += size_of(timer)
        return True

    def drop(self, uuid: str) -> None:
        """A row is in memory no more, if it was."""
        if (timer := self.rows.pop(uuid, None)) is not None:
            self.bytes -= size_of(timer)

    def take(self, lane: LaneState) -> Timer:
        """The next row of a lane, for its next call; it stays in the window, but is not queued any more."""
        timer = lane.take()
        self.weigh(lane)
        return timer

    def withdraw(self, timer: Timer) -> bool:
        """Take a row out again. False if it is not queued any more."""
        lane = self._lane_of(timer)
        for place, queued in enumerate(lane.queue):
            if queued is timer:
                del lane.queue[place]
                self.weigh(lane)
                self.drop(timer.uuid)
                return True
        return False

    def _has_room(self, lane: LaneState) -> bool:
        free = lane.tier.part_of(self._capacity) - len(self.rows)
        return len(lane.queue) < free and self._have_room(lane.site, free)

    def _have_room(self, party: Party, free: int) -> bool:
        """Whether a party and the one around it may take in another row, if so many are free."""
        return all(one.has_room(free=free, taken=one.weight) for one in (party, *party.around))

    def _heavier(self, party: Party, weight: int) -> Party | None:
        """The outermost party around a member of this one that weighs so much in which somebody else can give way."""
        outside_in = (*reversed(party.around), party)
        for one, inside in zip(outside_in, (*outside_in[1:], None), strict=True):
            if one.members.top >= (weight if inside is None else inside.weight) + _ENOUGH_TO_EVICT:
                return one
        return None

    def _evict(self, party: Party) -> None:
        heavy: Member = party
        while isinstance(heavy, Party):
            heavy = heavy.members.heaviest
        assert isinstance(heavy, LaneState)
        timer = heavy.queue.pop()
        self.drop(timer.uuid)
        self.leave(timer, heavy)
        self.weigh(heavy)

    def weigh(self, lane: LaneState) -> None:
        """The queue of a lane has changed, or the number of its calls."""
        before = lane.weight
        lane.weight = _weight_of(lane) if lane.queue else 0
        change = lane.weight - before
        if not change:
            return
        self._queues += bool(lane.weight) - bool(before)
        member: Member = lane
        for party in (lane.site, *lane.site.around):
            party.members.move(member, before)
            if not member.weight:
                self._pass_on_marks(member, party)
            before, member = party.weight, party
            party.weight += change

    # --- marks ----------------------------------------------------------------------------------------

    def leave(self, timer: Timer, lane: LaneState) -> None:
        """A row stays in the store for want of room."""
        around: tuple[Member, ...] = (lane, lane.site, *lane.site.around)
        known = next((member for member in around if member.weight), self._everybody)
        self._set_mark(known, timer.shard_id, lane.tier, self._mark(timer))

    def leave_until(self, timer: Timer, at: int) -> None:
        """A row is not to be worked on before `at`; it is found again then."""
        mark, known = self._mark(timer), self._again.get(timer.shard_id)
        self._again[timer.shard_id] = (mark, at) if known is None else (mark.joined(known[0]), min(at, known[1]))

    def promote(self) -> None:
        """A lane was proven: what it had to leave before may be taken in now, though its tier then may not."""
        self._promoted.update(dict.fromkeys(self._left))

    def _mark(self, timer: Timer) -> Mark:
        return Mark(place_before(timer), self.pages)

    def _set_mark(self, member: Member, shard_id: int, tier: Tier, mark: Mark) -> None:
        member.left[shard_id, tier] = mark.joined(member.left.get((shard_id, tier)))
        self._left[shard_id][member] = None

    def _pass_on_marks(self, member: Member, party: Party) -> None:
        """Who has nothing in memory has no marks of its own."""
        for shard_id, tier in tuple(member.left):
            self._set_mark(party, shard_id, tier, member.left.pop((shard_id, tier)))
            self._unlist(shard_id, member)

    def _unlist(self, shard_id: int, member: Member) -> None:
        """Unless it has a mark there."""
        if not any((shard_id, tier) in member.left for tier in Tier):
            members = self._left[shard_id]
            members.pop(member, None)
            if not members:
                del self._left[shard_id]

    def shards_left(self) -> list[int]:
        """The shards in which rows were left."""
        return list(dict.fromkeys((*self._left, *self._again)))

    @property
    def left_any(self) -> bool:
        return bool(self._left or self._again)

    def read_from(self, shard_id: int, now: int) -> Position | None:
        """The first mark in a shard behind which there is something for a lane that has room now."""
        places = [
            mark.place
            for member in self._left.get(shard_id, ())
            for tier in Tier
            if (mark := member.left.get((shard_id, tier))) and self._wants(member, tier, shard_id)
        ]
        if shard_id in self._again and self._again[shard_id][1] <= now:
            places.append(self._again[shard_id][0].place)
        return min(places, default=None)

    def _wants(self, member: Member, tier: Tier, shard_id: int) -> bool:
        """Whether there is room for what was left; of a party, for its lanes that have nothing queued."""
        if isinstance(member, LaneState):
            # And whether it has used up half of its share: less would be many pages for few rows each.
            share = min(self._page_size, self._capacity // self._queues)
            wants = len(member.queue) < max(1, share // 2)
            return wants and (self._has_room(member) or self._heavier(member.site, _weight_of(member)) is not None)
        assert isinstance(member, Party)
        if shard_id in self._promoted and self.room:
            return True
        may_have_call = tier is not Tier.UNTRIED
        free = tier.part_of(self._capacity) - len(self.rows)
        return self._have_room(member, free) or self._heavier(member, may_have_call) is not None

    @property
    def room(self) -> int:
        return max(0, self._capacity - len(self.rows))

    @property
    def _capacity(self) -> int:
        return fitting(self._limit, byte_limit=self._byte_limit, count=len(self.rows), size=self.bytes)

    def passed(self, shard_id: int, start: Position, end: Position | None, *, now: int, page: int) -> None:
        """What is due behind `start` up to `end` was read, and is about to be offered; None: up to the last.

        Marks that were set since the page was asked for stay: it may not show what was left meanwhile.
        """

        def moved(mark: Mark) -> Mark | None:
            if mark.pages >= page or mark.place < start or (end is not None and mark.place >= end):
                return mark
            return None if end is None else Mark(end, mark.pages)

        for member in list(self._left.get(shard_id, ())):
            for tier in Tier:
                if (known := member.left.pop((shard_id, tier), None)) and (mark := moved(known)):
                    member.left[shard_id, tier] = mark
            self._unlist(shard_id, member)
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
                self.drop(timer.uuid)
        for shard_id in shard_ids:
            for member in self._left.pop(shard_id, ()):
                for tier in Tier:
                    member.left.pop((shard_id, tier), None)
            self._again.pop(shard_id, None)
            self._promoted.pop(shard_id, None)

    def busy(self, shard_ids: set[int]) -> bool:
        """Whether anything of these shards is in memory."""
        return any(timer.shard_id in shard_ids for timer in self.rows.values())


def size_of(timer: Timer) -> int:
    """What users have put into a row. A character takes up to four bytes, if one of them does."""
    detail = timer.detail
    size = _bytes_of(timer.payload or "") + _bytes_of(detail.callback_url)
    for texts in (detail.headers, detail.labels):
        for name, text in texts.items():
            size += _bytes_of(name) + _bytes_of(text)
    return size


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _weight_of(lane: LaneState) -> int:
    return len(lane.queue) + bool(lane.in_flight)
