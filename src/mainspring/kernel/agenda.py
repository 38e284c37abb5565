"""The owned shards, how far each was read, and when to look at it again.

Per shard there is one read position. Rows before it were offered to the dispatcher, which has taken them in or
bookmarked where they are; so a shard's backlog is read once and not again for every timer that comes due. A row written
behind the position moves the position back (`note`). Rows that others wrote and nobody announced are found by a sweep,
which reads again what lies behind the position.

Looks are planned on two clocks: what is due, by the store's time; what is to be tried again soon, by the monotonic
clock, so that it does not wait for the store's clock to catch up if that steps back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from mainspring.model import Timer
from mainspring.store import START, Position

SPARE: Final = 16
"""How many outdated entries a plan may have besides one for each that counts."""


class ShardState:
    def __init__(self, shard_id: int, fence: int) -> None:
        self.shard_id = shard_id
        self.fence = fence
        self.position = START
        self.draining = False
        self.reading = False
        """A page is being read, from the position or from a bookmark."""
        self.hangs = False
        """The last page took too long: nobody waits for the next."""
        self.is_dense = False
        """There was more due than the last page had room for, or it could not be read with others."""
        self.left_to: Position | None = None
        """How far a pass over rows that were left has got; None: there is no pass."""
        self.sweeping = False
        self.sweep_owed = False
        """Somebody may have written before the position, even where a sweep under way has already been."""
        self.noted: int | None = None
        """The earliest due instant written since the page that is being read was asked for."""
        self._pages: set[int] = set()
        self._asked = 0
        self._ended: dict[str, tuple[int, int]] = {}

    def advance(self, read_to: Position) -> None:
        """Move the position past a page, but not past a row that may have been written while it was read."""
        if self.noted is not None and self.noted <= read_to.due_at:
            read_to = Position(self.noted, "")
        self.position = read_to
        self.noted = None

    # Rows that leave memory while a page is being read: that page may still show them as they were.

    def ask_page(self) -> int:
        """A page is about to be read; returns its number."""
        self._asked += 1
        self._pages.add(self._asked)
        return self._asked

    def page_over(self, page: int) -> None:
        self._pages.discard(page)
        if not self._pages:
            self._ended.clear()

    def end(self, timer: Timer) -> None:
        """The outcome of this attempt was recorded."""
        if self._pages:
            self._ended[timer.uuid] = (timer.version, self._asked)

    def has_ended(self, timer: Timer, page: int) -> int | None:
        """The version of an attempt recorded since the page was asked for, which may show the row as it was before."""
        version, asked = self._ended.get(timer.uuid, (0, 0))
        return version if asked >= page else None


class Plan:
    """For each of many shards the earliest instant that was planned for it. Takes memory for these and no more."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """How many entries there are, outdated ones included."""
        return len(self._heap)

    def add(self, shard_id: int, at: float) -> bool:
        """At `at` or earlier. True if that is earlier than what was planned for it."""
        known = self._at.get(shard_id)
        if known is not None and known <= at:
            return False
        self._at[shard_id] = at
        heapq.heappush(self._heap, (at, shard_id))
        if len(self._heap) > 2 * len(self._at) + SPARE:
            self._heap = [(at, shard_id) for shard_id, at in self._at.items()]
            heapq.heapify(self._heap)
        return True

    def remove(self, shard_id: int) -> None:
        self._at.pop(shard_id, None)

    def first(self) -> tuple[float, int] | None:
        """The earliest instant, and for whom."""
        while self._heap:
            at, shard_id = self._heap[0]
            if self._at.get(shard_id) == at:
                return at, shard_id
            heapq.heappop(self._heap)  # removed, or planned earlier since
        return None


class Agenda:
    """The owned shards and the instant at which each has to be looked at next."""

    def __init__(self) -> None:
        self.shards: dict[int, ShardState] = {}
        self._due = Plan()
        """In the store's time."""
        self._soon = Plan()
        """In seconds of the monotonic clock."""

    @property
    def size(self) -> int:
        """How many entries are in memory."""
        return len(self._due) + len(self._soon)

    def add(self, shard_id: int, fence: int) -> None:
        """Nothing is planned for it yet."""
        self.shards[shard_id] = ShardState(shard_id, fence)

    def remove(self, shard_id: int) -> None:
        self.shards.pop(shard_id, None)
        self._unplan(shard_id)

    def look(self, shard_id: int, at: int) -> bool:
        """Look at the shard when something is due at `at`, or earlier. True if that is earlier than anything else that
        is due there."""
        return shard_id in self.shards and self._due.add(shard_id, at)

    def look_now(self, shard_id: int) -> None:
        """Whatever the time is."""
        self.look(shard_id, START.due_at)

    def look_soon(self, shard_id: int, monotonic: float) -> None:
        """Look at the shard then, or earlier, whatever is due."""
        if shard_id in self.shards:
            self._soon.add(shard_id, monotonic)

    def note(self, shard_id: int, due_at: int) -> bool:
        """A row with this due instant was written. True if the next look is now earlier than it was."""
        shard = self.shards.get(shard_id)
        if shard is None:
            return False
        if due_at <= shard.position.due_at:
            shard.position = Position(due_at, "")
        if shard.noted is None or due_at < shard.noted:
            shard.noted = due_at
        return self.look(shard_id, due_at)

    def seconds_to_next(self, now: int, monotonic: float) -> float | None:
        """How long it is to the next look."""
        due, soon = self._due.first(), self._soon.first()
        waits = [] if due is None else [(due[0] - now) / 1000]
        if soon is not None:
            waits.append(soon[0] - monotonic)
        return min(waits, default=None)

    def take_due(self, now: int, monotonic: float) -> Iterator[ShardState]:
        """The shards whose instant has come; after that, none is planned for them until one is given."""
        for plan, time in ((self._due, now), (self._soon, monotonic)):
            while (first := plan.first()) is not None and first[0] <= time:
                self._unplan(first[1])
                yield self.shards[first[1]]

    def _unplan(self, shard_id: int) -> None:
        self._due.remove(shard_id)
        self._soon.remove(shard_id)
