"""The read side. Each function uses one session; reads see what was committed before they began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mainspring.model import FOREVER, Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import DuePage, ListPage, Position, TimerFilter, look_rows
from mainspring.stores.pages import PageBuilder
from mainspring.stores.plan import Value
from mainspring.stores.sql.dialect import Session
from mainspring.stores.sql.rows import (
    DAY_MS,
    attempts_from,
    fills_page,
    numbers_from,
    part_from,
    position_of_row,
    records_from,
    shards_from,
    timers_from,
)
from mainspring.stores.sql.statements import Statements, in_parts
from mainspring.unreadable import Unreadable, claimable, readable, timer_name

LIST_SHARDS: Final = 32
"""How many shards one statement lists."""
NEXT_DUE_SHARDS: Final = 128
"""Of how many shards one statement finds the next due instant, or the first row."""


async def time(session: Session, statements: Statements) -> int:
    [now] = numbers_from(await session.fetch(*statements.time()))
    return now or 0


async def get(session: Session, statements: Statements, keys: Sequence[TimerKey]) -> list[Timer | None]:
    found = {row.key: row for row in readable(await _rows(session, statements, keys))}
    return [found.get(key) for key in keys]


async def damaged(session: Session, statements: Statements, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
    found = {row.name: row for row in await _rows(session, statements, keys) if isinstance(row, Unreadable)}
    return [found.get(timer_name(key)) for key in keys]


async def _rows(session: Session, statements: Statements, keys: Sequence[TimerKey]) -> list[Timer | Unreadable]:
    rows: list[Timer | Unreadable] = []
    for wanted in in_parts(sorted({(key.shard_id, key.uuid) for key in keys})):
        rows += timers_from(await session.fetch(*statements.get_timers(wanted)))
    return rows


async def list_timers(
    session: Session, statements: Statements, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int
) -> ListPage:
    """A few shards at a time, each only up to the end of the page so far: those whose first row is behind it add
    nothing."""
    if limit <= 0:
        return ListPage([], None)
    start, end = where.part_after(after)
    occupied = await _occupied(session, statements, list(dict.fromkeys(shards)), start, end)
    wanted = [shard_id for _, shard_id in occupied]
    page = PageBuilder(limit, await _horizon(session, statements, wanted, start, end) if where.is_selective else None)
    for index, some in enumerate(_some(wanted)):
        first, _ = occupied[index * LIST_SHARDS]
        if page.end is not None and first > page.end:
            break
        statement = statements.list_timers(some, where, after=start, end=page.end or end, limit=limit)
        page.add(part_from(await session.fetch(*statement), limit))
    return page.page


async def _occupied(
    session: Session, statements: Statements, shards: Sequence[int], start: Position, end: Position
) -> list[tuple[Position, int]]:
    """The shards that have rows of a part, by the position of the first one. Of many, most are often empty."""
    found: list[tuple[Position, int]] = []
    for first in range(0, len(shards), NEXT_DUE_SHARDS):
        some = shards[first : first + NEXT_DUE_SHARDS]
        for row in await session.fetch(*statements.first_places(some, after=start, end=end)):
            found.append((position_of_row(row), msgspec.convert(row[0], int)))
    return sorted(found)


async def _horizon(
    session: Session, statements: Statements, shards: Sequence[int], start: Position, end: Position
) -> Position | None:
    horizon: Position | None = None
    for some in _some(shards):
        statement = statements.nth_place(some, look_rows(len(shards)), after=start, end=horizon or end)
        for row in await session.fetch(*statement):
            horizon = position_of_row(row)
    return horizon


def _some(shards: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(shards), LIST_SHARDS):
        yield shards[start : start + LIST_SHARDS]


async def load_due(
    session: Session, statements: Statements, shard_id: int, *, until: int, after: Position, limit: int
) -> DuePage:
    """One row more than asked for shows what follows; only a page that is not full needs a second look."""
    while True:
        rows = await session.fetch(*statements.due_timers(shard_id, until, after, limit + 1))
        following = msgspec.convert(rows[limit][1], int) if len(rows) > limit else None
        part = part_from(rows[:limit], limit)
        after = part.last or after
        if following is None and (part.timers or part.end is None):
            [following] = numbers_from(await session.fetch(*statements.next_due_behind(shard_id, after)))
        if part.timers or part.end is None:
            return DuePage(part.timers, None if following is None or following >= FOREVER else following)


async def load_due_of(
    session: Session, statements: Statements, places: Sequence[tuple[int, Position]], *, until: int, limit: int
) -> list[DuePage | None]:
    """Shards whose rows do not fit, and those of which no row can be read, are left to `load_due`."""
    rows = await session.fetch(*statements.due_timers_of(places, until, limit + 1))
    found: dict[int, list[Sequence[Value]]] = {shard_id: [] for shard_id, _ in places}
    for row in rows:
        found[msgspec.convert(row[0], int)].append(row)
    whole_before = msgspec.convert(rows[-1][0], int) if fills_page(rows) else None
    pages: dict[int, DuePage] = {}
    ends: list[tuple[int, Position]] = []
    for shard_id, after in places:
        part = part_from(found[shard_id][:limit], limit)
        if (whole_before is not None and shard_id >= whole_before) or (found[shard_id] and not part.timers):
            continue
        if len(found[shard_id]) > limit:
            following = msgspec.convert(found[shard_id][limit][1], int)
            pages[shard_id] = DuePage(part.timers, None if following >= FOREVER else following)
        else:
            pages[shard_id] = DuePage(part.timers, None)
            ends.append((shard_id, part.last or after))
    if ends:
        for row in await session.fetch(*statements.next_due_behind_each(ends)):
            shard_id, due_at = msgspec.convert(tuple(row), tuple[int, int])
            pages[shard_id] = DuePage(pages[shard_id].timers, due_at)
    return [pages.get(shard_id) for shard_id, _ in places]


async def next_due(session: Session, statements: Statements, shard_ids: Sequence[int]) -> list[int | None]:
    found: list[int | None] = []
    for start in range(0, len(shard_ids), NEXT_DUE_SHARDS):
        found += numbers_from(await session.fetch(*statements.next_due(shard_ids[start : start + NEXT_DUE_SHARDS])))
    return found


async def history(
    session: Session, statements: Statements, key: TimerKey, before: tuple[int, int], limit: int
) -> list[Attempt]:
    """Day by day backwards, skipping from one existing day to the one before it."""
    attempts: list[Attempt] = []
    day: int | None = before[0] // DAY_MS + 1
    while day is not None and len(attempts) < limit:
        [day] = numbers_from(await session.fetch(*statements.history_day_before(key.shard_id, day)))
        if day is not None:
            attempts += await _history_of_day(session, statements, key, day, before=before, limit=limit - len(attempts))
    return attempts


async def _history_of_day(
    session: Session, statements: Statements, key: TimerKey, day: int, *, before: tuple[int, int], limit: int
) -> list[Attempt]:
    """Attempts that cannot be read do not count towards the limit."""
    attempts: list[Attempt] = []
    while len(attempts) < limit:
        rows = await session.fetch(*statements.history_of_day(key, day, before, limit))
        attempts += readable(attempts_from(key, rows))
        if len(rows) < limit:
            break
        before = msgspec.convert(rows[-1][1:], tuple[int, int])
    return attempts[:limit]


async def prune_history(
    session: Session, statements: Statements, shard_id: int, older_than: int, limit: int
) -> int:  # fmt: skip
    """Entries never change, so they can be looked for first, without a lock, and removed by their keys."""
    old = await session.fetch(*statements.old_history(shard_id, (older_than - 1) // DAY_MS, older_than, limit))
    return sum([await session.execute(*statements.delete_history([*map(tuple, some)])) for some in in_parts(old)])


async def shards(session: Session, statements: Statements, shard_ids: Sequence[int]) -> list[Shard | None]:
    found: dict[int, Shard] = {}
    for wanted in in_parts(shard_ids):
        rows = await session.fetch(*statements.shards(wanted))
        found.update((shard.shard_id, shard) for shard in shards_from(rows))
    return claimable(found.get(shard_id, Shard(shard_id)) for shard_id in shard_ids)


async def get_record(session: Session, statements: Statements, collection: str, key: str, now: int) -> Record | None:
    records = records_from(await session.fetch(*statements.get_record(collection, key, now)))
    return records[0] if records else None


async def scan_records(
    session: Session, statements: Statements, collection: str, *, now: int, after: str, limit: int
) -> list[Record]:
    return records_from(await session.fetch(*statements.scan_records(collection, after, now, limit)))
