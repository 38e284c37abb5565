"""The read side: each function is one read, on the connection of a reader's thread.

A read sees every write that was acknowledged before it began, because each statement starts a new snapshot.
No statement reads more than a few rows of several shards, so no snapshot lasts long enough to keep the WAL
from starting again.
"""
# ruff: noqa: S608  (only constants of this package are put together here; values are always bound)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import apsw

from mainspring.model import FOREVER, Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import DUE_BYTES, DuePage, ListPage, Position, TimerFilter, horizon_of, look_rows
from mainspring.stores.committer import fail
from mainspring.stores.groups import Request
from mainspring.stores.pages import PageBuilder, behind, filling
from mainspring.stores.plan import Value
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.files import Files
from mainspring.stores.sqlite.rows import (
    DAY_MS,
    TIMER_COLUMNS,
    Place,
    attempt_in_bytes,
    attempts_from,
    first_places_from,
    found_records_from,
    instants_from,
    json_text,
    record_in_bytes,
    records_from,
    sizes_from,
    unreadable_record,
)
from mainspring.stores.sqlite.shard_rows import read_shards
from mainspring.stores.sqlite.timer_pages import SPOILED, read_all, read_part
from mainspring.unreadable import Unreadable, attempt_of, claimable, each, readable, timer_name

T_co = TypeVar("T_co", covariant=True)

CACHE_KIB: Final = 4_096
PLACED_SHARDS: Final = 512
"""Of how many shards one statement finds the first rows."""

_GET: Final = """
    SELECT t.* FROM json_each(?) AS item CROSS JOIN timers AS t
    WHERE t.uuid = item.value ->> 1 AND t.shard_id = item.value ->> 0
"""
_PART: Final = "shard_id = ? AND (due_at, uuid) > (?, ?) AND (due_at, uuid) <= (?, ?)"
_FIRST_PLACES: Final = f"""
    SELECT json_group_array(json((
        SELECT json_group_array(json_array(due_at, place)) FROM (
            SELECT due_at, hex(uuid) AS place FROM timers
            WHERE {_PART.replace("?", "shard.value", 1)} ORDER BY due_at, uuid LIMIT ?))))
    FROM json_each(?) AS shard
"""
_DUE: Final = f"""
    SELECT {TIMER_COLUMNS} FROM timers
    WHERE shard_id = ? AND (due_at, uuid) > (?, ?) AND due_at <= ?
    ORDER BY due_at, uuid LIMIT ?
"""
_NEXT_DUE: Final = """
    SELECT due_at FROM timers WHERE shard_id = ? AND (due_at, uuid) > (?, ?) AND due_at < ?
    ORDER BY due_at, uuid LIMIT 1
"""
_EARLIEST: Final = """
    SELECT json_group_array((SELECT min(due_at) FROM timers WHERE shard_id = item.value AND due_at < ?))
    FROM json_each(?) AS item
"""
_DAY_BEFORE: Final = "SELECT max(day) FROM history WHERE shard_id = ? AND day < ?"
_ATTEMPTS: Final = """
    SELECT document FROM history
    WHERE shard_id = ? AND day = ? AND uuid = ? AND (started_at, attempt) < (?, ?)
    ORDER BY started_at DESC, attempt DESC LIMIT ?
"""
_OLD_HISTORY: Final = """
    SELECT json_group_array(json_array(shard_id, day, uuid, started_at, attempt)) FROM (
        SELECT * FROM history WHERE shard_id = ? AND day <= ? AND started_at < ? ORDER BY day LIMIT ?)
"""
LARGE_BYTES: Final = 65_536
"""A value of this many bytes is read by itself: as hexadecimal in JSON it would be in memory six times over."""
_RECORDS: Final = f"""
    SELECT json_group_array(json_array(
        item.key, iif(octet_length(r.value) < {LARGE_BYTES}, hex(r.value), NULL), r.version, r.expires_at))
    FROM json_each(?) AS item CROSS JOIN records AS r
    WHERE r.collection = item.value ->> 0 AND r.key = item.value ->> 1
"""
_RECORD: Final = "SELECT value, version, expires_at FROM records WHERE collection = ? AND key = ?"
_SCAN: Final = """
    SELECT * FROM records WHERE collection = ? AND key > ? AND (expires_at IS NULL OR expires_at > ?)
    ORDER BY key LIMIT ?
"""
_SCAN_SIZES: Final = f"SELECT json_group_array(octet_length(value)) FROM ({_SCAN})"
_SCAN_PAGE: Final = f"SELECT json_group_array(json_array(key, hex(value), version, expires_at)) FROM ({_SCAN})"

_SCAN_ROWS: Final = f"SELECT CAST(key AS BLOB), value, version, expires_at FROM ({_SCAN})"


class Read(Request, Generic[T_co]):
    """One of the functions below, with its arguments bound."""

    __slots__ = ("answer", "query")
    answer: T_co

    def __init__(self, query: Callable[[apsw.Connection], T_co], size: int = 0) -> None:
        super().__init__(size=size)
        self.query = query

    def run(self, connection: apsw.Connection) -> None:
        self.answer = self.query(connection)


class ReadRecord(Request):
    """A look at one record. Those of a group are one statement: there are many when jobs or keys are busy."""

    __slots__ = ("answer", "collection", "key", "now")
    answer: Record | None

    def __init__(self, collection: str, key: str, *, now: int) -> None:
        super().__init__()
        self.collection = collection
        self.key = key
        self.now = now


class Reader:
    """Lives in the thread of its worker. Reads succeed or fail one by one, those of records together."""

    def __init__(self, database: Database, files: Files | None = None) -> None:
        self._database = database
        self._files = files
        self._connection: apsw.Connection | None = None

    def work(self, group: list[Read[object] | ReadRecord]) -> None:
        records = [read for read in group if isinstance(read, ReadRecord)]
        if records:
            self._run(records, lambda connection: read_records(connection, records))
        for read in group:
            if isinstance(read, Read):
                self._run([read], read.run)

    def _run(self, reads: Sequence[Request], run: Callable[[apsw.Connection], None]) -> None:
        try:
            with self._database.mapping_errors():
                if self._files is not None:
                    self._files.check()
                if self._connection is None:
                    self._connection = self._database.connect(cache_kib=CACHE_KIB)
                run(self._connection)
        except Exception as error:  # noqa: BLE001  (handed to the callers)
            fail(reads, error)
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None


def quick_check(connection: apsw.Connection) -> list[str]:
    found: list[Any] = connection.execute("PRAGMA quick_check(100)").fetchall()
    return [str(row[0]) for row in found if row[0] != "ok"]


def get(connection: apsw.Connection, keys: Sequence[TimerKey]) -> list[Timer | None]:
    found = {timer.key: timer for timer in readable(_rows(connection, keys))}
    return [found.get(key) for key in keys]


def damaged(connection: apsw.Connection, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
    found = {row.name: row for row in _rows(connection, keys) if isinstance(row, Unreadable)}
    return [found.get(timer_name(key)) for key in keys]


def _rows(connection: apsw.Connection, keys: Sequence[TimerKey]) -> list[Timer | Unreadable]:
    return read_all(connection, _GET, (json_text([(key.shard_id, key.uuid) for key in keys]),))


def list_timers(
    connection: apsw.Connection, shards: Sequence[int], where: TimerFilter, after: Position, limit: int
) -> ListPage:
    if limit <= 0:
        return ListPage([], None)
    start, end = where.part_after(after)
    occupied = _occupied(connection, list(dict.fromkeys(shards)), start, end)
    if where.is_selective:
        return _selected(connection, [shard_id for _, shard_id in occupied], where, (start, end), limit)
    page = PageBuilder(limit)
    rows = f"SELECT {TIMER_COLUMNS} FROM timers WHERE {_PART} ORDER BY due_at, uuid LIMIT ?"
    for first, shard_id in occupied:  # each only up to the end of the page so far
        if page.end is not None and first > page.end:
            break
        page.add(read_part(connection, rows, (shard_id, *start, *(page.end or end)), limit))
    return page.page


def _selected(
    connection: apsw.Connection, shards: Sequence[int], where: TimerFilter, part: tuple[Position, Position], limit: int
) -> ListPage:
    """What matches up to the horizon, in all shards at once: that is a bounded number of rows to look at."""
    start, end = part
    horizon = _horizon(connection, shards, start, end)
    page = PageBuilder(limit, horizon)
    conditions, arguments = _conditions(where)
    rows = f"""
        SELECT {TIMER_COLUMNS} FROM (SELECT value AS wanted FROM json_each(?)) CROSS JOIN timers
        WHERE {_PART.replace("?", "wanted", 1)} {conditions}
        ORDER BY due_at, uuid LIMIT ?
    """
    page.add(read_part(connection, rows, (json_text(list(shards)), *start, *(horizon or end), *arguments), limit))
    return page.page


def _occupied(
    connection: apsw.Connection, shards: Sequence[int], start: Position, end: Position
) -> list[tuple[Position, int]]:
    """The shards that have rows of a part, by the position of the first one. Of many, most are often empty."""
    places = _first_places(connection, shards, start, end, 1)
    return sorted((_position(found[0]), shard_id) for shard_id, found in zip(shards, places, strict=True) if found)


def _horizon(connection: apsw.Connection, shards: Sequence[int], start: Position, end: Position) -> Position | None:
    count = look_rows(len(shards))
    place = horizon_of(_first_places(connection, shards, start, end, count), count)
    return None if place is None else _position(place)


def _first_places(
    connection: apsw.Connection, shards: Sequence[int], start: Position, end: Position, count: int
) -> list[list[Place]]:
    """Of each shard. A few shards in one statement, for the sake of the snapshot."""
    places: list[list[Place]] = []
    for first in range(0, len(shards), PLACED_SHARDS):
        some = json_text(list(shards[first : first + PLACED_SHARDS]))
        places += first_places_from(connection.execute(_FIRST_PLACES, (*start, *end, count, some)).get)
    return places


def _position(place: Place) -> Position:
    return behind(place[0], bytes.fromhex(place[1]))


def _conditions(where: TimerFilter) -> tuple[str, list[Value]]:
    """Without the due range, which is a range of the key."""
    conditions: list[str] = []
    arguments: list[Value] = []
    if where.states:
        conditions.append("AND state IN (SELECT value FROM json_each(?))")
        arguments.append(json_text(where.states))
    if where.id_prefix:
        conditions.append("AND substr(timer_id, 1, ?) = ?")
        arguments += (len(where.id_prefix), where.id_prefix)
    if where.labels:  # each detail is read once, however many labels are looked for: both may be large
        wanted = "(key, value) IN (SELECT key, value FROM json_each(?))"
        found = f"SELECT count(*) FROM json_each(detail, '$.labels') WHERE {wanted}"
        conditions.append(f"AND CASE WHEN json_valid(detail) THEN ({found}) = ? ELSE FALSE END")
        labels = dict(where.labels)
        arguments += (json_text(labels), len(labels))
    return " ".join(conditions), arguments


def load_due(connection: apsw.Connection, shard_id: int, until: int, after: Position, limit: int) -> DuePage:
    while True:
        part = read_part(connection, _DUE, (shard_id, *after, until), limit, page_bytes=DUE_BYTES)
        after = part.last or after
        next_due_at: int | None = connection.execute(_NEXT_DUE, (shard_id, *after, FOREVER)).get
        if part.timers or part.end is None:
            return DuePage(part.timers, next_due_at)


def next_due(connection: apsw.Connection, shard_ids: Sequence[int]) -> list[int | None]:
    text = connection.execute(_EARLIEST, (FOREVER, json_text(list(shard_ids)))).get
    return instants_from(text)


def history(connection: apsw.Connection, key: TimerKey, before: tuple[int, int], limit: int) -> list[Attempt]:
    """Day by day backwards, skipping from one existing day to the one before it."""
    attempts: list[Attempt] = []
    day: int | None = before[0] // DAY_MS + 1
    while len(attempts) < limit:
        day = connection.execute(_DAY_BEFORE, (key.shard_id, day)).get
        if day is None:
            break
        attempts += _attempts_of_day(connection, key, day, before, limit - len(attempts))
    return attempts


def _attempts_of_day(
    connection: apsw.Connection, key: TimerKey, day: int, before: tuple[int, int], limit: int
) -> list[Attempt]:
    try:
        query = f"SELECT json_group_array(json(document)) FROM ({_ATTEMPTS})"
        return attempts_from(connection.execute(query, (key.shard_id, day, key.uuid, *before, limit)).get)
    except SPOILED:  # all of the day, so that unreadable ones do not count towards the limit
        query = f"SELECT CAST(document AS BLOB) FROM ({_ATTEMPTS})"
        rows: list[Any] = connection.execute(query, (key.shard_id, day, key.uuid, *before, -1)).fetchall()
        understood = each(rows, lambda row: attempt_in_bytes(row[0]), lambda _, error: attempt_of(key, error))
        return readable(understood)[:limit]


def old_history(connection: apsw.Connection, shard_id: int, older_than: int, limit: int) -> str:
    """The keys of entries to prune, as the JSON text that the writer takes."""
    text: str = connection.execute(_OLD_HISTORY, (shard_id, (older_than - 1) // DAY_MS, older_than, limit)).get
    return text


def shards(connection: apsw.Connection, shard_ids: Sequence[int]) -> list[Shard | None]:
    found = {shard.shard_id: shard for shard in read_shards(connection, shard_ids)}
    return claimable(found.get(shard_id, Shard(shard_id)) for shard_id in shard_ids)


def get_records(connection: apsw.Connection, wanted: Sequence[tuple[str, str]], now: int) -> list[Record | None]:
    reads = [ReadRecord(collection, key, now=now) for collection, key in wanted]
    read_records(connection, reads)
    return [read.answer for read in reads]


def read_records(connection: apsw.Connection, reads: Sequence[ReadRecord]) -> None:
    """Answer looks at records, each as of its own `now`."""
    for read in reads:
        read.answer = None
    wanted = json_text([(read.collection, read.key) for read in reads])
    for place, value, version, expires_at in found_records_from(connection.execute(_RECORDS, (wanted,)).get):
        read = reads[place]
        if value is None:
            rows: list[Any] = connection.execute(_RECORD, (read.collection, read.key)).fetchall()
            found = [Record(read.key, *row) for row in rows]  # empty if it was removed since
        else:
            found = [Record(read.key, value, version, expires_at)]
        for record in found:
            if record.expires_at is None or record.expires_at > read.now:
                read.answer = record


def scan_records(connection: apsw.Connection, collection: str, now: int, after: str, limit: int) -> list[Record]:
    sizes = sizes_from(connection.execute(_SCAN_SIZES, (collection, after, now, limit)).get)
    try:
        return records_from(connection.execute(_SCAN_PAGE, (collection, after, now, filling(sizes))).get)
    except SPOILED:  # all that follow, so that unreadable ones do not count towards the limit
        rows: list[Any] = connection.execute(_SCAN_ROWS, (collection, after, now, -1)).fetchall()
        page = readable(each(rows, record_in_bytes, lambda row, error: unreadable_record(collection, row, error)))
        return page[: filling([len(record.value) for record in page[:limit]])]
