"""Reading from a peer, little at once and nothing while what was read waits; and writing to one that takes it."""

from __future__ import annotations

import asyncio
import select
from typing import Final

READ_BYTES: Final = 16_384
"""How much may be held for every connection: read, but not parsed yet."""


class Flow:
    """Reading goes on when nobody is against it: neither the request that is being answered, nor the listener while
    something waits to be parsed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_paused = False
        self._is_held = False
        self.read_paused = False
        self.write_paused = False
        self._writable: asyncio.Event | None = None

    def hold(self, held: bool) -> None:
        if held is not self._is_held:
            self._is_held = held
            self._apply()

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._apply()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._apply()

    def _apply(self) -> None:
        wanted = self._is_paused or self._is_held
        if wanted == self.read_paused or self._transport.is_closing():
            return
        self.read_paused = wanted
        if wanted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()

    async def drain(self) -> None:
        """Wait until the peer has taken what was written."""
        while self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            self._writable.clear()
            await self._writable.wait()


def readable(transport: asyncio.Transport) -> bool:
    """Whether something has arrived that nobody has read yet."""
    descriptor: int = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN and not event & (select.POLLHUP | select.POLLERR) for _, event in poller.poll(0))
