"""Claims in a SQLite file. Threads write through a connection of their own, without an event loop in between.

Writes are durable when they return (`synchronous = FULL`). Several processes may share the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

import apsw

from mainspring.clock import wall_ms
from mainspring.errors import ConfigError, InvalidInput
from mainspring.idempotency.entries import COLLECTION, NOTES
from mainspring.idempotency.stores.process import Process
from mainspring.model import Record
from mainspring.stores.sqlite import schema
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.files import Files

T = TypeVar("T")

_CACHE_KIB: Final = 4_096
_SWEEP: Final = 4
_LIVE: Final = "collection = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"
_LOOK: Final = f"SELECT value, version, expires_at FROM records WHERE {_LIVE}"  # noqa: S608
_CLAIM: Final = """
    INSERT INTO records (collection, key, value, version) VALUES (?, ?, ?, ?)
    ON CONFLICT (collection, key) DO UPDATE
    SET value = excluded.value, version = excluded.version, expires_at = NULL
    WHERE expires_at <= ?
"""
_REPLACE: Final = f"UPDATE records SET value = ?, version = version + 1, expires_at = ? WHERE {_LIVE} AND version = ?"  # noqa: S608
_REMOVE: Final = f"DELETE FROM records WHERE {_LIVE} AND version = ?"  # noqa: S608
_NOTE: Final = "INSERT OR IGNORE INTO records (collection, key, value, version) VALUES (?, ?, ?, 1)"
_NOTES: Final = "SELECT key, value, version FROM records WHERE collection = ? AND key > ? ORDER BY key LIMIT ?"
_STRIKE: Final = "DELETE FROM records WHERE collection = ? AND key = ? AND version = ?"
# Later writes also remove what has expired, a few at a time, so that it cannot pile up.
_EXPIRED: Final = f"""
    DELETE FROM records WHERE (collection, key) IN (
        SELECT collection, key FROM records WHERE expires_at <= ? ORDER BY expires_at LIMIT {_SWEEP}
    )
"""  # noqa: S608


class SQLiteClaims:
    """The verbs on one connection, which one thread uses at a time: SQLite has one writer anyway."""

    looks_first = True  # a look needs no transaction and no disk

    def __init__(self, path: str, *, busy_ms: int) -> None:
        self._database = Database(path, busy_ms)
        self._files: Files | None = None
        self._lock = Lock()
        self._process = Process()
        self._lent_to = ""

    async def time(self) -> int:
        if self._files is None:
            self._with_connection(lambda _: None)
        return wall_ms()

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        def write(connection: apsw.Connection) -> Record | None:
            while True:
                connection.execute(_CLAIM, (COLLECTION, address, value, version, now))
                if connection.changes():
                    return None
                present = _look(connection, address, now)
                if present is not None:
                    return present

        return self._with_connection(write)

    async def look(self, address: str, *, now: int) -> Record | None:
        return self._with_connection(lambda connection: _look(connection, address, now))

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        def write(connection: apsw.Connection) -> bool:
            with connection:
                connection.execute(_REPLACE, (value, expires_at, COLLECTION, address, now, expect))
                is_written = connection.changes() > 0
                connection.execute(_EXPIRED, (now,))
            return is_written

        return self._with_connection(write)

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        def write(connection: apsw.Connection) -> bool:
            connection.execute(_REMOVE, (COLLECTION, address, now, expect))
            return connection.changes() > 0

        return self._with_connection(write)

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        self._with_connection(lambda connection: connection.execute(_NOTE, (NOTES, address, value)).fetchall())

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        def read(connection: apsw.Connection) -> list[Record]:
            found = connection.execute(_NOTES, (NOTES, after, limit))
            return [Record(address, value, version) for address, value, version in found]

        return self._with_connection(read)

    async def strike(self, note: Record, *, now: int) -> None:
        self._with_connection(
            lambda connection: connection.execute(_STRIKE, (NOTES, note.key, note.version)).fetchall()
        )

    def close(self) -> None:
        if self._process.is_another:
            return
        with self._lock:
            if self._files is not None:
                self._files.close()
                self._files = None
                self._process.leave()

    def lend_file(self, driver: str) -> None:
        """See `LendsFile`. What else has the file open in this process, apsw knows."""
        path = os.path.realpath(self._database.path)
        if any(one.filename and os.path.realpath(one.filename) == path for one in apsw.connections()):
            raise InvalidInput(
                f"Expected an apsw connection, got one of {driver}, which is another SQLite library than the one that "
                f"has {self._database.path} open in this process: the two would not see each other's locks and would "
                "overwrite each other's commits. Close the store, and whatever else uses the file here, before you "
                f"connect with {driver}"
            )
        self._lent_to = driver

    def check_lent(self) -> None:
        if self._lent_to:
            raise ConfigError(
                f"Expected a call with connection=, because {self._database.path} is used by {self._lent_to} in this "
                "process, got one without"
            )

    def _with_connection(self, act: Callable[[apsw.Connection], T]) -> T:
        self.check_lent()
        self._process.enter()
        with self._lock, self._database.mapping_errors():
            if self._files is None:
                self._files = self._open()
            self._files.examine()
            answer = act(self._files.connection)
            self._files.examine()
            return answer

    def _open(self) -> Files:
        self._database.create_file()
        connection = self._database.connect(cache_kib=_CACHE_KIB)
        try:
            connection.execute("PRAGMA wal_autocheckpoint = 1000").fetchall()  # here nobody else does it
            schema.migrate(connection)
            return Files(self._database, connection)
        except BaseException:
            connection.close()
            raise


def _look(connection: apsw.Connection, address: str, now: int) -> Record | None:
    for value, version, expires_at in connection.execute(_LOOK, (COLLECTION, address, now)):
        return Record(address, value, version, expires_at)
    return None
