"""A list of timers over many shards, in due order, with filters that Cassandra does not have.

Every shard is read in pages, and its next page only when the list has used up the one before. A shard in which enough
rows were looked through in vain ends the page at the last of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from mainspring.model import Timer
from mainspring.store import PAGE_BYTES, START, ListPage, Position, TimerFilter, look_rows
from mainspring.stores.cassandra.committers import all_of
from mainspring.stores.cassandra.reader import Reader
from mainspring.stores.cassandra.rows import place_of, timers_from
from mainspring.stores.pages import position_of, weight_of
from mainspring.unreadable import readable

_PAGE_MIN: Final = 20
_PAGE_MAX: Final = 500


class _Cursor:
    """The matching rows of one shard, from a position on, among the first `look` rows."""

    def __init__(
        self, reader: Reader, shard_id: int, where: TimerFilter, after: Position, *, page: int, look: int
    ) -> None:
        self.shard_id = shard_id
        self.rows: deque[Timer] = deque()
        self._reader = reader
        self._where = where
        self._after, self._end = where.part_after(after)
        self._page = page
        self._look = look
        self._is_at_end = False

    async def fill(self) -> None:
        """Read on until there is a row, enough rows were looked at, or the shard has no more."""
        while not self.rows and not self._is_at_end and self._look > 0:
            wanted = min(self._page, self._look)
            rows = await self._reader.behind(self.shard_id, self._after, below=self._end.due_at, limit=wanted)
            self.rows.extend(row for row in readable(timers_from(rows)) if _matches(row, self._where))
            self._is_at_end = not rows
            if rows:
                self._after = place_of(rows[-1])
            if self._where.is_selective:
                self._look -= len(rows)
            self._page = min(2 * self._page, _PAGE_MAX)

    @property
    def head(self) -> Position | None:
        """The position of its first row, or the last one that was looked at; None at the end of the shard."""
        if self.rows:
            return position_of(self.rows[0])
        return None if self._is_at_end else self._after


async def list_timers(
    reader: Reader, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int
) -> ListPage:
    shard_ids = list(dict.fromkeys(shards))
    if limit <= 0 or not shard_ids:
        return ListPage([], None)
    page = max(_PAGE_MIN, min(limit // len(shard_ids) + 1, _PAGE_MAX))
    states = await reader.states(shard_ids)
    # Below a shard's floor there is nothing but tombstones of what has fired, which cost the server time: see `floor`.
    floors = {shard_id: Position(state.due_from or START.due_at, "") for shard_id, state in states.items()}
    look = look_rows(len(shard_ids))
    cursors = [
        _Cursor(reader, shard_id, where, max(after, floors[shard_id]), page=page, look=look) for shard_id in shard_ids
    ]
    await all_of([cursor.fill() for cursor in cursors])
    heads = [(cursor.head, index) for index, cursor in enumerate(cursors) if cursor.head is not None]
    heapify(heads)
    listed: list[Timer] = []
    size = 0
    while heads:
        head, index = heads[0]
        cursor = cursors[index]
        if not cursor.rows:
            return ListPage(listed, head)
        if len(listed) == limit or size > PAGE_BYTES:
            return ListPage(listed, position_of(listed[-1]))
        listed.append(cursor.rows.popleft())
        size += weight_of(listed[-1])
        if not cursor.rows:
            await cursor.fill()
        if cursor.head is not None:
            heapreplace(heads, (cursor.head, index))
        else:
            heappop(heads)
    return ListPage(listed, None)


def _matches(timer: Timer, where: TimerFilter) -> bool:
    """All but the due range, which is the range of the query."""
    labels = timer.detail.labels
    return (
        (not where.states or timer.state in where.states)
        and timer.timer_id.startswith(where.id_prefix)
        and all(labels.get(name) == value for name, value in where.labels)
    )
