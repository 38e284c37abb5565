"""What is due in the owned shards, read in pages, and when to look again.

Per shard there is one read position. Rows before it were offered to their lane, or the lane remembers where
more of its rows begin; so a shard's backlog is read once and not again for every timer that comes due.
A row written behind the position moves the position back (`note`). Rows that others wrote and nobody announced are
found by a sweep, which re-reads what lies behind the position, one page at a look.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from mainspring.store import START, Position


class ShardState:
    __slots__ = ("draining", "fence", "look_at", "noted", "position", "shard_id", "sweep", "unswept")

    def __init__(self, shard_id: int, fence: int) -> None:
        self.shard_id = shard_id
        self.fence = fence
        self.position = START
        self.sweep = START
        self.unswept = 0
        """Sweeps from the beginning that are still owed, one that is under way included."""
        self.look_at: int | None = None
        self.draining = False
        self.noted: int | None = None
        """The earliest due instant written since the page that is being read was asked for."""

    def owe_sweep(self) -> None:
        """Somebody else may have written behind the position; also behind a sweep that is under way."""
        self.unswept = 1 if self.sweep == START else 2

    def swept(self, to: Position | None) -> None:
        """A page of the sweep was read, up to `to`; None: up to the end."""
        self.sweep = to or START
        if to is None:
            self.unswept -= 1

    def advance(self, read_to: Position) -> None:
        """Move the position behind a page, but not past a row that may have been written while it was read."""
        if self.noted is not None and self.noted <= read_to.due_at:
            read_to = Position(self.noted, "")
        self.position = read_to
        self.noted = None


class Agenda:
    """The owned shards and the instant at which each has to be looked at next."""

    def __init__(self) -> None:
        self.shards: dict[int, ShardState] = {}
        self._heap: list[tuple[int, int]] = []

    def add(self, shard_id: int, fence: int, now: int) -> None:
        self.shards[shard_id] = ShardState(shard_id, fence)
        self.look(shard_id, now)

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

    def reread(self, shard_id: int, at: int) -> None:
        """Start again from the beginning: what is in the store is not known for certain."""
        shard = self.shards.get(shard_id)
        if shard is not None:
            shard.position = START
            shard.noted = START.due_at
            self.look(shard_id, at)

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
        """The shards whose instant has come; each then has none planned until it is given one."""
        while (at := self.next_look()) is not None and at <= now:
            _, shard_id = heapq.heappop(self._heap)
            shard = self.shards[shard_id]
            shard.look_at = None
            yield shard
