"""A list of timers over many shards, in due order, with filters that Cassandra does not have.

Every shard is read in pages, and its next page only when the list has used up the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from mainspring.model import Timer
from mainspring.store import PAGE_BYTES, START, Position, TimerFilter
from mainspring.stores.cassandra.committers import all_of
from mainspring.stores.cassandra.reader import Reader
from mainspring.stores.cassandra.rows import place_of, timers_from
from mainspring.stores.pages import position_of, weight_of
from mainspring.unreadable import readable

_PAGE_MIN: Final = 20
_PAGE_MAX: Final = 500
_END: Final = 2**63 - 1


class _Cursor:
    """The matching rows of one shard, from a position on."""

    def __init__(self, reader: Reader, shard_id: int, where: TimerFilter, after: Position, page: int) -> None:
        self.shard_id = shard_id
        self.rows: deque[Timer] = deque()
        self._reader = reader
        self._where = where
        self._after = after
        if where.due_from is not None and where.due_from > after.due_at:
            self._after = Position(where.due_from, "")
        self._below = _END if where.due_to is None else where.due_to
        self._page = page
        self._is_at_end = False

    async def fill(self) -> None:
        """Read on until there is a row, or the shard has no more."""
        while not self.rows and not self._is_at_end:
            rows = await self._reader.behind(self.shard_id, self._after, below=self._below, limit=self._page)
            self.rows.extend(row for row in readable(timers_from(rows)) if _matches(row, self._where))
            self._is_at_end = not rows
            if rows:
                self._after = place_of(rows[-1])
            self._page = min(2 * self._page, _PAGE_MAX)


async def list_timers(
    reader: Reader, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int
) -> list[Timer]:
    shard_ids = list(dict.fromkeys(shards))
    if limit <= 0 or not shard_ids:
        return []
    page = max(_PAGE_MIN, min(limit // len(shard_ids) + 1, _PAGE_MAX))
    states = await reader.states(shard_ids)
    # Below a shard's floor there is nothing but tombstones of what has fired, which cost the server time: see `floor`.
    floors = {shard_id: Position(state.due_from or START.due_at, "") for shard_id, state in states.items()}
    cursors = [_Cursor(reader, shard_id, where, max(after, floors[shard_id]), page) for shard_id in shard_ids]
    await all_of([cursor.fill() for cursor in cursors])
    heads = [(position_of(cursor.rows[0]), index) for index, cursor in enumerate(cursors) if cursor.rows]
    heapify(heads)
    listed: list[Timer] = []
    size = 0
    while heads and len(listed) < limit and size <= PAGE_BYTES:
        index = heads[0][1]
        rows = cursors[index].rows
        listed.append(rows.popleft())
        size += weight_of(listed[-1])
        if not rows:
            await cursors[index].fill()
        if rows:
            heapreplace(heads, (position_of(rows[0]), index))
        else:
            heappop(heads)
    return listed


def _matches(timer: Timer, where: TimerFilter) -> bool:
    """All but the due range, which is the range of the query."""
    labels = timer.detail.labels
    return (
        (not where.states or timer.state in where.states)
        and timer.timer_id.startswith(where.id_prefix)
        and all(labels.get(name) == value for name, value in where.labels)
    )
