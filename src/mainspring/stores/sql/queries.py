"""The read side. Each function uses one session; reads see what was committed before they began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.model import FOREVER, Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import DuePage, Position, TimerFilter
from mainspring.stores.pages import PageBuilder
from mainspring.stores.sql.dialect import Session
from mainspring.stores.sql.rows import (
    DAY_MS,
    attempts_from,
    numbers_from,
    part_from,
    records_from,
    shards_from,
    timers_from,
)
from mainspring.stores.sql.statements import Statements, in_parts
from mainspring.unreadable import Unreadable, claimable, readable, timer_name

LIST_SHARDS: Final = 32
"""How many shards one statement lists."""
NEXT_DUE_SHARDS: Final = 128
"""For how many shards one statement asks the next due instant."""


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
) -> list[Timer]:
    """A few shards at a time, each only up to the end of the page so far: later shards have little to add."""
    wanted = list(dict.fromkeys(shards))
    while limit > 0:
        page = PageBuilder(limit)
        for start in range(0, len(wanted), LIST_SHARDS):
            some = wanted[start : start + LIST_SHARDS]
            end = page.end or Position(FOREVER + 1, "")
            rows = await session.fetch(*statements.list_timers(some, where, after=after, end=end, limit=limit))
            page.add(part_from(rows, limit))
        if page.is_over or page.end is None:
            return page.timers
        after = page.end
    return []


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
    old = await session.fetch(*statements.old_history(shard_id, older_than // DAY_MS, older_than, limit))
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
