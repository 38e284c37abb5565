"""Reading from a peer: little at once, and nothing while what was read waits."""

from __future__ import annotations

import asyncio
import select
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl

READ_BYTES: Final = 16_384
"""How much may be held for every connection: read, but not parsed yet."""

# One for all: it is filled and emptied within one step of the loop.
_buffer: Final = memoryview(bytearray(READ_BYTES))


class Reader(asyncio.BufferedProtocol):
    """Hands on what arrives. A transport gives a plain protocol a quarter of a megabyte at once."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(_buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)


class Flow(FlowControl):
    """Reading goes on when nothing stands against it: neither uvicorn, nor we while something waits to be parsed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._paused = False
        self._held = False

    def hold(self, held: bool) -> None:
        self._held = held
        self._apply()

    def pause_reading(self) -> None:
        self._paused = True
        self._apply()

    def resume_reading(self) -> None:
        self._paused = False
        self._apply()

    def _apply(self) -> None:
        wanted = self._paused or self._held
        if wanted == self.read_paused or self._transport.is_closing():
            return
        self.read_paused = wanted
        if wanted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def readable(transport: asyncio.Transport) -> bool:
    """Whether something has arrived that nobody has read yet."""
    descriptor: int = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN and not event & (select.POLLHUP | select.POLLERR) for _, event in poller.poll(0))
