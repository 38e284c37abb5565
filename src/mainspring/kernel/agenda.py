"""The owned shards, how far each was read, and when to look at it again.

Per shard there is one read position. Rows before it were offered to the dispatcher, which has taken them in or
bookmarked where they are; so a shard's backlog is read once and not again for every timer that comes due. A row written
behind the position moves the position back (`note`). Rows that others wrote and nobody announced are found by a sweep,
which reads again what lies behind the position.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from mainspring.model import Timer
from mainspring.store import START, Position


class ShardState:
    def __init__(self, shard_id: int, fence: int) -> None:
        self.shard_id = shard_id
        self.fence = fence
        self.position = START
        self.look_at: int | None = None
        self.draining = False
        self.reading = False
        """A page is being read, from the position or from a bookmark."""
        self.hangs = False
        """The last page took too long: nobody waits for the next."""
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


class Agenda:
    """The owned shards and the instant at which each has to be looked at next."""

    def __init__(self) -> None:
        self.shards: dict[int, ShardState] = {}
        self._heap: list[tuple[int, int]] = []

    def add(self, shard_id: int, fence: int) -> None:
        """Nothing is planned for it yet."""
        self.shards[shard_id] = ShardState(shard_id, fence)

    def remove(self, shard_id: int) -> None:
        self.shards.pop(shard_id, None)

    def look(self, shard_id: int, at: int) -> bool:
        """Look at the shard at `at` or earlier. True if that is earlier than anything planned for it."""
        shard = self.shards.get(shard_id)
        if shard is None or (shard.look_at is not None and shard.look_at <= at):
            return False
        shard.look_at = at
        heapq.heappush(self._heap, (at, shard_id))
        return True

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

    def next_look(self) -> int | None:
        """The earliest planned instant."""
        while self._heap:
            at, shard_id = self._heap[0]
            shard = self.shards.get(shard_id)
            if shard is not None and shard.look_at == at:
                return at
            heapq.heappop(self._heap)  # planned for an owner that is gone, or planned earlier since
        return None

    def take_due(self, now: int) -> Iterator[ShardState]:
        """The shards whose instant has come; after that, none is planned for them until one is given."""
        while (at := self.next_look()) is not None and at <= now:
            _, shard_id = heapq.heappop(self._heap)
            shard = self.shards[shard_id]
            shard.look_at = None
            yield shard
