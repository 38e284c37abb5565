"""Checks that the three files of a database are still those that were opened, and nobody else has written into them.

SQLite carries on with a WAL that no longer has a name, and with one that somebody has emptied; a restart would know
nothing of what was acknowledged. So the files are checked before each group is written, and once more before it is
acknowledged.

What they must look like is recorded in the index of the WAL (`-shm`), which all processes share: how many frames the
WAL has, and with which salt, and how much of it was copied into the database, which is written only while something is
copied. The layout is part of SQLite's file format. The index and the database are read through descriptors that SQLite
holds. If these cannot be found, only the names of the files are checked.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from struct import Struct as Layout
from typing import Final

import apsw
from msgspec import Struct

from mainspring.stores.sqlite import schema
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.descriptors import Descriptor, identity

_INDEX: Final = Layout("=I10xHI12x8s56xI28xI")
"""Version, page size, frames, salt; frames that were copied, and up to which frame the copying was to go."""
_INDEX_VERSION: Final = 3_007_000
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_DATABASE_HEADER: Final = 100
_CACHE_KIB: Final = 64
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.001
_NOTHING: Final = "Until then nothing is accepted"


class _Index(Struct, frozen=True):
    page_bytes: int
    frames: int
    salt: bytes
    copied: int
    to_copy: int

    @property
    def progress(self) -> tuple[bytes, int] | None:
        """Changes whenever something was copied into the database. None while that goes on, or if it broke off."""
        return (self.salt, self.copied) if self.copied == self.to_copy else None


class Files:
    """Holds a connection of its own: as long as there is one, nobody may rightfully remove or replace the WAL."""

    def __init__(self, database: Database, connection: apsw.Connection) -> None:
        """The connection must have read something. `check` is for all threads, the rest for one at a time."""
        self._database = database
        self.connection = connection
        try:
            self._identities = {path: identity(path) for path in map(self._path, ("", "-wal", "-shm"))}
            self._main = Descriptor(self._path(""))
            self._index = Descriptor(self._path("-shm"))
            self._wal = os.open(self._path("-wal"), os.O_RDONLY)  # on which SQLite has no locks
        except OSError as error:
            raise database.unavailable(error.strerror or str(error)) from error
        self._baseline: tuple[tuple[bytes, int], tuple[int, bytes]] | None = None
        self._schema_version: int | None = None
        self._is_overwritten = False
        self._is_rescued = False
        self.trouble = ""
        """What the last examination has found."""

    def _path(self, suffix: str) -> str:
        return self._database.path + suffix

    def check(self) -> None:
        """Raise if a file is no longer the one that was opened, or an examination has found something."""
        if trouble := self._lost_name() or self.trouble or self._emptied_database():
            raise self._database.unavailable(trouble)

    def examine(self) -> None:
        """Raise if anything is wrong."""
        self.trouble = self._lost_name() or self._emptied_database() or self._lasting_trouble() or self._lost_tables()
        if self.trouble:
            self._rescue()
            raise self._database.unavailable(self.trouble)

    def close(self) -> None:
        """A spoiled WAL is not copied into the database, and no WAL is copied into a different database."""
        try:
            if self._lasting_trouble():
                self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        finally:
            self.connection.close(True)
            os.close(self._wal)

    def _lost_name(self) -> str:
        for path, expected in self._identities.items():
            try:
                found = identity(path)
            except OSError as error:
                return (
                    f"{path}: {error.strerror}. The file was deleted or moved while it was in use. Put it back, or "
                    f"stop Mainspring, restore a backup and start it again. {_NOTHING}"
                )
            if found != expected:
                return (
                    f"another file at {path}. It was replaced while it was in use. Stop Mainspring and start it again, "
                    f"with the file that you want it to use. {_NOTHING}"
                )
        return ""

    def _emptied_database(self) -> str:
        """A new connection would take the file for a new one, and wait in vain for exclusive use of it."""
        with suppress(OSError):
            return "" if os.stat(self._path("")).st_size else self._written_into()
        return ""

    def _lasting_trouble(self) -> str:
        """Other processes may restart the WAL while we look at it: a fault counts only if it stays."""
        for _ in range(_TRIES):
            index = self._read_index()
            trouble = "" if index is None else self._spoiled_wal(index) or self._overwritten_database(index)
            if not trouble:
                return ""
            time.sleep(_PAUSE_SECONDS)
        return trouble

    def _spoiled_wal(self, index: _Index) -> str:
        if not index.frames:
            return ""
        last = _WAL_HEADER + (index.frames - 1) * (_FRAME_HEADER + index.page_bytes)
        header = os.pread(self._wal, _WAL_HEADER, 0)
        frame = os.pread(self._wal, _FRAME_HEADER, last)
        size = os.fstat(self._wal).st_size
        if header[16:24] == frame[8:16] == index.salt and size >= last + _FRAME_HEADER + index.page_bytes:
            return ""
        return (
            f"{self._path('-wal')} was truncated or overwritten while it was in use, and with it what was written "
            f"last. Stop Mainspring, restore a backup and start it again. {_NOTHING}"
        )

    def _overwritten_database(self, index: _Index) -> str:
        progress = index.progress
        found = self._main.beginning(_DATABASE_HEADER)
        if progress is None or found is None or self._baseline == (progress, found):
            return ""
        if self._read_index() != index:
            return ""  # it is rightfully being written just now
        if self._baseline is None or (self._baseline[0] != progress and not self._is_overwritten):
            self._baseline = (progress, found)
        self._is_overwritten = self._baseline[1] != found
        return self._written_into() if self._is_overwritten else ""

    def _written_into(self) -> str:
        return (
            "a file that somebody else has truncated or written into while it was in use. Stop Mainspring, restore a "
            f"backup without {self._path('-wal')} and start it again. {_NOTHING}"
        )

    def _lost_tables(self) -> str:
        version: int = self.connection.execute("PRAGMA schema_version").get
        if version == self._schema_version:
            return ""
        if missing := schema.missing_tables(self.connection):
            return f"a database without {', '.join(missing)}. Stop Mainspring and restore a backup. {_NOTHING}"
        self._schema_version = version
        return ""

    def _rescue(self) -> None:
        """Copy what a WAL without a name holds into the database, once: the next start will not find it otherwise."""
        main, wal, _ = self._identities
        with suppress(OSError, apsw.Error):
            if self._is_rescued or identity(main) != self._identities[main] or self._lasting_trouble():
                return
            if not os.path.exists(wal) or identity(wal) != self._identities[wal]:
                self._is_rescued = True
                self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _read_index(self) -> _Index | None:
        found = self._index.beginning(_INDEX.size)
        if found is None or len(found[1]) < _INDEX.size:
            return None
        version, page_bytes, frames, salt, copied, to_copy = _INDEX.unpack(found[1])
        if version != _INDEX_VERSION:
            return None
        return _Index(65_536 if page_bytes == 1 else page_bytes, frames, salt, copied, to_copy)


def open_files(database: Database) -> Files:
    """The files of a database, with a connection that holds them."""
    with database.mapping_errors():
        connection = database.connect(cache_kib=_CACHE_KIB)
        try:
            return Files(database, connection)
        except BaseException:
            connection.close(True)
            raise
