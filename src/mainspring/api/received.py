"""A request that our own listener receives: its head is known, its body arrives, and its answer leaves in one write."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

from mainspring.api.asgi import Receive, Scope, Send, parts_of, sender_to
from mainspring.api.exchange import CLOSE, Exchange, Head, PeerGone
from mainspring.api.flow_control import FlowControl
from mainspring.api.request_id import CORRELATION_ID, correlation_id_of
from mainspring.api.routes import Headers

UNREAD_BYTES: Final = 65_536
"""Of a body that an application takes in parts; nothing more is read while this much waits."""
JOINED_BYTES: Final = 65_536
"""A larger answer is not joined with its head: it would be there twice while its reader takes it."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(Protocol):
    """What a request arrives on."""

    transport: asyncio.Transport
    flow: FlowControl
    client: tuple[str, int] | None
    server: tuple[str, int] | None

    def recognise(self) -> bool:
        """The peer has shown a token: whether there is a place for it."""
        ...

    def answered(self, received: ReceivedRequest) -> None:
        """All of the answer is written."""
        ...


class RequestTarget(NamedTuple):
    """What a request asks for, as it was written."""

    path: bytes
    query: bytes
    version: str


class ReceivedRequest(Exchange):
    __slots__ = (
        "_arrived",
        "_body",
        "_connection",
        "_expects_continue",
        "_flow",
        "_limit",
        "_target",
        "_transport",
        "ends_soon",
        "has_begun",
        "is_answered",
        "is_cut_off",
        "is_whole",
        "keep_alive",
        "written",
    )

    def __init__(
        self,
        connection: Connection,
        method: str,
        target: RequestTarget,
        headers: Headers,
        fields: dict[bytes, bytes],
        *,
        keep_alive: bool,
        ends_soon: bool,
    ) -> None:
        """`ends_soon`: where the body ends is known, and it is not worth a connection."""
        path = target.path.decode("ascii")
        super().__init__(method, unquote(path) if "%" in path else path, headers, fields)
        self.keep_alive = keep_alive
        self.ends_soon = ends_soon
        self.is_whole = False
        """All of the body has arrived."""
        self.has_begun = False
        """Some of the answer is on its way."""
        self.is_answered = False
        self.is_cut_off = False
        self.written = 0
        """The bytes of the answer so far."""
        self._target = target
        self._connection: Connection | None = connection
        self._transport = connection.transport
        self._flow = connection.flow
        self._expects_continue = (
            b"expect" in fields and fields[b"expect"].lower() == b"100-continue" and target.version != "1.0"
        )
        self._body: bytes | bytearray = b""
        self._limit = UNREAD_BYTES
        self._arrived: asyncio.Event | None = None

    # For the listener

    def feed(self, data: bytes) -> None:
        if self.is_answered:
            return
        if not self._body:
            self._body = data  # most arrive in one part
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        if len(self._body) > self._limit:
            self._flow.hold("body", True)
        self._wake()

    def end(self) -> None:
        self.is_whole = True
        self._wake()

    def cut_off(self) -> None:
        """Nobody is waiting for the answer any longer."""
        self.is_cut_off = True
        self._wake()

    def forget(self) -> None:
        """The connection is lost. It and this know each other: together they would stay until somebody collects
        garbage."""
        if not self.is_answered:
            self.cut_off()
        self._connection = None

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()

    async def _wait(self) -> None:
        """For more of the body, or for the end of all."""
        self._flow.hold("body", False)
        if self._arrived is None:
            self._arrived = asyncio.Event()
        self._arrived.clear()
        await self._arrived.wait()

    # For an application of ours

    @property
    def client(self) -> tuple[str, int] | None:
        return None if self._connection is None else self._connection.client

    @property
    def reader(self) -> asyncio.Transport | None:
        return self._transport

    def recognise(self) -> bool:
        return self._connection is None or self._connection.recognise()  # who has left needs no place

    async def body(self, limit: int) -> bytes | None:
        self._limit = limit
        self._go_ahead()
        while not self.is_whole and len(self._body) <= limit:
            if self.is_cut_off:
                raise PeerGone
            await self._wait()
        return bytes(self._body) if len(self._body) <= limit else None

    async def answer(self, head: Head, request_id: str, body: bytes) -> None:
        if not await self.begin():
            return
        end = b"" if self.keep_alive else CLOSE
        if CORRELATION_ID in self.fields and (correlation_id := correlation_id_of(self.fields)):
            end = b"%b: %b\r\n%b" % (CORRELATION_ID, correlation_id, end)
        start = b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n" % (
            head.lines,
            len(body),
            request_id.encode("ascii"),
            end,
        )
        self.write(start, b"" if self.method == "HEAD" else body)
        await self.over()

    # For whoever writes the answer

    async def begin(self) -> bool:
        """Wait for room, and note that an answer begins. False: there is nobody to answer."""
        if not await self.has_room():
            return False
        self.has_begun = True
        # A peer that still waits to be told to go ahead may leave its body out.
        if not self.is_whole and (self._expects_continue or not self.ends_soon):
            self.keep_alive = False
        self._expects_continue = False
        return True

    async def has_room(self) -> bool:
        """Wait until the peer has taken what was written. False: it has gone."""
        if self._flow.write_paused and not self.is_cut_off:
            await self._flow.drain()
        if self._transport.is_closing():
            self.is_cut_off = True  # the listener is told a turn later
        return not self.is_cut_off

    def write(self, start: bytes, body: bytes) -> None:
        self.written += len(start) + len(body)
        if len(body) <= JOINED_BYTES:
            self._transport.write(start + body)
        else:
            self._transport.writelines((start, body))

    async def over(self) -> None:
        self.is_answered = True
        self._body = b""
        self._flow.hold("body", False)
        self._wake()
        if self._connection is not None:
            self._connection.answered(self)
        if self._flow.write_paused:
            await self._flow.drain()  # the answer takes memory until its peer has it

    # For any ASGI application

    @property
    def is_old(self) -> bool:
        """HTTP/1.0 has no chunks."""
        return self._target.version == "1.0"

    def asgi(self) -> tuple[Scope, Receive, Send]:
        connection = self._connection
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._target.version,
            "scheme": "http",
            "method": self.method,
            "root_path": "",
            "path": self.path,
            "raw_path": self._target.path,
            "query_string": self._target.query,
            "headers": self.headers,
            "server": connection and connection.server,
            "client": connection and connection.client,
            "state": {"recognise": self.recognise, "transport": self._transport},
        }
        return scope, parts_of(self), sender_to(self)

    async def part(self) -> tuple[bytes, bool] | None:
        """What has arrived of the body since it was last asked for, and whether that is the end. None: all is over."""
        self._go_ahead()
        while not (self._body or self.is_whole or self.is_cut_off or self.is_answered):
            await self._wait()
        if self.is_cut_off or self.is_answered:
            return None
        part, self._body = bytes(self._body), b""
        self._flow.hold("body", False)
        return part, self.is_whole

    async def end_of_all(self) -> None:
        """Wait until there is an answer, or nobody to give one to."""
        while not (self.is_cut_off or self.is_answered):
            await self._wait()

    def _go_ahead(self) -> None:
        if self._expects_continue:
            self._expects_continue = False
            if not self.is_cut_off and not self._transport.is_closing():
                self._transport.write(_CONTINUE)
