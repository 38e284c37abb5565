"""How each database says "create this timer, or replace it". The rows are those of its store, column by column.

A create is one statement for a new id: it inserts, or it locks the row that is there and counts its generation and
version up. Only in the second case does a second one follow, which writes the rest. So nothing is looked at without
being locked, no statement fails because somebody else was faster, and whatever a row was doing, it is then rescheduled:
the version has grown, so an attempt in flight can no longer change it.
"""
# ruff: noqa: S608  (only constants and checked names are put together here)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from mainspring.model import Timer, TimerKey
from mainspring.stores.sql import rows as server_rows
from mainspring.stores.sqlite import rows as file_rows

Value = int | str | bytes | None


class Statement(NamedTuple):
    """`?` stands for every value."""

    sql: str
    parameters: Sequence[Value]


class Dialect(Struct, frozen=True, kw_only=True):
    """Where the databases differ."""

    name: str
    clock: str
    """An expression: milliseconds since the epoch, now, whatever the caller's session thinks of time zones."""
    on_conflict: str
    """Follows an INSERT: what is done to the row that is there, up to the columns."""
    returning: bool
    """Whether the INSERT can say what it left."""
    columns: tuple[str, ...]
    timer_row: Callable[[Timer], tuple[Value, ...]]
    record_key: str

    def namespace(self, tables: str, name: str) -> Statement:
        """The record of a namespace and the database's clock."""
        sql = f"SELECT value, {self.clock} FROM {tables}records WHERE collection = ? AND {self.record_key} = ?"
        return Statement(sql, ("namespace", name))

    def insert(self, tables: str, timer: Timer) -> Statement:
        """Leaves generation 1 if there was no row, and a higher one if there was."""
        table = f"{tables}timers"
        sql = (
            f"INSERT INTO {table} ({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))}) "
            f"{self.on_conflict} generation = {table}.generation + 1, version = {table}.version + 1"
        )
        behind = " RETURNING generation, version, detail" if self.returning else ""
        return Statement(sql + behind, self.timer_row(timer))

    def left(self, tables: str, key: TimerKey) -> Statement:
        """What the INSERT left, for databases whose INSERT cannot say it."""
        sql = f"SELECT generation, version, detail FROM {tables}timers WHERE shard_id = ? AND uuid = ?"
        return Statement(sql, (key.shard_id, key.uuid))

    def replace(self, tables: str, timer: Timer) -> Statement:
        settings = ", ".join(f"{column} = ?" for column in self.columns)
        sql = f"UPDATE {tables}timers SET {settings} WHERE shard_id = ? AND uuid = ?"
        return Statement(sql, (*self.timer_row(timer), timer.shard_id, timer.uuid))


POSTGRESQL: Final = Dialect(
    name="PostgreSQL",
    clock="(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    on_conflict="ON CONFLICT (shard_id, uuid) DO UPDATE SET",
    returning=True,
    columns=server_rows.TIMER_COLUMNS,
    timer_row=server_rows.timer_row,
    record_key="record_key",
)
MYSQL: Final = Dialect(
    name="MySQL",
    clock="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
    on_conflict="ON DUPLICATE KEY UPDATE",
    returning=False,
    columns=server_rows.TIMER_COLUMNS,
    timer_row=server_rows.timer_row,
    record_key="record_key",
)
SQLITE: Final = Dialect(
    name="SQLite",
    clock="CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    on_conflict="ON CONFLICT (shard_id, uuid) DO UPDATE SET",
    returning=True,
    columns=tuple(file_rows.TIMER_COLUMNS.split(", ")),
    timer_row=file_rows.timer_row,
    record_key="key",
)
