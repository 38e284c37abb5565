"""A clock that is moved by hand, and a store whose answers get lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mainspring.errors import StoreUnavailable
from mainspring.locks import Held, Lock
from mainspring.model import Record
from mainspring.store import RecordStore
from mainspring.testing.timer_samples import NOW


class HandClock:
    """`pass_seconds` is time that passes; `step_ms` is a step of the store's clock, which no monotonic clock sees."""

    def __init__(self) -> None:
        self._seconds = 1000.0
        self.step_ms = 0

    def pass_seconds(self, seconds: float) -> None:
        self._seconds += seconds

    def now_ms(self) -> int:
        return NOW + round((self._seconds - 1000) * 1000) + self.step_ms

    def monotonic(self) -> float:
        return self._seconds

    def align(self, store_ms: int) -> None:
        raise AssertionError("a lock aligns no clock")


async def _nothing(collection: str) -> None:
    """What happens before a put unless a test says otherwise."""


class LossyRecords:
    """Loses the answers of the next `lose_answers` puts: they are written, and nobody is told.

    `before_put` happens between the moment in which a put was asked for and the moment in which it is done.
    """

    def __init__(self, inner: RecordStore) -> None:
        self._inner = inner
        self.lose_answers = 0
        self.is_cut = False
        self.before_put: Callable[[str], Awaitable[None]] = _nothing

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        self._reach()
        return await self._inner.get_record(collection, key, now=now)

    async def put_record(
        self,
        collection: str,
        key: str,
        value: bytes,
        *,
        expect: int,
        now: int,
        expires_at: int | None = None,
        first: int = 1,
    ) -> Record | None:
        self._reach()
        await self.before_put(collection)
        written = await self._inner.put_record(
            collection, key, value, expect=expect, now=now, expires_at=expires_at, first=first
        )
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreUnavailable("the answer was lost")
        return written

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        self._reach()
        return await self._inner.delete_record(collection, key, expect=expect, now=now)

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        self._reach()
        return await self._inner.scan_records(collection, now=now, after=after, limit=limit)

    def _reach(self) -> None:
        if self.is_cut:
            raise StoreUnavailable("the store is away")


async def acquired(lock: Lock) -> Held:
    held = await lock.try_acquire()
    assert held is not None
    return held
