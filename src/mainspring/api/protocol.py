"""uvicorn's HTTP protocol with the bounds that it lacks, and a shorter way for answers that are known as a whole.

A peer has a deadline for sending a whole request, for taking an answer, and for idling between requests; the head of
a request and the number of connections are limited. There are no timers per request: a sweep about once a second
counts ticks, and every connection notes at which tick it began to wait for its peer.

A refusal is never written in front of an answer that is still due: that request may have been carried out.
"""

from __future__ import annotations

import asyncio
import math
import urllib.parse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from mainspring.api.problems import PROBLEM_TYPE, RETRY_AFTER_SECONDS, problem
from mainspring.api.request_id import request_id_of
from mainspring.api.routes import NO_CONTENT_POLICY, secure_headers

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent
    from uvicorn.config import Config
    from uvicorn.server import ServerState

NOT_WAITING: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one peer may take."""

    request_seconds: float = 10.0
    idle_seconds: float = 75.0
    head_bytes: int = 16_384
    connections: int = 2048


@dataclass(slots=True)
class Guard:
    """The limits of a listener and the tick that all its connections read."""

    limits: Limits
    tick: int = 0
    tick_seconds: float = field(init=False)
    request_ticks: int = field(init=False)
    idle_ticks: int = field(init=False)

    def __post_init__(self) -> None:
        self.tick_seconds = min(1.0, self.limits.request_seconds / 4)
        self.request_ticks = math.ceil(self.limits.request_seconds / self.tick_seconds)
        self.idle_ticks = math.ceil(self.limits.idle_seconds / self.tick_seconds)

    async def sweep(self, connections: set[Any]) -> None:
        """Look at every connection, tick after tick, until cancelled."""
        while True:
            await asyncio.sleep(self.tick_seconds)
            self.tick += 1
            for connection in tuple(connections):
                if isinstance(connection, GuardedProtocol):
                    connection.check_deadlines()


class GuardedProtocol(HttpToolsProtocol):
    def __init__(
        self,
        *,
        guard: Guard,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state=app_state)
        self._guard = guard
        self._receiving_since = guard.tick
        self._idle_since = guard.tick
        self._stalled_since = NOT_WAITING
        self._in_head = False
        self._in_body = False
        self._chunk_bytes = 0
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._guard.limits.connections:
            self._refuse("unavailable", f"Expected at most {self._guard.limits.connections} connections, got more")

    # From the peer

    def data_received(self, data: bytes) -> None:
        while data:
            data = self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        """Give the parser a chunk. What comes back has to be given again."""
        if self._receiving_since == NOT_WAITING:
            self._receiving_since = self._guard.tick
        self._chunk_bytes = len(data)
        began_before = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLarge):
                self._refuse_head()
            else:
                self._refuse("invalid_input", "Expected an HTTP/1.1 request, got something else")
        else:
            if began_before and self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > self._guard.limits.head_bytes:
                    self._refuse_head()
        return b""

    def on_message_begin(self) -> None:
        self._receiving_since = self._guard.tick
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        limit = self._guard.limits.head_bytes
        # Counting is needed only for a head that did not come in a small chunk.
        if self._head_bytes + self._chunk_bytes > limit and self._count_head() > limit:
            raise _HeadTooLarge
        self._in_head = False
        if self.parser.should_upgrade():
            return  # the parser stops behind this head
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        self.scope["raw_path"] = target.path
        self.scope["query_string"] = target.query or b""
        previous = self.cycle
        self.cycle = cycle = _Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._in_body = True
        if previous is None or previous.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_message_complete(self) -> None:
        if self._in_body:
            self._in_body = False
            self._receiving_since = NOT_WAITING
            super().on_message_complete()

    def _decline_upgrade(self, rest: bytes) -> bytes:
        """The request without its offer. A server may ignore one, but the parser would skip the body."""
        if self.parser.get_method() == b"CONNECT":
            self._refuse("invalid_input", "Expected a request to this server, got one to be passed on")
            return b""
        lines = b"".join(b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade")
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, lines)
        self.parser = httptools.HttpRequestParser(self)
        return head + rest

    # To the peer

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._idle_since = self._guard.tick
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def check_deadlines(self) -> None:
        """Let go of a peer that is too slow. Called at every tick."""
        guard = self._guard
        if self.flow.write_paused or self.transport.is_closing():
            if self._stalled_since == NOT_WAITING:
                self._stalled_since = guard.tick
            elif guard.tick - self._stalled_since > guard.request_ticks:
                self.transport.abort()
            return
        self._stalled_since = NOT_WAITING
        answering = self._is_answering()
        if self._receiving_since != NOT_WAITING:
            if self.flow.read_paused or (answering and not self._in_body):
                self._receiving_since = guard.tick  # it is we who let the peer wait
            elif guard.tick - self._receiving_since > guard.request_ticks:
                self._refuse("request_timeout", f"Expected a request within {guard.limits.request_seconds:g} seconds")
        elif not answering and guard.tick - self._idle_since > guard.idle_ticks:
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _count_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_head(self) -> None:
        self._refuse("headers_too_large", f"Expected at most {self._guard.limits.head_bytes} bytes, got more")

    def _refuse(self, code: str, detail: str) -> None:
        """Answer the request that is being received with a problem, and close."""
        if self._is_answering() and not self._in_body:
            self.cycle.keep_alive = False  # an earlier request is still due its answer, and the last one gets
            return
        if self._in_body:
            written = self.cycle.response_started or bool(self.pipeline)
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            written = False
        if not written:
            # Beyond the request that is being received, the headers are those of the one before.
            headers = dict(self.headers) if self._in_head or self._in_body else {}
            self.transport.write(_refusal(code, detail, request_id_of(headers)))
        self.transport.close()


class _Cycle(RequestResponseCycle):
    """An answer is one start with a content length and one body: both leave in one write.

    Header names and values come from the application's own tables or were validated by it.
    """

    _head = b""

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            lines = [b"%b: %b\r\n" % header for header in message["headers"]]
            if not self.keep_alive:
                lines.append(b"connection: close\r\n")
            self._head = b"%b%b\r\n" % (STATUS_LINE[message["status"]], b"".join(lines))
            return
        assert message["type"] == "http.response.body"
        assert not message.get("more_body", False)
        self.transport.write(self._head if self.scope["method"] == "HEAD" else self._head + message["body"])
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class _HeadTooLarge(Exception):
    """Stops the parser; it comes back as the context of the parser's own error."""


def _refusal(code: str, detail: str, request_id: str) -> bytes:
    told = problem(code, detail, request_id=request_id, retryable=code in ("unavailable", "request_timeout"))
    body = msgspec.json.encode(told)
    headers = [
        *secure_headers(PROBLEM_TYPE, NO_CONTENT_POLICY),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"x-request-id", request_id.encode("ascii")),
    ]
    if told.status in RETRY_AFTER_SECONDS:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS[told.status]))
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[told.status] + lines + b"\r\n" + body
