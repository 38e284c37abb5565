"""How rows of timers leave the database: as one JSON text, because that is fast, unless one of them cannot be read.

A page is bounded in bytes before it is read: how large its rows are stands in their headers, so asking costs little.
"""
# ruff: noqa: S608  (what is put together here are constants of this package; values are always bound)

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
"""What is said of many rows when one of them cannot be read."""

_SIZE: Final = "octet_length(detail) + coalesce(octet_length(payload), 0)"


def read_part(connection: apsw.Connection, rows: str, values: Sequence[Value], limit: int) -> Part:
    """The first of the rows that a query selects. It ends with a limit, which is the last of its values."""
    size: float = connection.execute(f"SELECT total({_SIZE}) FROM ({rows})", (*values, limit)).get
    if size > PAGE_BYTES:
        text = connection.execute(f"SELECT json_group_array({_SIZE}) FROM ({rows})", (*values, limit)).get
        limit = fitting(sizes_from(text))
    # Rows that were written meanwhile can only be more of them, or larger: the next page is right again.
    try:
        timers = timers_from(connection.execute(f"SELECT {TIMERS_AS_JSON} FROM ({rows})", (*values, limit)).get)
    except SPOILED:
        found = _one_by_one(connection, rows, (*values, limit))
        last = behind(found[-1][1], found[-1][2]) if found else None
        timers, is_full = readable(_understood(found)), len(found) == limit
    else:
        last, is_full = position_of(timers[-1]) if timers else None, len(timers) == limit
    return Part(timers, last, is_full)


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
