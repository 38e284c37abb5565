"""A page of timers: in due order over several shards, bounded in number and in bytes, past rows that cannot be read.

A store reads its shards in parts. Each part says where it stopped, if that was before the end of the shard, and nothing
after the first such position belongs to the page, because another part may have a row in between. A list that has to
look at rows to know whether they match stops at a horizon: the first position before which some shard has as many rows
as one page looks through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mainspring.model import Timer
from mainspring.store import PAGE_BYTES, ListPage, Position
from mainspring.stores.sizes import ROW_BYTES


class Part(NamedTuple):
    """The readable rows of some shards, the last position that was looked at, and whether there is more after it."""

    timers: list[Timer]
    last: Position | None
    is_full: bool

    @property
    def end(self) -> Position | None:
        """The position up to which rows were looked at. None: up to the end."""
        return self.last if self.is_full else None


class PageBuilder:
    """What a list gathers up to a horizon, if it has one. When there is room for no more, it ends at its last row."""

    def __init__(self, limit: int, horizon: Position | None = None) -> None:
        self.timers: list[Timer] = []
        self.end = horizon
        self._limit = limit

    def add(self, part: Part) -> None:
        if part.end is not None:
            self.end = part.end if self.end is None else min(self.end, part.end)
        rows = sorted([*self.timers, *part.timers], key=position_of)
        if self.end is not None:
            rows = [row for row in rows if position_of(row) <= self.end]
        fits = min(self._limit, fitting(map(weight_of, rows)))
        self.timers = rows[:fits]
        if self.timers and (fits < len(rows) or fits == self._limit):
            self.end = position_of(self.timers[-1])

    @property
    def page(self) -> ListPage:
        return ListPage(self.timers, self.end)


def position_of(timer: Timer) -> Position:
    return Position(timer.due_at, timer.uuid)


def weight_of(timer: Timer) -> int:
    """About how much memory a row takes, without writing it out."""
    detail = timer.detail
    texts = sum(len(name) + len(value) for name, value in (*detail.headers.items(), *detail.labels.items()))
    return ROW_BYTES + len(detail.callback_url) + texts + len(timer.payload or "")


def fitting(sizes: Iterable[int], page_bytes: int = PAGE_BYTES) -> int:
    """How many rows of these sizes make up a page. One does, whatever its size."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > page_bytes:
            break
        count += 1
    return count


def filling(sizes: Sequence[int]) -> int:
    """How many records of these sizes make up a page, including the one that fills it, which `ends_scan` looks for."""
    total = 0
    for count, size in enumerate(sizes, start=1):
        total += size
        if total > PAGE_BYTES:
            return count
    return len(sizes)


def behind(due_at: int, uuid: bytes) -> Position:
    """The position of a row whose uuid may not be text: then one after it, before every row of ours that follows.

    Ours are hexadecimal. After `ab` and a broken byte, nothing of ours comes before `ac`, which is not one itself.
    """
    try:
        return Position(due_at, uuid.decode())
    except UnicodeDecodeError as error:
        start = uuid[: error.start].decode()
        return Position(due_at, start[:-1] + chr(ord(start[-1]) + 1)) if start else Position(due_at + 1, "")
