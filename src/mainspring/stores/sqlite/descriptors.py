"""Descriptors that SQLite already holds.

Opening one of its files a second time is not an option, because closing it would drop every lock that this
process has on it.
"""

from __future__ import annotations

import os
from contextlib import suppress


class Descriptor:
    """A descriptor of a file, found where the system lists them. It may be closed at any time: then another is used."""

    def __init__(self, path: str) -> None:
        self._identity = identity(path)
        self._number: int | None = None

    def beginning(self, length: int) -> tuple[int, bytes] | None:
        """The size of the file, and what it begins with. None: there is no descriptor."""
        for _ in range(2):
            with suppress(OSError):  # closed just now
                if self._number is not None and _identity_of(found := os.fstat(self._number)) == self._identity:
                    return found.st_size, os.pread(self._number, length, 0)
            self._number = self._find()
        return None

    def sync(self) -> None:
        self._number = self._find()
        if self._number is not None:
            with suppress(OSError):  # closed just now; whatever has its number since may be synced without harm
                os.fdatasync(self._number)

    def _find(self) -> int | None:
        return next(filter(self._is_it, _descriptors()), None)

    def _is_it(self, number: int) -> bool:
        try:
            return _identity_of(os.fstat(number)) == self._identity
        except OSError:
            return False


def identity(path: str) -> tuple[int, int]:
    """Device and inode: another one at a path is another file."""
    return _identity_of(os.stat(path))


def _identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return []
