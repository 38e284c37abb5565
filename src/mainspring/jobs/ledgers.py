"""The ledgers of many jobs as one, newest first: entries are merged by instant, and by name where instants are equal.

A ledger is read only as far as its turn has come, so what is kept in memory is a few entries of each. At least one
entry of each has to be looked at, whichever jobs the newest are of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from mainspring.jobs.ledger import Ledger, LedgerEntry, behind, key_of
from mainspring.store import BATCH_LIMIT, just_before

FIRST_ENTRIES: Final = 2_000
"""How many entries are read to begin with, of all ledgers together, but at least one of each."""
_AT_ONCE: Final = 100


class Place(NamedTuple):
    """A place in the merged ledgers: behind the entry with this key, of this job."""

    key: str
    job: str


class _Part:
    """What is to come of one ledger."""

    def __init__(self, ledger: Ledger, job: str, *, after: str, size: int) -> None:
        self.job = job
        self.entries: list[LedgerEntry] = []
        """Those that were read, the next one last."""
        self._ledger = ledger
        self._after = after
        self._size = size
        self._is_read = False

    async def read(self) -> bool:
        """Have an entry at hand. False: there is none left. The more are used, the more are read at once."""
        while not self.entries and not self._is_read:
            page, self._after = await self._ledger.page(self.job, after=self._after, limit=self._size)
            self.entries = page[::-1]
            self._is_read = not self._after
            self._size = min(BATCH_LIMIT, 2 * self._size)
        return bool(self.entries)

    @property
    def place(self) -> Place:
        """Of the next entry."""
        return Place(key_of(self.entries[-1].stamp), self.job)


class Ledgers:
    def __init__(self, ledger: Ledger, jobs: Sequence[str], *, after: Place | None, until: int | None) -> None:
        """From behind a place, or from before an instant, or from the newest entry on."""
        size = max(1, min(BATCH_LIMIT, FIRST_ENTRIES // max(1, len(jobs))))
        self._parts = {job: _Part(ledger, job, after=_start(job, after, until), size=size) for job in jobs}
        self._next: list[Place] = []
        self._left: set[str] = set()

    async def open(self) -> None:
        parts = list(self._parts.values())
        for start in range(0, len(parts), _AT_ONCE):
            some = parts[start : start + _AT_ONCE]
            found = await asyncio.gather(*(part.read() for part in some))
            self._next += [part.place for part, has_entry in zip(some, found, strict=True) if has_entry]
        heapify(self._next)

    async def next(self) -> tuple[str, LedgerEntry] | None:
        """A job and its entry. None: that was all."""
        while self._next:
            part = self._parts[heappop(self._next).job]
            if part.job in self._left:
                continue
            entry = part.entries.pop()
            if await part.read():
                heappush(self._next, part.place)
            return part.job, entry
        return None

    def leave(self, job: str) -> None:
        """Have no more of this one."""
        self._left.add(job)


def _start(job: str, after: Place | None, until: int | None) -> str:
    """The key in the ledger of a job after which to begin."""
    if after is None:
        return "" if until is None else behind(until)
    return after.key if job <= after.job else just_before(after.key)
