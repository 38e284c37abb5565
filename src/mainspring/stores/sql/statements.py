"""The SQL of both contracts, written once. Values are always bound; names are checked when the URL is read.

Positions in the due order are compared as `due_at >= d AND (due_at > d OR uuid > u)`, because MySQL reads an index
range for that, and a whole shard for `(due_at, uuid) > (d, u)`.
"""
# ruff: noqa: S608  (only constants and checked names are put together here)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from mainspring.model import FOREVER, State, TimerKey
from mainspring.store import PAGE_BYTES, Position, TimerFilter
from mainspring.stores.plan import Value
from mainspring.stores.sql.dialect import Dialect, Parameter, Statement
from mainspring.stores.sql.rows import (
    HISTORY_COLUMNS,
    RECORD_COLUMNS,
    SHARD_COLUMNS,
    TIMER_COLUMNS,
    Row,
    label_line,
    store_name,
)
from mainspring.stores.sql.schema import Names

ROWS_LIMIT: Final = 1_000
BYTES_LIMIT: Final = 4_000_000
"""The size of one statement: MySQL servers accept 16 MB or more, and escaping may double the text."""

KEYS_LIMIT: Final = 500
"""The keys in one condition: for a list of 1,000 MariaDB does not use the index, and would lock other rows."""

K = TypeVar("K")

_TIMER_KEY: Final = ("shard_id", "uuid")
_RECORD_KEY: Final = ("collection", "record_key")
_HISTORY_KEY: Final = HISTORY_COLUMNS[:-1]
_TIMER_TEXT: Final = ", ".join(TIMER_COLUMNS[:-1])
_SIZE: Final = "(OCTET_LENGTH(detail) + COALESCE(OCTET_LENGTH(payload), 0))"
_BEHIND: Final = "due_at >= ? AND (due_at > ? OR uuid > ?)"
_BEHIND_PLACE: Final = "shard_id = {} AND due_at >= {} AND (due_at > {} OR uuid > {})"
_FIRST: Final = "ORDER BY due_at, uuid LIMIT ?"
_UP_TO: Final = "due_at <= ? AND (due_at < ? OR uuid <= ?)"


class Statements:
    def __init__(self, dialect: Dialect, names: Names) -> None:
        self._dialect = dialect
        self._timers = names.full("timers")
        self._shards = names.full("shards")
        self._history = names.full("history")
        self._records = names.full("records")
        self._by_due = f"SELECT {_TIMER_TEXT} FROM {self._timers} WHERE shard_id = ?"

    def _with_keys(self, before: str, columns: Sequence[str], keys: Sequence[Row], behind: str = "",
                   values: Sequence[Value] = ()) -> Statement:  # fmt: skip
        """`values` are those of the text before the keys."""
        condition = self._dialect.keys(columns, keys)
        return Statement(
            self._dialect.render(f"{before} WHERE {condition.sql} {behind}"), [*values, *condition.parameters]
        )

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], behind: str = "") -> Iterator[Statement]:
        for chunk in _chunks(rows):
            values = self._dialect.values(columns, chunk)
            sql = f"INSERT INTO {table} ({', '.join(columns)}) {values.sql} {behind}"
            yield Statement(self._dialect.render(sql), values.parameters)

    def _delete(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        statement = self._dialect.delete(table, columns, keys)
        return Statement(self._dialect.render(statement.sql), statement.parameters)

    # Timers: writing

    def places(self, keys: Sequence[Row], lock: str = "") -> Statement:
        read = f"SELECT shard_id, uuid, due_at, version FROM {self._timers} {self._dialect.primary_index}"
        return self._with_keys(read, _TIMER_KEY, keys, f"ORDER BY shard_id, uuid {lock}")

    def insert_timers(self, rows: Sequence[Row]) -> Iterator[Statement]:
        return self._insert(self._timers, TIMER_COLUMNS, rows)

    def delete_timers(self, keys: Sequence[Row]) -> Statement:
        return self._delete(self._timers, _TIMER_KEY, keys)

    def begin_timers(self, keys: Sequence[Row], *, begins: int) -> Statement:
        """The fence is the version of the shard, which this transaction has compared and locked."""
        fence = f"SELECT s.version FROM {self._shards} s WHERE s.shard_id = {self._timers}.shard_id"
        update = (
            f"UPDATE {self._timers} {self._dialect.primary_index} SET state = '{State.RUNNING}', "
            f"attempts = attempts + ?, version = version + ?, fence = COALESCE(({fence}), 0)"
        )
        return self._with_keys(update, (*_TIMER_KEY, "version"), keys, values=(begins, begins))

    def insert_history(self, rows: Sequence[Row]) -> Iterator[Statement]:
        return self._insert(self._history, HISTORY_COLUMNS, rows, self._dialect.skip_same_attempt)

    # Timers: reading

    def get_timers(self, keys: Sequence[Row]) -> Statement:
        return self._with_keys(f"SELECT {_TIMER_TEXT} FROM {self._timers}", _TIMER_KEY, keys)

    def list_timers(
        self, shards: Sequence[int], where: TimerFilter, *, after: Position, end: Position, limit: int
    ) -> Statement:
        """Each shard in its own order, up to the limit: together they are few, and sorted once."""
        conditions, arguments = _conditions(where)  # without the due range, which is a range of the index
        one = f"{self._by_due} AND {_BEHIND} AND {_UP_TO} {conditions} ORDER BY due_at, uuid LIMIT ?"
        sql = f"SELECT * FROM ({' UNION ALL '.join([f'({one})'] * len(shards))}) AS page ORDER BY due_at, uuid LIMIT ?"
        parameters: list[Parameter] = []
        for shard_id in shards:
            parameters += (shard_id, *_thrice(after), *_thrice(end), *arguments, limit)
        return Statement(self._dialect.render(_within_bytes(sql)), [*parameters, limit])

    def first_places(self, shards: Sequence[int], *, after: Position, end: Position) -> Statement:
        """Shard, instant and uuid of the first row of a part, for each shard that has one."""
        one = f"SELECT shard_id, due_at, uuid FROM {self._timers} WHERE {_BEHIND_PLACE} AND {_UP_TO} {_FIRST}"
        found = self._dialect.for_places(one, [(shard_id, after) for shard_id in shards], (*_thrice(end), 1))
        return Statement(self._dialect.render(found.sql), found.parameters)

    def nth_place(self, shards: Sequence[int], count: int, *, after: Position, end: Position) -> Statement:
        """The first position before which one of these shards has this many rows of a part. Reads only the index."""
        place = f"SELECT shard_id, due_at, uuid FROM {self._timers} WHERE shard_id = ? AND {_BEHIND} AND {_UP_TO}"
        one = f"({place} ORDER BY due_at, uuid LIMIT 1 OFFSET {count - 1})"
        sql = f"SELECT * FROM ({' UNION ALL '.join([one] * len(shards))}) AS place ORDER BY due_at, uuid LIMIT 1"
        parameters: list[Parameter] = []
        for shard_id in shards:
            parameters += (shard_id, *_thrice(after), *_thrice(end))
        return Statement(self._dialect.render(sql), parameters)

    def due_timers(self, shard_id: int, until: int, after: Position, limit: int) -> Statement:
        sql = f"{self._by_due} AND {_BEHIND} AND due_at <= ? ORDER BY due_at, uuid LIMIT ?"
        return Statement(self._dialect.render(_within_bytes(sql)), (shard_id, *_thrice(after), until, limit))

    def due_timers_of(self, places: Sequence[tuple[int, Position]], until: int, limit: int) -> Statement:
        """The same for many shards, one after another."""
        one = f"SELECT {_TIMER_TEXT} FROM {self._timers} WHERE {_BEHIND_PLACE} AND due_at <= ? {_FIRST}"
        found = self._dialect.for_places(one, places, (until, limit))
        sql = _within_bytes(found.sql, order="shard_id, due_at, uuid")
        return Statement(self._dialect.render(sql), found.parameters)

    def next_due_behind_each(self, places: Sequence[tuple[int, Position]]) -> Statement:
        """Shards, each with its first due instant after the place, if there is one."""
        one = f"SELECT shard_id, due_at FROM {self._timers} WHERE {_BEHIND_PLACE} AND due_at < ? {_FIRST}"
        found = self._dialect.for_places(one, places, (FOREVER, 1))
        return Statement(self._dialect.render(found.sql), found.parameters)

    def next_due_behind(self, shard_id: int, after: Position) -> Statement:
        first = f"SELECT due_at FROM {self._timers} WHERE shard_id = ? AND {_BEHIND} AND due_at < ?"
        sql = f"SELECT ({first} ORDER BY due_at, uuid LIMIT 1)"  # MIN would read everything after it
        return Statement(self._dialect.render(sql), (shard_id, *_thrice(after), FOREVER))

    def next_due(self, shard_ids: Sequence[int]) -> Statement:
        """A look at the start of each shard's range, all in one round trip."""
        one = f"SELECT MIN(due_at) FROM {self._timers} WHERE shard_id = {{}} AND due_at < {FOREVER}"
        statement = self._dialect.for_each(one, shard_ids)
        return Statement(self._dialect.render(statement.sql), statement.parameters)

    # History

    def history_day_before(self, shard_id: int, day: int) -> Statement:
        sql = f"SELECT MAX(day) FROM {self._history} WHERE shard_id = ? AND day < ?"
        return Statement(self._dialect.render(sql), (shard_id, day))

    def history_of_day(self, key: TimerKey, day: int, before: tuple[int, int], limit: int) -> Statement:
        sql = (
            f"SELECT document, started_at, attempt FROM {self._history} WHERE shard_id = ? AND day = ? AND uuid = ? "
            "AND (started_at, attempt) < (?, ?) ORDER BY started_at DESC, attempt DESC LIMIT ?"
        )
        return Statement(self._dialect.render(sql), (key.shard_id, day, key.uuid, *before, limit))

    def old_history(self, shard_id: int, day: int, older_than: int, limit: int) -> Statement:
        key = ", ".join(_HISTORY_KEY)
        sql = (
            f"SELECT {key} FROM {self._history} WHERE shard_id = ? AND day <= ? AND started_at < ? "
            f"ORDER BY {key} LIMIT ?"
        )
        return Statement(self._dialect.render(sql), (shard_id, day, older_than, limit))

    def delete_history(self, keys: Sequence[Row]) -> Statement:
        return self._delete(self._history, _HISTORY_KEY, keys)

    # Shards

    def shards(self, shard_ids: Sequence[int], lock: str = "") -> Statement:
        read = f"SELECT shard_id, version, owner FROM {self._shards} {self._dialect.primary_index}"
        keys: list[Row] = [(shard_id,) for shard_id in shard_ids]
        return self._with_keys(read, ("shard_id",), keys, f"ORDER BY shard_id {lock}")

    def insert_shards(self, rows: Sequence[Row]) -> Iterator[Statement]:
        return self._insert(self._shards, SHARD_COLUMNS, rows)

    def own_shards(self, keys: Sequence[Row], *, growth: int, owner: str) -> Statement:
        """Compares the versions again, so that even a database that ignored the lock would not let two claims win."""
        update = f"UPDATE {self._shards} SET version = version + ?, owner = ?"
        return self._with_keys(update, ("shard_id", "version"), keys, values=(growth, owner))

    # Records

    def record_versions(self, keys: Sequence[tuple[str, str]], lock: str = "") -> Statement:
        names = ", ".join(self._dialect.text(column) for column in _RECORD_KEY)
        read = f"SELECT {names}, version, expires_at FROM {self._records} {self._dialect.primary_index}"
        return self._with_keys(read, _RECORD_KEY, _names(keys), f"ORDER BY collection, record_key {lock}")

    def insert_records(self, rows: Sequence[Row]) -> Iterator[Statement]:
        return self._insert(self._records, RECORD_COLUMNS, rows)

    def delete_records(self, keys: Sequence[tuple[str, str]]) -> Statement:
        return self._delete(self._records, _RECORD_KEY, _names(keys))

    def get_record(self, collection: str, key: str, now: int) -> Statement:
        sql = (
            f"SELECT {self._dialect.text('record_key')}, value, version, expires_at FROM {self._records} "
            "WHERE collection = ? AND record_key = ? AND (expires_at IS NULL OR expires_at > ?)"
        )
        return Statement(self._dialect.render(sql), (store_name(collection), store_name(key), now))

    def scan_records(self, collection: str, after: str, now: int, limit: int) -> Statement:
        """The first records, up to the one that fills a page."""
        live = (
            f"SELECT * FROM {self._records} WHERE collection = ? AND record_key > ? "
            "AND (expires_at IS NULL OR expires_at > ?) ORDER BY record_key LIMIT ?"
        )
        before = "SUM(OCTET_LENGTH(value)) OVER (ORDER BY record_key) - OCTET_LENGTH(value)"
        sql = (
            f"SELECT {self._dialect.text('record_key')}, value, version, expires_at "
            f"FROM (SELECT page.*, {before} AS bytes_before FROM ({live}) AS page) AS sized "
            f"WHERE bytes_before <= {PAGE_BYTES} ORDER BY record_key"
        )
        return Statement(self._dialect.render(sql), (store_name(collection), store_name(after), now, limit))

    def expired_records(self, now: int, limit: int, lock: str) -> Statement:
        names = ", ".join(self._dialect.text(column) for column in _RECORD_KEY)
        sql = f"SELECT {names}, version, expires_at FROM {self._records} WHERE expires_at <= ? LIMIT ? {lock}"
        return Statement(self._dialect.render(sql), (now, limit))

    # The clock

    def time(self) -> Statement:
        return Statement(f"SELECT {self._dialect.clock}", ())


def _within_bytes(rows: str, order: str = "due_at, uuid") -> str:
    """The first of these rows, up to the one that fills a page; their last column says how large they are by then."""
    sized = f"SELECT page.*, SUM({_SIZE}) OVER (ORDER BY {order}) AS so_far FROM ({rows}) AS page"
    return (
        f"SELECT {_TIMER_TEXT}, so_far FROM ({sized}) AS sized WHERE so_far - {_SIZE} <= {PAGE_BYTES} ORDER BY {order}"
    )


def _names(keys: Sequence[tuple[str, str]]) -> list[Row]:
    return [(store_name(collection), store_name(key)) for collection, key in keys]


def _thrice(position: Position) -> tuple[int, int, str]:
    return position.due_at, position.due_at, position.uuid


def _conditions(where: TimerFilter) -> tuple[str, list[Value]]:
    conditions: list[str] = []
    arguments: list[Value] = []
    if where.states:
        conditions.append(f"AND state IN ({', '.join('?' * len(where.states))})")
        arguments += (state.value for state in where.states)
    if where.id_prefix:
        conditions.append("AND timer_id LIKE ? ESCAPE '!'")
        prefix = store_name(where.id_prefix).replace("!", "!!").replace("%", "!%").replace("_", "!_")
        arguments.append(f"{prefix}%")
    for name, value in where.labels:
        conditions.append("AND POSITION(? IN labels) > 0")
        arguments.append(label_line(name, value))
    return " ".join(conditions), arguments


def in_parts(keys: Sequence[K]) -> Iterator[Sequence[K]]:
    """Keys for one statement after another, in their order."""
    for start in range(0, len(keys), KEYS_LIMIT):
        yield keys[start : start + KEYS_LIMIT]


def _chunks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        length = sum(len(value) for value in row if isinstance(value, str | bytes))
        if chunk and (len(chunk) >= ROWS_LIMIT or size + length > BYTES_LIMIT):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += length
    if chunk:
        yield chunk
