"""Moves the WAL into the database without stopping the writer for long, and bounds the size of the WAL.

While the writer goes on, a second thread copies what is committed, pass after pass, until little is left.
The writer then copies that little itself, between two groups: only when everything is copied and nobody
writes can the WAL start again from its beginning. If that does not happen, because the copying is slower than the
writer or a reader holds on to old pages, the writer waits once the WAL is at its limit, and refuses to write if it
waits in vain.
"""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Final

import apsw

from mainspring.errors import StoreUnavailable
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.descriptors import Descriptor

BACKGROUND_PAGES: Final = 32_768
LIMIT_PAGES: Final = 131_072
_SMALL_PAGES: Final = 512
_PASSES: Final = 64
_YIELD_SECONDS: Final = 0.002
"""How long each group waits when the copying falls behind: many short pauses instead of a long one at the end."""
_PASS_SECONDS: Final = 10.0
_CACHE_KIB: Final = 1_024


class Checkpointer:
    """`before_write` belongs to the writer's thread, the rest to whoever opens and closes the store."""

    def __init__(self, database: Database, *, limit_pages: int = LIMIT_PAGES) -> None:
        self._database = database
        self._descriptor = Descriptor(database.path)
        self._limit_pages = limit_pages
        self._background_pages = min(BACKGROUND_PAGES, limit_pages // 2)
        self._wanted = Event()
        self._copied = Event()
        self._is_copying = False
        self._is_late = False
        self._closed = False
        self._connection: apsw.Connection | None = None
        self._pages_before = 0
        self._wal_pages = 0
        self._thread = Thread(target=self._run, name="mainspring-checkpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        self._thread.join()

    def before_write(self, connection: apsw.Connection) -> None:
        """Take the writer's share of the work, if there is any. Most of the time there is none."""
        self._count_pages(connection)
        if self._wal_pages >= self._limit_pages:
            self._end_copying()
            self._restart_wal(connection)
        elif self._is_copying:
            if self._copied.is_set():
                self._is_copying = False
                self._copy_rest(connection)
            elif self._wal_pages >= 2 * self._background_pages:
                time.sleep(_YIELD_SECONDS)
        elif self._wal_pages >= self._background_pages:
            self._is_copying = True
            self._is_late = False
            self._copied.clear()
            self._wanted.set()

    def _count_pages(self, connection: apsw.Connection) -> None:
        """An estimate, since the connection counts only its own pages. Every checkpoint corrects it."""
        if connection is not self._connection:
            self._connection = connection
            self._pages_before = 0
            self._note(*connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP))
        pages = connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
        self._wal_pages += pages - self._pages_before
        self._pages_before = pages

    def _note(self, pages: int, copied: int) -> None:
        # All is copied: the next write restarts the WAL, unless a succession of readers has prevented that for long.
        self._wal_pages = 0 if pages == copied < self._limit_pages else pages

    def _end_copying(self) -> None:
        """Let the other thread stop after its current pass, during which it holds the lock that a restart needs."""
        if self._is_copying:
            self._is_late = True
            self._is_copying = not self._copied.wait(_PASS_SECONDS)

    def _copy_rest(self, connection: apsw.Connection) -> None:
        try:
            self._note(*connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))
        except apsw.BusyError:
            return  # another process is at it

    def _restart_wal(self, connection: apsw.Connection) -> None:
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError as error:
            raise StoreUnavailable(
                f"Expected the WAL of {self._database.path} to stay below {self._limit_pages} pages, "
                "got a reader that does not let go of it"
            ) from error
        self._wal_pages = 0

    def _run(self) -> None:
        while self._wanted.wait() and not self._closed:
            self._wanted.clear()
            try:
                self._copy()
            except apsw.Error:
                # There is nobody to tell here: the writer meets the same trouble, and reports it or tries again.
                continue
            finally:
                self._copied.set()

    def _copy(self) -> None:
        connection = self._database.connect(cache_kib=_CACHE_KIB)
        try:
            for _ in range(_PASSES):
                _, before = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
                _, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if self._closed or self._is_late or copied - before < _SMALL_PAGES:
                    return
                # So that the writer's own checkpoint has little to wait for: SQLite itself syncs the database
                # file only at the very end, on the writer's account.
                self._descriptor.sync()
        finally:
            connection.close(True)
