"""The write side: one group of requests, one transaction, one sync of the file.

`BEGIN IMMEDIATE` takes the database's only write lock before anything is looked at, so versions and fences that
were read cannot change until the commit: the fence is locked, in this process and in all others.

After any failure the group is rolled back as a whole and the connection is discarded; the next group opens
a new one. So the writer needs no repair after a full disk, a lock held too long or a file that went away.
"""

from __future__ import annotations

from typing import Final

import apsw

from mainspring import crashpoint
from mainspring.store import Verdict
from mainspring.stores.plan import (
    Change,
    NoticeWriters,
    Plan,
    PruneHistory,
    Row,
    StoredRecord,
    Write,
    WriteRequest,
    only_creates,
)
from mainspring.stores.sqlite.checkpoint import Checkpointer
from mainspring.stores.sqlite.connection import Database, insert_rows
from mainspring.stores.sqlite.files import Files
from mainspring.stores.sqlite.rows import (
    TIMER_COLUMNS,
    attempt_row,
    json_text,
    places_from,
    record_versions_from,
    timer_row,
)
from mainspring.stores.sqlite.shard_rows import read_shards

CACHE_KIB: Final = 49_152
PURGE_LIMIT: Final = 200
"""How many expired records are removed at once, along with other record writes."""

# OR ROLLBACK: a failing statement ends the whole transaction anyway, and SQLite then keeps no journal of its own
# for each statement, which costs a copy of every page it touches.
_INSERT_TIMERS: Final = f"INSERT OR ROLLBACK INTO timers ({TIMER_COLUMNS})"
_PLACES: Final = """
    SELECT json_group_array(json_array(t.shard_id, t.uuid, t.due_at, t.version))
    FROM json_each(?) AS key CROSS JOIN timers AS t
    WHERE t.uuid = key.value ->> 1 AND t.shard_id = key.value ->> 0
"""
_RECORD_VERSIONS: Final = """
    SELECT json_group_array(json_array(r.collection, r.key, r.version, r.expires_at))
    FROM json_each(?) AS key CROSS JOIN records AS r
    WHERE r.collection = key.value ->> 0 AND r.key = key.value ->> 1
"""
_DELETE_TIMERS: Final = """
    DELETE FROM timers WHERE (shard_id, due_at, uuid) IN
    (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?))
"""
_BEGIN_TIMERS: Final = """
    UPDATE OR ROLLBACK timers SET state = 'running', attempts = attempts + (item.value ->> 3),
        version = item.value ->> 4, fence = item.value ->> 5
    FROM json_each(?) AS item
    WHERE shard_id = item.value ->> 0 AND due_at = item.value ->> 1 AND uuid = item.value ->> 2
"""
_DELETE_RECORDS: Final = """
    DELETE FROM records WHERE (collection, key) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""
_PURGE_RECORDS: Final = """
    DELETE FROM records WHERE (collection, key) IN
    (SELECT collection, key FROM records INDEXED BY records_by_expiry WHERE expires_at <= ? LIMIT ?)
"""
_DELETE_HISTORY: Final = """
    DELETE FROM history WHERE (shard_id, day, uuid, started_at, attempt) IN
    (SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?))
"""


class Writer:
    """Lives in the thread of its worker."""

    def __init__(self, database: Database, checkpointer: Checkpointer, files: Files | None = None) -> None:
        """Without `files`, nobody checks whether they are still there."""
        self._database = database
        self._checkpointer = checkpointer
        self._files = files
        self._connection: apsw.Connection | None = None
        self._connections = 0

    def work(self, group: list[WriteRequest]) -> None:
        try:
            with self._database.mapping_errors():
                self._examine()
                if self._connection is None:
                    self._connection = self._database.connect(cache_kib=CACHE_KIB)
                    self._connections += 1
                changes = [request for request in group if not isinstance(request, NoticeWriters)]
                if changes:
                    self._checkpointer.before_write(self._connection)
                    if not _create(self._connection, changes):
                        _change(self._connection, changes)
                    self._examine()
                if len(changes) < len(group):
                    self._notice_writers(self._connection, group)
        except BaseException:
            self.close()
            raise

    def _examine(self) -> None:
        if self._files is not None:
            self._files.examine()

    def _notice_writers(self, connection: apsw.Connection, group: list[WriteRequest]) -> None:
        """SQLite counts others' commits separately for each connection; a new connection has missed some."""
        seen: int = connection.execute("PRAGMA data_version").get
        for request in group:
            if isinstance(request, NoticeWriters):
                request.answer = self._connections << 32 | seen

    def close(self) -> None:
        """Whatever was not committed is undone."""
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None


def _create(connection: apsw.Connection, group: list[Change]) -> bool:
    """The common case, without looking first: all rows are new. False, with nothing done, if one of them is not."""
    created = only_creates(group)
    if created is None:
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        insert_rows(connection, _INSERT_TIMERS, [timer_row(timer) for timer in created])
    except apsw.ConstraintError:  # which has rolled back
        return False
    _commit(connection)
    for request in group:
        if isinstance(request, Write):
            request.answer = [Verdict.APPLIED] * len(request.items)
    return True


def _change(connection: apsw.Connection, group: list[Change]) -> None:
    plan = Plan(group)
    connection.execute("BEGIN IMMEDIATE")
    _look(connection, plan)
    for request in group:
        plan.decide(request)
    _apply_timers(connection, plan)
    _apply_records(connection, plan)
    for request in group:
        if isinstance(request, PruneHistory):
            connection.execute(_DELETE_HISTORY, (request.victims,))
            request.answer = connection.changes()
    _commit(connection)


def _commit(connection: apsw.Connection) -> None:
    crashpoint.reach(crashpoint.BEFORE_COMMIT)
    connection.execute("COMMIT")
    crashpoint.reach(crashpoint.AFTER_COMMIT)


def _look(connection: apsw.Connection, plan: Plan) -> None:
    """Read what the database holds of all that the plan names."""
    if plan.rows:
        text = connection.execute(_PLACES, (json_text(list(plan.rows)),)).get
        for shard_id, uuid, due_at, version in places_from(text):
            plan.rows[shard_id, uuid] = Row(version, due_at)
    if plan.shards:
        for shard in read_shards(connection, plan.shards):
            plan.shards[shard.shard_id] = shard
    if plan.records:
        text = connection.execute(_RECORD_VERSIONS, (json_text(list(plan.records)),)).get
        for collection, key, version, expires_at in record_versions_from(text):
            plan.records[collection, key] = StoredRecord(version, expires_at)


def _apply_timers(connection: apsw.Connection, plan: Plan) -> None:
    if gone := plan.moved_or_removed():
        connection.execute(_DELETE_TIMERS, (json_text(gone),))
    insert_rows(connection, _INSERT_TIMERS, [timer_row(timer) for timer in plan.written()])
    if begun := plan.begun():
        connection.execute(_BEGIN_TIMERS, (json_text(begun),))
    insert_rows(connection, "INSERT OR IGNORE INTO history", [attempt_row(*entry) for entry in plan.history])
    owned = [(shard.shard_id, shard.version, shard.owner) for shard in plan.claimed.values()]
    insert_rows(connection, "INSERT OR REPLACE INTO shards", list(owned))


def _apply_records(connection: apsw.Connection, plan: Plan) -> None:
    if removed := plan.removed_records():
        connection.execute(_DELETE_RECORDS, (json_text(removed),))
    if plan.records:
        # The earliest `now` of the group, so that nothing is purged that one of its callers has seen alive.
        connection.execute(_PURGE_RECORDS, (min(plan.records_as_of), PURGE_LIMIT))
    insert_rows(connection, "INSERT OR REPLACE INTO records", plan.written_records())
