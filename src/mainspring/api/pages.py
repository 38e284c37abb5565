"""Places for pages: answers of megabytes, of which a few are under way at once while whoever else asks waits.

A place is for making a page and for handing it over. A reader that has not taken its page soon after is slow: it leaves
its place to others and is remembered, page and all, beside them. Their number is limited: of too many slow readers the
one that has the most left to read loses its connection. So nobody waits long for slow readers, and all pages together
stay bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

PAGES_AT_ONCE: Final = 3
"""Those that are being made, and those that are handed over."""
SLOW_READERS: Final = 4
"""How many more readers' pages may wait to be taken."""
PATIENCE_SECONDS: Final = 0.25


class Pages:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PAGES_AT_ONCE)
        self._slow: list[asyncio.Transport] = []

    @property
    def any_free(self) -> bool:
        """Whether whoever asks for a place now gets it at once."""
        return not self._places.locked()

    @asynccontextmanager
    async def making(self, reader: asyncio.Transport | None) -> AsyncIterator[_Place]:
        """A place, left with the block: the page is made, `hand_over` is called, and then the page is taken."""
        await self._places.acquire()
        place = _Place(self._places, self._slow, reader)
        try:
            yield place
        finally:
            place.leave()


class _Place:
    def __init__(
        self, places: asyncio.Semaphore, slow: list[asyncio.Transport], reader: asyncio.Transport | None
    ) -> None:
        self._places = places
        self._slow = slow
        self._reader = reader
        self._patience: asyncio.TimerHandle | None = None
        self._is_held = True

    def hand_over(self) -> None:
        """The page is made; from now on the others wait for its reader."""
        if self._reader is not None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._step_aside, self._reader)

    def leave(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        if self._is_held:
            self._places.release()
        elif self._reader in self._slow:
            self._slow.remove(self._reader)

    def _step_aside(self, reader: asyncio.Transport) -> None:
        self._is_held = False
        self._slow.append(reader)
        if len(self._slow) > SLOW_READERS:
            slowest = max(self._slow, key=lambda slow: slow.get_write_buffer_size())
            self._slow.remove(slowest)
            slowest.abort()
        self._places.release()
