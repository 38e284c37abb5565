# Generated from records.py by tools/generate_sync.py; change that one.
"""`Records` of `mainspring.records`, for code that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mainspring.library import Mainspring
from mainspring.records import Document, Records
from mainspring.sync_library.engine_thread import EngineThread

T = TypeVar("T")


class SyncRecords(Generic[T]):
    """`ms.records`."""

    def __init__(self, engine: Callable[[], EngineThread], which: Callable[[Mainspring], Records[T]]) -> None:
        self._engine = engine
        self._which = which

    def get(self, key: str) -> Document[T] | None:
        """The document, or None. Raises `Conflict` if there is one that cannot be read as the collection's type."""
        return self._engine().run(lambda ms: self._which(ms).get(key))

    def put(self, key: str, value: T, *, expect: int | None = None, expires_in: float | None = None) -> Document[T]:
        """Write if the current version is `expect`; 0: if there is none; None: in any case. `expires_in` is in seconds.

        Raises `Conflict` if the version is another one: nothing was written.
        """
        return self._engine().run(lambda ms: self._which(ms).put(key, value, expect=expect, expires_in=expires_in))

    def delete(self, key: str, *, expect: int) -> bool:
        """Remove it if it has that version. False if it does not."""
        return self._engine().run(lambda ms: self._which(ms).delete(key, expect=expect))

    def scan(self, *, after: str = "") -> Iterator[Document[T]]:
        """All documents after a key, in key order. Those that cannot be read are skipped and set aside."""
        return self._engine().iterate(lambda ms: self._which(ms).scan(after=after))
