"""Reading from a peer, little at once and nothing while what was read waits; and writing to one that takes it."""

from __future__ import annotations

import asyncio
import select
from typing import Final, Literal

Reason = Literal["unparsed", "pipeline", "body", "end"]
"""What has arrived and is not parsed; requests that wait for the answers to earlier ones; a body that nobody reads; a
peer that sends no more."""
READ_BYTES: Final = 16_384
"""How much may be held for every connection: read, but not parsed yet."""


class FlowControl:
    """Nothing is read while there is a reason not to; there may be several at once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reasons = set[Reason]()
        self.read_paused = False
        self.write_paused = False
        self._writable: asyncio.Event | None = None

    def hold(self, reason: Reason, held: bool) -> None:
        """Set or clear a reason not to read."""
        if held:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        wanted = bool(self._reasons)
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
