"""One timer as an INSERT for somebody else's connection, so that it is created inside of their transaction.

A create needs no owner and no fence. If a timer with this key exists, the database refuses the statement, and with it
whatever else the transaction was to do.
"""
# ruff: noqa: S608  (what is put together here are constants and checked names)

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from mainspring.model import Timer
from mainspring.stores.sql.rows import TIMER_COLUMNS, Row, timer_row
from mainspring.stores.sql.schema import Names
from mainspring.stores.sqlite import rows as sqlite_rows

Placeholder = Callable[[int], str]
"""The mark for the parameter with this number; the first one has number 1."""


def numbered(number: int) -> str:
    """For asyncpg."""
    return f"${number}"


def percent(_: int) -> str:
    """For psycopg, and for all libraries of MySQL."""
    return "%s"


def insert_statement(timer: Timer, *, names: Names, placeholder: Placeholder) -> tuple[str, Row]:
    """For PostgreSQL and MySQL, where the tables are called as `names` says."""
    return _insert(names.full("timers"), TIMER_COLUMNS, placeholder), timer_row(replace(timer, version=1))


def sqlite_insert_statement(timer: Timer) -> tuple[str, Row]:
    columns = sqlite_rows.TIMER_COLUMNS.split(", ")
    return _insert("timers", columns, lambda _: "?"), sqlite_rows.timer_row(replace(timer, version=1))


def _insert(table: str, columns: Sequence[str], placeholder: Placeholder) -> str:
    values = ", ".join(placeholder(number) for number in range(1, len(columns) + 1))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
