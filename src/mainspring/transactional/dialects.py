"""How each database says "create this timer, or replace it". The rows are those of its store, column by column.

A create is one statement for a new id: it inserts, or it locks the row that is there and counts its generation and
version up. Only in the second case does a second one follow, which writes the rest. So nothing is looked at without
being locked, no statement fails because somebody else was faster, and whatever a row was doing, it is then rescheduled:
the version has grown, so an attempt in flight can no longer change it.

The caller's transaction may read by an old snapshot. Where a timer goes must not depend on it, so what decides that is
read with a lock, which either sees the newest row or fails: for the namespace a shared one, so that programs do not
wait for each other. SQLite needs none: it refuses to write by an old snapshot.
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
    trusted: str
    """An expression: 1 if a read without a lock sees what is committed by then, or else no write will succeed."""
    share_lock: str
    row_lock: str
    claim_record: str
    """Follows the INSERT of a record: takes the place of one that has expired, or else leaves the record that is there
    as it is, but locked. Each value in it is the present instant."""
    purge_records: str
    """Removes a few records that have expired; empty where that could wait for others."""

    def namespace(self, tables: str, name: str) -> Statement:
        """The record of a namespace, the database's clock, and whether the record is to be trusted."""
        sql = (
            f"SELECT value, {self.clock}, {self.trusted} FROM {tables}records "
            f"WHERE collection = ? AND {self.record_key} = ?"
        )
        return Statement(sql, ("namespace", name))

    def newest_namespace(self, tables: str, name: str) -> Statement:
        """Its record, whatever the caller's snapshot says. Nobody changes it before the caller's transaction ends."""
        sql = f"SELECT value FROM {tables}records WHERE collection = ? AND {self.record_key} = ? {self.share_lock}"
        return Statement(sql, ("namespace", name))

    def present(self, tables: str, keys: Sequence[TimerKey]) -> Statement:
        """The shards of those keys that have a row."""
        where = " OR ".join(["(shard_id = ? AND uuid = ?)"] * len(keys))
        values: list[Value] = [value for key in keys for value in (key.shard_id, key.uuid)]
        return Statement(f"SELECT shard_id FROM {tables}timers WHERE {where}", values)

    def lock(self, tables: str, key: TimerKey) -> Statement:
        """Its shard, if there is a row, whatever the caller's snapshot says."""
        sql = f"SELECT shard_id FROM {tables}timers WHERE shard_id = ? AND uuid = ? {self.row_lock}"
        return Statement(sql, (key.shard_id, key.uuid))

    def insert(self, tables: str, timer: Timer) -> Statement:
        """Leaves generation 1 if there was no row, and a higher one if there was."""
        table = f"{tables}timers"
        sql = (
            f"INSERT INTO {table} ({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))}) "
            f"{self.on_conflict} generation = {table}.generation + 1, version = {table}.version + 1"
        )
        behind = " RETURNING generation, version, detail" if self.returning else ""
        return Statement(sql + behind, self.timer_row(timer))

    def claim(self, table: str, place: Sequence[Value], value: bytes, now: int) -> Statement:
        """Returns a row if the record was written and the database can tell."""
        behind = self.claim_record.format(table=table)
        sql = f"INSERT INTO {table} (collection, {self.record_key}, value, version) VALUES (?, ?, ?, 1) {behind}"
        return Statement(sql, (*place, value, *[now] * behind.count("?")))

    def left(self, tables: str, key: TimerKey) -> Statement:
        """What the INSERT left, for databases whose INSERT cannot say it."""
        sql = f"SELECT generation, version, detail FROM {tables}timers WHERE shard_id = ? AND uuid = ?"
        return Statement(sql, (key.shard_id, key.uuid))

    def replace(self, tables: str, timer: Timer) -> Statement:
        settings = ", ".join(f"{column} = ?" for column in self.columns)
        sql = f"UPDATE {tables}timers SET {settings} WHERE shard_id = ? AND uuid = ?"
        return Statement(sql, (*self.timer_row(timer), timer.shard_id, timer.uuid))


_REPLACE_EXPIRED: Final = (
    "ON CONFLICT (collection, {key}) DO UPDATE SET value = excluded.value, version = 1, expires_at = NULL "
    "WHERE {table}.expires_at <= ? RETURNING version"
)
POSTGRESQL: Final = Dialect(
    name="PostgreSQL",
    clock="(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    on_conflict="ON CONFLICT (shard_id, uuid) DO UPDATE SET",
    returning=True,
    columns=server_rows.TIMER_COLUMNS,
    timer_row=server_rows.timer_row,
    record_key="record_key",
    trusted="CASE WHEN current_setting('transaction_isolation') = 'read committed' THEN 1 ELSE 0 END",
    share_lock="FOR SHARE",
    row_lock="FOR UPDATE",
    claim_record=_REPLACE_EXPIRED.format(key="record_key", table="{table}"),
    purge_records="",
)
MYSQL: Final = Dialect(
    name="MySQL",
    clock="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
    on_conflict="ON DUPLICATE KEY UPDATE",
    returning=False,
    columns=server_rows.TIMER_COLUMNS,
    timer_row=server_rows.timer_row,
    record_key="record_key",
    trusted="0",  # the isolation of a transaction cannot be asked for
    share_lock="LOCK IN SHARE MODE",
    row_lock="FOR UPDATE",
    claim_record=(  # from left to right: what decides is changed last
        "ON DUPLICATE KEY UPDATE value = IF(expires_at <= ?, VALUES(value), value), "
        "version = IF(expires_at <= ?, 1, version), expires_at = IF(expires_at <= ?, NULL, expires_at)"
    ),
    purge_records="",
)
SQLITE: Final = Dialect(
    name="SQLite",
    clock="CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    on_conflict="ON CONFLICT (shard_id, uuid) DO UPDATE SET",
    returning=True,
    columns=tuple(file_rows.TIMER_COLUMNS.split(", ")),
    timer_row=file_rows.timer_row,
    record_key="key",
    trusted="1",
    share_lock="",
    row_lock="",
    claim_record=_REPLACE_EXPIRED.format(key="key", table="{table}"),
    purge_records=(
        "DELETE FROM records WHERE (collection, key) IN "
        "(SELECT collection, key FROM records WHERE expires_at <= ? ORDER BY expires_at LIMIT 4)"
    ),
)
