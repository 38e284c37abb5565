"""The store as the protocol sees it: five verbs on the collection `idempotency`, and three on the notes beside it.

The verbs are coroutines. Those of a blocking form never suspend: they do their work, perhaps waiting inside, and
return. That is what lets the protocol be written once (see `core`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, runtime_checkable

from mainspring.clock import Clock, SystemClock, follow
from mainspring.idempotency.entries import Entry
from mainspring.model import Record

ALIGN_SECONDS: Final = 60.0
"""How long a database's clock is extrapolated: drift stays far below any lease."""


class ClaimStore(Protocol):
    """Raises `StoreUnavailable`, like the stores beneath. After it, the outcome of a write is not known."""

    looks_first: bool
    """Whether a look is so cheap that it precedes every claim."""

    async def time(self) -> int:
        """Milliseconds, by the clock that everybody who shares the store goes by."""
        ...

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        """Write a record without expiry, if there is none. None if written, else the one that is there.

        `version` is one that no record at this address has ever had: a write that comes late hits no later record.
        """
        ...

    async def look(self, address: str, *, now: int) -> Record | None:
        """The record, or None."""
        ...

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        """Write version `expect` + 1 if the record has version `expect`."""
        ...

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        """Remove the record if it has version `expect`."""
        ...

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        """Note that the outcome of this address is unknown, unless it is noted already."""
        ...

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        """At most `limit` notes with addresses after `after`, in their order. A page that is not full is the last."""
        ...

    async def strike(self, note: Record, *, now: int) -> None:
        """Remove a note, unless it is another by now."""
        ...


@runtime_checkable
class Purges(Protocol):
    """What a store may offer in addition, if only its own writes make it remove what has expired."""

    async def purge(self, *, now: int) -> None:
        """Remove some records that have expired. It does not matter if that fails."""
        ...


@runtime_checkable
class Peeks(Protocol):
    """What a store may offer in addition: a look that waits for nothing, and so need not queue with other callers."""

    def peek(self, address: str) -> Entry | None:
        """What the record says, if there is one that has not expired."""
        ...


class StoreClock:
    """The database's time, extrapolated with the monotonic clock and asked for again once in a while."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._aligned_at: float | None = None

    @property
    def is_stale(self) -> bool:
        return self._aligned_at is None or self._clock.monotonic() - self._aligned_at > ALIGN_SECONDS

    async def ask(self, time: Callable[[], Awaitable[int]]) -> int:
        """The database's time."""
        await follow(self._clock, time, is_aligned=self._aligned_at is not None)
        self._aligned_at = self._clock.monotonic()
        return self._clock.now_ms()

    def now_ms(self) -> int:
        return self._clock.now_ms()
