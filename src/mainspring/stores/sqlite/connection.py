"""How a connection is set up, and which of SQLite's errors mean that the store is unavailable."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
from msgspec import Struct

from mainspring.errors import ConfigError, StoreUnavailable

_REFUSALS = (
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.InterruptError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.NotADBError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
)

_LOCK_WAIT_MS = 5
_CHUNK = 64

_OPEN_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
"""Never creates: a file that vanished is an error, not a new and empty database."""


class Database(Struct, frozen=True):
    """A database file, and how long anyone waits for its lock."""

    path: str
    busy_ms: int

    def create_file(self) -> None:
        """Make the file, readable by its owner only, and its directory, unless they exist.

        An existing file is not even opened: closing it would drop all locks that this process has on it.
        """
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            self._refuse_emptied()
        except OSError as error:
            raise self.unavailable(error.strerror or str(error)) from error

    def _refuse_emptied(self) -> None:
        """SQLite would take the file for a new one, and remove the WAL."""
        with suppress(OSError):
            if os.stat(self.path).st_size == 0 < os.stat(self.path + "-wal").st_size:
                raise ConfigError(
                    f"Expected a database, got the empty file {self.path} beside a WAL: somebody has truncated it. "
                    f"Restore a backup, or remove {self.path}-wal to begin with an empty database"
                )

    def connect(self, *, cache_kib: int) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=_OPEN_FLAGS, statementcachesize=200)
        try:
            connection.set_busy_handler(self._wait_for_lock)
            self._enter_wal_mode(connection)
            for setting in (
                "synchronous = FULL",
                "wal_autocheckpoint = 0",
                "temp_store = MEMORY",
                "secure_delete = ON",  # deleted secrets must be gone; decision 42 states the cost
                f"cache_size = -{cache_kib}",
            ):
                connection.execute(f"PRAGMA {setting}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def _wait_for_lock(self, tries: int) -> bool:
        """SQLite's own waiting sleeps up to 100 ms at a time, and so starves next to a busy process."""
        time.sleep(_LOCK_WAIT_MS / 1000)
        return tries * _LOCK_WAIT_MS < self.busy_ms

    def _enter_wal_mode(self, connection: apsw.Connection) -> None:
        """Entering WAL mode needs exclusive use of the file and mostly does not wait for it, so we wait here."""
        end = time.monotonic() + self.busy_ms / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                return
            except apsw.BusyError:
                if time.monotonic() >= end:  # by the clock, because sometimes SQLite does wait
                    raise
                time.sleep(_LOCK_WAIT_MS / 1000)

    @contextmanager
    def mapping_errors(self) -> Iterator[None]:
        """Turn SQLite's refusals into `StoreUnavailable`. Anything else is a defect and passes unchanged."""
        try:
            yield
        except _REFUSALS as error:
            raise self.unavailable(str(error)) from error

    def unavailable(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(f"Expected to use the database {self.path}, got: {reason}")


def insert_rows(connection: apsw.Connection, into: str, rows: list[tuple[int | str | bytes | None, ...]]) -> None:
    """Run `INSERT … VALUES` for many rows in few steps. At most one statement per chunk length is ever prepared."""
    if not rows:
        return
    row = "(" + ",".join("?" * len(rows[0])) + ")"
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        connection.execute(f"{into} VALUES {','.join([row] * len(chunk))}", [value for row in chunk for value in row])
