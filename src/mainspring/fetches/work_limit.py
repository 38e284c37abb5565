"""Work that takes much memory or keeps others waiting: only a few pieces of it are done at once, in turn.

Work that takes long is waited for only a moment: then its place goes to the next, unless too many take long already.
Work that failed last time is tried again in places of its own. So a record that cannot be written costs the others a
moment, however often it is tried again, and the amount of work done at once is still bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

PATIENCE_SECONDS: Final = 0.25
SLOW_AT_ONCE: Final = 8
"""How many go on without a place because they take long; and as many again that have failed before."""
FAILURES_KEPT: Final = 4096


class WorkLimit:
    def __init__(self, limit: int, *, slow: int = SLOW_AT_ONCE) -> None:
        self._places = asyncio.Semaphore(limit)
        self._repeats = asyncio.Semaphore(slow)
        self._slow_limit = slow
        self._slow = 0
        self._failed: dict[str, None] = {}
        """What failed last time, by its key."""

    @asynccontextmanager
    async def place(self, key: str) -> AsyncIterator[None]:
        """Held for this block; an exception says that it has failed."""
        async with self._repeats if key in self._failed else _LentPlace(self):
            try:
                yield
            except Exception:
                self._failed[key] = None
                if len(self._failed) > FAILURES_KEPT:
                    del self._failed[next(iter(self._failed))]
                raise
            self._failed.pop(key, None)

    async def enter(self) -> None:
        await self._places.acquire()

    def leave(self, *, slow: bool) -> None:
        if slow:
            self._slow -= 1
        else:
            self._places.release()

    def lend(self) -> bool:
        """Whether the holder of a place may go on without it."""
        if self._slow >= self._slow_limit:
            return False
        self._slow += 1
        self._places.release()
        return True


class _LentPlace:
    """One place, until it is given to the next."""

    def __init__(self, limit: WorkLimit) -> None:
        self._limit = limit
        self._is_slow = False

    async def __aenter__(self) -> None:
        await self._limit.enter()
        self._wait()

    async def __aexit__(self, *exception: object) -> None:
        self._later.cancel()
        self._limit.leave(slow=self._is_slow)

    def _wait(self) -> None:
        self._later = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        self._is_slow = self._limit.lend()
        if not self._is_slow:
            self._wait()
