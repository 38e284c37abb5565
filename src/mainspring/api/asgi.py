"""ASGI, both ways: any application of it behind our listener, and our routes within somebody else's server.

Our own applications do not need it: they get a request as a whole, and their answers are written in one piece.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Literal

from mainspring.api.exchange import CLOSE, Exchange, Head, PeerGone, status_line
from mainspring.api.request_id import id_headers

if TYPE_CHECKING:
    from mainspring.api.received import ReceivedRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_WITHOUT_BODY: Final = (204, 304)


class Served:
    """An ASGI application that answers what our listener receives."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def answer(self, exchange: Exchange) -> None:
        await self._app(*exchange.asgi())


def parts_of(received: ReceivedRequest) -> Receive:
    """How an application gets the body."""
    is_taken = False

    async def receive() -> Message:
        nonlocal is_taken
        if is_taken:
            await received.end_of_all()
        part = None if is_taken else await received.part()
        if part is None:
            return {"type": "http.disconnect"}
        body, is_taken = part
        return {"type": "http.request", "body": body, "more_body": not is_taken}

    return receive


def sender_to(received: ReceivedRequest) -> Send:
    """How an application answers."""
    return _Sender(received).send


class _Sender:
    """Nobody here knows the application, so its headers are looked at, and its body is framed."""

    def __init__(self, received: ReceivedRequest) -> None:
        self._received = received
        self._expects: Literal["start", "first part", "part", "nothing"] = "start"
        self._head = b""
        """Until it leaves, with the first part of the body."""
        self._left: int | None = None
        """Bytes of the body that are missing, if its length is known."""
        self._has_body = True
        self._is_chunked = False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start" and self._expects == "start":
            self._expects = "first part"
            self._start(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self._expects in ("first part", "part"):
            await self._go_on(bytes(message.get("body", b"")), is_last=not message.get("more_body", False))
        elif not self._received.is_cut_off:
            raise RuntimeError(f"Expected another message of an ASGI application, got {kind!r}")

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        received = self._received
        lines = [status_line(status)]
        for given, value in headers:
            if not _NAME.fullmatch(given) or not _VALUE.fullmatch(value):
                raise RuntimeError("Expected headers without control characters, got others")
            name = given.lower()
            if name == b"content-length":
                if self._left is not None:
                    raise RuntimeError("Expected one content-length, got two")
                self._left = int(value)
            elif name == b"connection" and b"close" in value.lower():
                received.keep_alive = False
                continue
            elif name == b"transfer-encoding":
                continue  # it is we who frame the body
            lines.append(b"%b: %b\r\n" % (name, value))
        self._has_body = received.method != "HEAD" and status not in _WITHOUT_BODY
        self._is_chunked = self._has_body and self._left is None and not received.is_old
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        self._head = b"".join(lines)

    async def _go_on(self, body: bytes, *, is_last: bool) -> None:
        received = self._received
        framed = self._framed(body, is_last=is_last)
        is_first, self._expects = self._expects == "first part", "nothing" if is_last else "part"
        if not await (received.begin() if is_first else received.has_room()):
            return
        start = b""
        if is_first:
            start = self._head + (b"\r\n" if received.keep_alive else CLOSE + b"\r\n")
        received.write(start, framed)
        if is_last:
            await received.over()

    def _framed(self, body: bytes, *, is_last: bool) -> bytes:
        if not self._has_body:
            return b""
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("Expected a body of the length that its header names, got another")
        if not self._is_chunked:
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk + b"0\r\n\r\n" if is_last else chunk


class Mounted(Exchange):
    """A request that somebody else's server has received."""

    __slots__ = ("_receive", "_scope", "_send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = list(scope["headers"])
        super().__init__(scope["method"], scope["path"], headers, dict(headers))
        self._scope = scope
        self._receive = receive
        self._send = send

    @property
    def client(self) -> tuple[str, int] | None:
        client: tuple[str, int] | None = self._scope.get("client")
        return client

    @property
    def reader(self) -> asyncio.Transport | None:
        transport: asyncio.Transport | None = self._scope.get("state", {}).get("transport")
        return transport

    def recognise(self) -> bool:
        recognise: Callable[[], bool] | None = self._scope.get("state", {}).get("recognise")
        return recognise is None or recognise()

    async def body(self, limit: int) -> bytes | None:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise PeerGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                return None
            more = message.get("more_body", False)
        return b"".join(parts)

    async def answer(self, head: Head, request_id: str, body: bytes) -> None:
        own = [(b"content-length", b"%d" % len(body)), *id_headers(self.fields, request_id)]
        await self._send({"type": "http.response.start", "status": head.status, "headers": head.headers + own})
        await self._send({"type": "http.response.body", "body": body})

    def asgi(self) -> tuple[Scope, Receive, Send]:
        return self._scope, self._receive, self._send
