"""How one answer reaches its peer: that of our own application, which is known, or of any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class Cycle(RequestResponseCycle):
    """An answer is one start with a content length and one body: both leave in one write.

    Header names and values come from the application's own tables or were validated by it.
    """

    ends_soon = False
    """Where the body ends is known, and it is not worth a connection."""
    _head = b""

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.transport.is_closing():
            self.disconnected = True  # the protocol is told a turn later
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            if self.more_body and not self.ends_soon:
                self.keep_alive = False
            lines = [b"%b: %b\r\n" % header for header in message["headers"]]
            if not self.keep_alive:
                lines.append(b"connection: close\r\n")
            self._head = b"%b%b\r\n" % (STATUS_LINE[message["status"]], b"".join(lines))
            return
        assert message["type"] == "http.response.body"
        assert not message.get("more_body", False)
        # A page is megabytes: joined with its head it would be in memory twice while its reader takes it.
        self.transport.writelines((self._head,) if self.scope["method"] == "HEAD" else (self._head, message["body"]))
        self.response_complete = True
        self.message_event.set()
        self.on_response()
        if self.flow.write_paused:
            await self.flow.drain()  # the answer takes memory until its peer has it


class AnyCycle(Cycle):
    """An answer of an unknown application, in pieces or whole: uvicorn looks at its headers and frames it."""

    async def send(self, message: ASGISendEvent) -> None:
        if self.transport.is_closing():
            self.disconnected = True
        if message["type"] == "http.response.start" and self.more_body and not self.ends_soon:
            self.keep_alive = False
        if message["type"] == "http.response.body" and not message.get("more_body") and not self.keep_alive:
            # uvicorn would close at once. The protocol knows whether its peer is still sending, and how to leave.
            self.keep_alive, self.on_response = True, partial(self._end, self.on_response)
        await RequestResponseCycle.send(self, message)

    def _end(self, on_response: Callable[[], None]) -> None:
        self.keep_alive = False
        on_response()
