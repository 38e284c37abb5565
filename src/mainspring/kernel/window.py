"""The due rows that are in memory, and where in the store the others begin.

A row is in the window from the moment it is taken in until its outcome is recorded: queued in its lane, in flight, or
waiting for the record. The window is bounded, so rows are left in the store, and for each of them there is a
*bookmark*: a place in its shard from where on rows of its lane were left. A lane with rows queued has bookmarks of its
own, and so have the site and the namespace around it, for their lanes without; all others share the bookmarks of
everybody, one for a shard and a tier. Reading on from a bookmark serves every lane that has room, and moves all
bookmarks that it passes.

Invariant: a row that was offered and is not in the window stands behind a bookmark that covers it. What is taken out of
memory without an outcome, for whatever reason, is bookmarked; nothing is ever neither here nor bookmarked.

The window has places for rows, and bytes for large ones (see `room`). A row is large if a window full of rows of its
size would not fit into a quarter of the bytes; the other three quarters are for large ones. So small rows never wait
because large ones have used up the bytes. The last large row may be larger than what was left of them, so that none is
too large to be taken in.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from mainspring.kernel.lanes import LaneState, LargePart, place_before
from mainspring.kernel.room import Queued, Room
from mainspring.kernel.shares import Bookmark, Member, Party, Tier
from mainspring.model import Timer
from mainspring.store import Position


class Window:
    def __init__(
        self,
        *,
        limit: int,
        byte_limit: int,
        lane_of: Callable[[Timer], LaneState],
        emptied: Callable[[LaneState], None],
        everybody: Party,
    ) -> None:
        """`emptied` is told of lanes that no longer have anything queued."""
        self._lane_of = lane_of
        self._emptied = emptied
        self.rows: dict[str, Timer] = {}
        self._places = Room(limit, everybody)
        self._small = byte_limit // (4 * limit)
        self._bytes = Room(bytes_for_large(byte_limit), everybody.large)
        self._sizes: dict[str, int] = {}
        """What is in large rows."""
        self.admitted = 0
        """Rows that were queued, ever."""
        self._left: defaultdict[int, dict[Member, None]] = defaultdict(dict)
        """For each shard, who has left rows there."""
        self._again: dict[int, tuple[Bookmark, float]] = {}
        """For each shard, where rows begin that could not be worked on, and when to try again, by the monotonic
        clock."""
        self._promoted: dict[int, None] = {}
        """Shards in which rows may have been left whose lane has been proven since: it may have more than it could."""
        self.pages = 0
        """Pages that were asked for."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bytes(self) -> int:
        """What is in large rows, all together."""
        return self._bytes.used

    @property
    def room(self) -> int:
        return self._places.free

    def size(self, uuid: str) -> int:
        """The same for a row that is here."""
        return self._sizes.get(uuid, 0)

    def most(self, uuid: str) -> int:
        """What is in a row, at most."""
        return self._sizes.get(uuid, self._small)

    # --- queues ---------------------------------------------------------------------------------------

    def admit(self, timer: Timer, lane: LaneState) -> bool:
        """Queue a row in its lane, or bookmark where it is. False if it had to be left in the store."""
        size = self.large_size(timer)
        tier = lane.tier
        if not self._take_in(
            timer,
            lane,
            size,
            has_place=self._places.has_room(lane, tier, len(lane.queue)),
            has_bytes=not size or self._bytes.has_room(lane.large, tier, lane.large.queued),
        ):
            return False
        self.admitted += 1
        if size:
            lane.queue.large.append(timer)
            lane.large.queued += size
        else:
            lane.queue.small.append(timer)
        self.weigh(lane)
        return True

    def hold(self, timer: Timer, lane: LaneState) -> bool:
        """The same for a row that waits for nothing but the record of its outcome: that is soon over."""
        size = self.large_size(timer)
        has_bytes = not size or self._bytes.free > 0
        return self._take_in(timer, lane, size, has_place=self._places.free > 0, has_bytes=has_bytes)

    def large_size(self, timer: Timer) -> int:
        """What a row takes of the bytes for large ones: nothing, if it is small."""
        size = size_of(timer)
        return size if size > self._small else 0

    def _make_room(self, room: Room, who: Queued, weight: int, size: int) -> bool:
        while (heavier := room.heavier(who.site, who.weight, weight, size)) is not None:
            self._evict(room.heaviest(heavier))
            if room.free:  # a smaller large row does not make room for a larger one
                return True
        return False

    def _take_in(self, timer: Timer, lane: LaneState, size: int, *, has_place: bool, has_bytes: bool) -> bool:
        if not has_bytes:
            if not self._make_room(self._bytes, lane.large, _large_weight_of(lane), size):
                self.leave(timer, lane.large)
                return False
            has_place = has_place or self._places.free > 0  # that of a row that gave way
        if not has_place and not self._make_room(self._places, lane, _weight_of(lane), 1):
            self.leave(timer, lane)
            return False
        self.rows[timer.uuid] = timer
        self._places.take(1)
        if size:
            self._sizes[timer.uuid] = size
            self._bytes.take(size)
        return True

    def drop(self, uuid: str) -> None:
        """A row is no longer in memory, if it was."""
        if self.rows.pop(uuid, None) is not None:
            self._places.give_back(1)
            if (size := self._sizes.pop(uuid, None)) is not None:
                self._bytes.give_back(size)

    def take(self, lane: LaneState, queue: deque[Timer]) -> Timer:
        """The first row of one of the queues of a lane; it stays in the window, but is no longer queued."""
        timer = queue.popleft()
        if queue is lane.queue.large:
            lane.large.queued -= self._sizes[timer.uuid]
        return timer

    def withdraw(self, timer: Timer) -> bool:
        """Take a row out again. False if it is no longer queued."""
        return bool(self._remove(self._lane_of(timer), lambda queued: queued is timer))

    def take_out(self, lane: LaneState, shard_id: int) -> list[Timer]:
        """Take the queued rows of a shard out of a lane. Whoever does bookmarks them."""
        return self._remove(lane, lambda queued: queued.shard_id == shard_id)

    def _remove(self, lane: LaneState, is_leaving: Callable[[Timer], bool]) -> list[Timer]:
        leaving = lane.queue.remove(is_leaving) if lane.queue else []
        for timer in leaving:
            lane.large.queued -= self.size(timer.uuid)
            self.drop(timer.uuid)
        if leaving:
            self.weigh(lane)
        return leaving

    def _evict(self, heavy: Queued) -> None:
        lane = heavy.lane if isinstance(heavy, LargePart) else heavy
        timer = (lane.queue.large if heavy.is_large else lane.queue.last()).pop()
        lane.large.queued -= self.size(timer.uuid)
        self.drop(timer.uuid)
        self.leave(timer, heavy)
        self.weigh(lane)

    def weigh(self, lane: LaneState) -> None:
        """The queue of a lane has changed, or the number of its calls."""
        queued = len(lane.queue)
        if not queued:
            self._emptied(lane)
        self._weigh(self._places, lane, queued + bool(lane.in_flight) if queued else 0)
        large = lane.large
        if large.queued or large.weight:
            self._weigh(self._bytes, large, _large_weight_of(lane) if large.queued else 0)

    def _weigh(self, room: Room, who: Queued, weight: int) -> None:
        before, who.weight = who.weight, weight
        change = weight - before
        if not change:
            return
        room.queues += bool(weight) - bool(before)
        member: Member = who
        for party in (who.site, *who.site.around):
            party.members.move(member, before)
            if member.left and not member.weight:
                self._pass_on_bookmarks(member, party)
            before, member = party.weight, party
            party.weight += change

    # --- bookmarks ------------------------------------------------------------------------------------

    def leave(self, timer: Timer, who: Queued) -> None:
        """A row stays in the store for want of room: of places, or of bytes."""
        around: tuple[Member, ...] = (who, who.site, *who.site.around)
        known = next((member for member in around if member.weight), around[-1])
        tier = (who.lane if isinstance(who, LargePart) else who).tier
        self._set_bookmark(known, timer.shard_id, tier, self._bookmark(timer))

    def leave_until(self, timer: Timer, at: float) -> None:
        """A row must not be worked on before `at`, by the monotonic clock; it is found again then."""
        own, known = self._bookmark(timer), self._again.get(timer.shard_id)
        self._again[timer.shard_id] = (own, at) if known is None else (own.joined(known[0]), min(at, known[1]))

    def promote(self) -> None:
        """A lane was proven: what it had to leave before may be taken in now, though its tier then may not."""
        self._promoted.update(dict.fromkeys(self._left))

    def _bookmark(self, timer: Timer) -> Bookmark:
        return Bookmark(place_before(timer), self.pages)

    def _set_bookmark(self, member: Member, shard_id: int, tier: Tier, bookmark: Bookmark) -> None:
        member.left[shard_id, tier] = bookmark.joined(member.left.get((shard_id, tier)))
        self._left[shard_id][member] = None

    def _pass_on_bookmarks(self, member: Member, party: Party) -> None:
        """A member with nothing in memory has no bookmarks of its own."""
        for shard_id, tier in tuple(member.left):
            self._set_bookmark(party, shard_id, tier, member.left.pop((shard_id, tier)))
            self._unlist(shard_id, member)

    def _unlist(self, shard_id: int, member: Member) -> None:
        """Unless it has a bookmark there."""
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

    def read_from(self, shard_id: int, now: int, monotonic: float) -> Position | None:
        """The first bookmark in a shard after which there is something for a lane that has room now.

        If the clock stepped back, bookmarks may stand after `now`, and wait until that is due again.
        """
        places = [
            bookmark.place
            for member in self._left.get(shard_id, ())
            for tier in Tier
            if (bookmark := member.left.get((shard_id, tier))) and self._wants(member, tier, shard_id)
        ]
        if shard_id in self._again and self._again[shard_id][1] <= monotonic:
            places.append(self._again[shard_id][0].place)
        return min((place for place in places if place.due_at <= now), default=None)

    def _wants(self, member: Member, tier: Tier, shard_id: int) -> bool:
        """Whether there is room for what was left; of a party, for its lanes that have nothing queued."""
        room = self._bytes if member.is_large else self._places
        # For a lane, also whether it has used up half of its share: otherwise many pages would bring few rows each.
        if isinstance(member, LargePart):
            if member.queued >= max(1, room.limit // room.queues // 2):
                return False
            weight = _large_weight_of(member.lane)
            if room.has_room(member, member.lane.tier, member.queued):
                return True
        elif isinstance(member, LaneState):
            if len(member.queue) >= max(1, room.limit // (room.queues + 1) // 2):
                return False
            weight = _weight_of(member)
            if room.has_room(member, member.tier, len(member.queue)):
                return True
        else:
            assert isinstance(member, Party)
            return (shard_id in self._promoted and room.free > 0) or room.wanted_by(member, tier)
        return room.heavier(member.site, member.weight, weight, room.typical) is not None

    def passed(self, shard_id: int, start: Position, end: Position | None, *, monotonic: float, page: int) -> None:
        """What is due after `start` up to `end` was read, and is about to be offered; None: up to the last.

        Bookmarks that were set since the page was asked for stay: it may not show what was left meanwhile.
        """

        def moved(bookmark: Bookmark) -> Bookmark | None:
            if bookmark.pages >= page or bookmark.place < start or (end is not None and bookmark.place >= end):
                return bookmark
            return None if end is None else Bookmark(end, bookmark.pages)

        for member in list(self._left.get(shard_id, ())):
            for tier in Tier:
                if (known := member.left.pop((shard_id, tier), None)) and (bookmark := moved(known)):
                    member.left[shard_id, tier] = bookmark
            self._unlist(shard_id, member)
        if shard_id in self._again and self._again[shard_id][1] <= monotonic:
            known, at = self._again.pop(shard_id)
            if (bookmark := moved(known)) is not None:
                self._again[shard_id] = (bookmark, at)
        if end is None:
            self._promoted.pop(shard_id, None)

    # --- hand-over ------------------------------------------------------------------------------------

    def let_go(self, shard_ids: set[int], lanes: Iterable[LaneState]) -> None:
        """Take the queued rows and the bookmarks of these shards out of memory; another owner will see to them."""
        for lane in lanes:
            self._remove(lane, lambda timer: timer.shard_id in shard_ids)
        for shard_id in shard_ids:
            for member in self._left.pop(shard_id, ()):
                for tier in Tier:
                    member.left.pop((shard_id, tier), None)
            self._again.pop(shard_id, None)
            self._promoted.pop(shard_id, None)

    def busy_shards(self) -> set[int]:
        """Those of which anything is in memory."""
        return {timer.shard_id for timer in self.rows.values()}


def bytes_for_large(byte_limit: int) -> int:
    """What large rows may take of all bytes."""
    return max(1, byte_limit * 3 // 4)


def size_of(timer: Timer) -> int:
    """What users have put into a row, as it is in memory."""
    detail = timer.detail
    size = _bytes_of(timer.payload or "") + _bytes_of(detail.callback_url)
    for texts in (detail.headers, detail.labels):
        if texts:
            size += sum(_bytes_of(name) + _bytes_of(text) for name, text in texts.items())
    return size


def _bytes_of(text: str) -> int:
    """Every character takes as many bytes as the widest one: up to four."""
    if text.isascii():
        return len(text)
    return len(text) * (2 if len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text) else 4)


def _weight_of(lane: LaneState) -> int:
    return len(lane.queue) + bool(lane.in_flight)


def _large_weight_of(lane: LaneState) -> int:
    return lane.large.queued + lane.large.in_flight
