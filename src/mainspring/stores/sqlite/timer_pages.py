"""How rows of timers leave the database: as one JSON text, because that is fast, unless they are large or one of them
cannot be read.

A page is bounded in bytes before it is read: the sizes of a few rows are asked for first. Passing over a large row
takes SQLite as long as reading it, because the whole row is its key.
"""
# ruff: noqa: S608  (only constants of this package are put together here; values are always bound)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec

from mainspring.model import Timer
from mainspring.store import PAGE_BYTES
from mainspring.stores.pages import Part, behind, fitting, position_of
from mainspring.stores.plan import Value
from mainspring.stores.sqlite.rows import (
    TIMER_COLUMNS,
    TIMERS_AS_BYTES,
    TIMERS_AS_JSON,
    RowInBytes,
    sizes_from,
    timer_in_bytes,
    timers_from,
    unreadable_timer,
)
from mainspring.unreadable import Unreadable, each, readable

SPOILED: Final = (apsw.SQLError, msgspec.DecodeError, UnicodeDecodeError)
"""The errors that reading many rows raises when one of them cannot be read."""

_SIZE: Final = "octet_length(detail) + coalesce(octet_length(payload), 0)"
_FEW: Final = 16
_LARGE_BYTES: Final = 4_096
"""Rows that are larger than this on average are read one by one: SQLite takes 30 ms to write a megabyte of JSON."""


def read_part(
    connection: apsw.Connection, rows: str, values: Sequence[Value], limit: int, *, page_bytes: int = PAGE_BYTES
) -> Part:
    """The first of the rows that a query selects. It ends with a limit, which is the last of its values, and names the
    columns of the table in one place."""
    asking = f"SELECT json_group_array(size) FROM ({rows.replace(TIMER_COLUMNS, f'{_SIZE} AS size', 1)})"
    sizes: list[int] = []
    fits = limit
    for look in (_FEW, limit):
        text = connection.execute(asking, (*values, min(look, limit))).get
        sizes = sizes_from(text)
        if (within := fitting(sizes, page_bytes)) < len(sizes):
            fits = within
        if fits < limit or len(sizes) < look:
            break
    if not sizes:
        return Part([], None, is_full=False)
    # Rows that were written meanwhile can only make it more or larger rows: the next page is right again.
    if sum(sizes) <= len(sizes) * _LARGE_BYTES:
        try:
            timers = timers_from(connection.execute(f"SELECT {TIMERS_AS_JSON} FROM ({rows})", (*values, fits)).get)
            return Part(timers, position_of(timers[-1]) if timers else None, len(timers) == fits)
        except SPOILED:
            pass
    found = _one_by_one(connection, rows, (*values, fits))
    last = behind(found[-1][1], found[-1][2]) if found else None
    return Part(readable(_understood(found)), last, len(found) == fits)


def read_all(connection: apsw.Connection, rows: str, values: Sequence[Value]) -> list[Timer | Unreadable]:
    try:
        return list(timers_from(connection.execute(f"SELECT {TIMERS_AS_JSON} FROM ({rows})", values).get))
    except SPOILED:
        return _understood(_one_by_one(connection, rows, values))


def _one_by_one(connection: apsw.Connection, rows: str, values: Sequence[Value]) -> list[RowInBytes]:
    found: list[Any] = connection.execute(f"SELECT {TIMERS_AS_BYTES} FROM ({rows})", values).fetchall()
    return found


def _understood(rows: Iterable[RowInBytes]) -> list[Timer | Unreadable]:
    return each(rows, timer_in_bytes, unreadable_timer)
