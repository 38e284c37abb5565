"""One connection of the listener: HTTP/1.1 with bounds on everything that a peer may take.

A peer has a deadline for sending a whole request, for taking an answer, and for idling between requests. The head of
a request is limited, and so is all that comes around its body: outside the head nothing is a header. At most a few
requests are parsed ahead of their answers; what has arrived behind them waits, and nothing more is read. In one turn
of the loop a connection has one piece parsed; a stranger that keeps on asking waits in line with the others. There
are no timers per request: a sweep about once a second counts ticks, and every connection notes at which tick it began
to wait for its peer.

A refusal is never written in front of an answer that is still due: that request may have been carried out. A request
that is answered before it has ended is over: nobody looks for its end, unless that is known and near. A peer that sends
no more may still read: what it has sent whole is answered. One that is still sending when all is said is listened to
for a moment, because a connection that is closed on it takes the answer along.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from functools import lru_cache
from typing import Final, cast

import httptools
from httptools.parser.url_parser import URL

from mainspring import telemetry
from mainspring.api.access_log import AccessLog, write_refusal
from mainspring.api.exchange import Application
from mainspring.api.flow_control import READ_BYTES, FlowControl, readable
from mainspring.api.head_checks import Objection, objection
from mainspring.api.limits import ListenerState
from mainspring.api.peers import network_of
from mainspring.api.received import ReceivedRequest, RequestTarget
from mainspring.api.refusals import RefusalApp, refusal
from mainspring.api.request_id import REQUEST_ID, correlation_id_of, request_id_of
from mainspring.api.routes import Headers

NOT_WAITING: Final = -1
AHEAD: Final = 4
"""Requests whose answers wait for earlier ones; more are not parsed."""
PIECE_BYTES: Final = 256
"""The parser gets no more at once, except of a body: the requests in a piece are all parsed."""
KNOWN_PIECE_BYTES: Final = 1_024
"""The same of heads, from whoever has shown a token: most requests are no larger."""
PIECES: Final = 4
"""What the parser gets in one turn."""
HEADER_LINES: Final = 100
FRAMING_PER_BYTE: Final = 16
"""How many bytes around a body each of its bytes may bring along: chunks of one byte are odd, but legal."""
SKIPPED_BYTES: Final = 4_194_304
"""How much is read of an unwanted body, so that its sender gets to read the answer: a peer that is cut off loses it."""
LINGER_TICKS: Final = 2
LONG_BYTES: Final = 32_768
"""A peer may not have taken all of a longer answer yet, though the system has."""
_FAILED: Final = Objection("internal", "The details are in the server's log, under the request id.")
_STOPPED: Final = Objection("unavailable", "The server stops")
FRESH_SECONDS: Final = 0.05
"""A peer that has connected this recently may have sent a request that is not read yet."""


class GuardedProtocol(asyncio.BufferedProtocol):
    transport: asyncio.Transport
    flow: FlowControl
    parser: httptools.HttpRequestParser

    def __init__(self, app: Application, guard: ListenerState) -> None:
        self.network = ""
        self.pipeline: deque[tuple[ReceivedRequest, Application]] = deque()
        """Requests whose answers wait for earlier ones, the next one first."""
        self._app = app
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self._url = b""
        self._headers: Headers = []
        self._received: ReceivedRequest | None = None
        """The last request whose head has arrived."""
        self._answering: ReceivedRequest | None = None
        self._receiving_since = guard.tick
        self._idle_since = guard.tick
        self._stalled_since = NOT_WAITING
        self._lingers_since = NOT_WAITING
        """All is said, and what still arrives is thrown away."""
        self._skipped_bytes = 0
        self._is_sending = False
        """The peer has more to say than we listen to."""
        self._untaken_bytes = 0
        """Of its answers, when that was last looked at."""
        self._has_ended = False
        """The peer sends no more."""
        self._used_at = 0.0
        self._waits_for_turn = False
        self._unparsed: deque[memoryview] = deque()
        self._is_over = False
        """Nothing that arrives is looked at from now on."""
        self._in_head = False
        self._in_body = False
        self._began_in_piece = False
        self._framing_bytes = 0
        """Of the head that is being received, or around the body."""
        self._body_bytes = 0
        self._body_left = 0
        """Of a body whose length is known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do everything that an asyncio.Transport does without being one.
        self.transport = cast(asyncio.Transport, transport)
        self.flow = FlowControl(self.transport)
        self.parser = httptools.HttpRequestParser(self)
        self._guard.connections.add(self)
        self.transport.set_write_buffer_limits(high=READ_BYTES)  # answers to be taken, as requests to be parsed
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        self.network = network_of(self.client[0]) if self.client else ""
        self._used_at = self._loop.time()
        if not self._guard.peers.admit(self):
            told = f"Expected at most {self._guard.limits.connections} connections, got more"
            self._refuse("unavailable", told, linger=False)  # there is no place to wait in

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.connections.discard(self)
        self._guard.peers.leave(self)
        for received in (self._received, self._answering, *(waiting for waiting, _ in self.pipeline)):
            if received is not None:
                received.forget()
        self.pipeline.clear()
        self._unparsed.clear()
        self.flow.resume_writing()
        del self.parser  # which knows this

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()

    @property
    def is_due_answers(self) -> bool:
        return self._answering is not None or bool(self.pipeline)

    def shut_down(self) -> None:
        """Close, after the answers that are due."""
        if self._is_answering():
            assert self._received is not None
            self._received.keep_alive = False
        else:
            self.transport.close()

    def hurry(self) -> None:
        size = self.transport.get_write_buffer_size()
        if self.flow.write_paused and size == self._untaken_bytes and not self._guard.peers.is_known(self):
            self.dismiss()
        self._untaken_bytes = size

    # From the peer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._guard.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            self._skip(nbytes)
            return
        self._unparsed.append(memoryview(bytes(self._guard.buffer[:nbytes])))
        if self._received is None or self._guard.peers.is_known(self):  # a first request is as good as anybody's
            self._parse()
        else:
            self._go_on_in_turn()

    def eof_received(self) -> bool:
        """The peer sends no more. It is due the answers to what has come whole, and then the connection is closed."""
        if self._in_body or not self._is_answering():
            return False
        assert self._received is not None
        self._received.keep_alive = False
        self._is_over = self._has_ended = True
        self._in_head = False
        self._receiving_since = NOT_WAITING
        self.flow.hold("end", True)
        return True

    def _parse(self) -> None:
        """Give the parser some of what has arrived, unless too many requests wait for their answers already."""
        unparsed = self._unparsed
        is_known = self._guard.peers.is_known(self)
        for _ in range(PIECES):
            if not unparsed or self._is_over or len(self.pipeline) >= AHEAD:
                break
            piece = unparsed.popleft()
            size = max(KNOWN_PIECE_BYTES if is_known and not self._in_body else PIECE_BYTES, self._body_left)
            if len(piece) > size:
                unparsed.appendleft(piece[size:])
                piece = piece[:size]
            self._feed(piece)
        if self._is_over:
            unparsed.clear()
        self._go_on_in_turn()

    def _go_on_in_turn(self) -> None:
        """Answer and parse the next, if there is any, when everybody else has had a turn."""
        if self._waits_for_turn:
            return
        if (self.pipeline and self._answering is None) or (self._unparsed and len(self.pipeline) < AHEAD):
            self._wait_for_turn()
        else:
            self.flow.hold("unparsed", bool(self._unparsed))

    def _wait_for_turn(self) -> None:
        self._waits_for_turn = True
        self.flow.hold("unparsed", True)
        if self._guard.peers.is_known(self):
            self._loop.call_soon(self._go_on)
        else:
            self._guard.strangers.wait(self._go_on)

    def _go_on(self) -> None:
        self._waits_for_turn = False
        if self.transport.is_closing():
            return
        if self.pipeline and self._answering is None:
            self._start(*self.pipeline.popleft())
        self._parse()
        self.flow.hold("pipeline", bool(self.pipeline))

    def _skip(self, size: int) -> None:
        """Throw away what arrives after the last request, one read per turn."""
        self._skipped_bytes += size
        self._is_sending = True
        if self._lingers_since != NOT_WAITING and self._skipped_bytes > SKIPPED_BYTES:
            self.transport.abort()
        elif not self._waits_for_turn:
            self._wait_for_turn()

    def _feed(self, piece: memoryview) -> None:
        self._began_in_piece = False
        body_before = self._body_bytes
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._unparsed.appendleft(piece[upgrade.args[0] :])
            self._decline_upgrade()
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _Refused):
                self._refuse(*error.__context__.objection)
            elif not self._is_over:
                self._refuse("invalid_input", "Expected an HTTP/1.1 request, got something else")
        else:
            if (self._in_head or self._in_body) and not self._began_in_piece:
                self._framing_bytes += len(piece) - (self._body_bytes - body_before)
                allowed = self._guard.limits.head_bytes + FRAMING_PER_BYTE * self._body_bytes
                if self._framing_bytes > allowed:
                    self._refuse(*self._too_large())

    def on_message_begin(self) -> None:
        if self._is_over:
            raise _Over
        self._receiving_since = self._guard.tick
        self._in_head = self._began_in_piece = True
        self._framing_bytes = self._body_bytes = self._body_left = 0
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # of a trailer
        if len(self._headers) >= HEADER_LINES:
            raise _Refused(Objection("headers_too_large", f"Expected at most {HEADER_LINES} headers, got more"))
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        limit = self._guard.limits.head_bytes
        # Counting is needed only for a head that did not come in a few pieces.
        if self._framing_bytes + 2 * KNOWN_PIECE_BYTES > limit and self._count_head() > limit:
            raise _Refused(self._too_large())
        self._in_head = False
        if self.parser.should_upgrade():
            return  # the parser stops behind this head
        version = self.parser.get_http_version()
        url = _parsed(self._url)
        headers = self._headers
        fields = dict(headers)
        refused = objection(version, headers, fields, authority=url.host, hosts=self._guard.hosts)
        self._body_left = int(fields.get(b"content-length", 0))
        previous = self._received
        self._received = received = ReceivedRequest(
            self,
            self.parser.get_method().decode("ascii"),
            RequestTarget(url.path, url.query or b"", version),
            headers,
            fields,
            keep_alive=refused is None and version != "1.0" and self.parser.should_keep_alive(),
            ends_soon=0 < self._body_left <= SKIPPED_BYTES,
        )
        self._in_body = self._began_in_piece = True
        self._framing_bytes = 0
        app = self._app
        if refused is not None:
            self._is_over = True  # where the body would end is not worth knowing
            app = AccessLog(RefusalApp(refused)) if self._guard.access_log else RefusalApp(refused)
        if previous is None or previous.is_answered:
            self._start(received, app)
        else:
            self.flow.hold("pipeline", True)
            self.pipeline.append((received, app))

    def on_body(self, body: bytes) -> None:
        assert self._received is not None
        self._body_bytes += len(body)
        self._body_left = max(0, self._body_left - len(body))
        self._received.feed(body)

    def on_message_complete(self) -> None:
        if self._in_body and self._received is not None:
            self._in_body = False
            self._body_left = 0
            self._receiving_since = NOT_WAITING
            self._is_over = self._is_over or not self._received.keep_alive
            self._received.end()

    def _decline_upgrade(self) -> None:
        """Have the request parsed without its upgrade offer. We may ignore that, but the parser would skip the body."""
        if self.parser.get_method() == b"CONNECT":
            self._refuse("invalid_input", "Expected a request to this server, got one for a proxy")
            return
        lines = b"".join(b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade")
        version = self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self._url, version, lines)
        self.parser = httptools.HttpRequestParser(self)
        self._unparsed.appendleft(memoryview(head))

    # To the peer

    def recognise(self) -> bool:
        return self._guard.peers.recognise(self)

    def _start(self, received: ReceivedRequest, app: Application) -> None:
        self._answering = received
        if self._guard.peers.is_beyond(self):
            received.keep_alive = False
        # Its first step comes in the next turn: what has arrived together with the head has been parsed then.
        task = self._loop.create_task(self._answer(received, app))
        self._guard.tasks.add(task)

    async def _answer(self, received: ReceivedRequest, app: Application) -> None:
        try:
            await app.answer(received)
            if not received.is_answered and not received.is_cut_off:
                raise RuntimeError("Expected an answer of the application, got none")
        except BaseException as error:  # noqa: BLE001 - whatever an application does, its peer gets an end
            task = asyncio.current_task()
            is_stopped = task is not None and task.cancelling() > 0
            if not is_stopped:
                _tell_failure(received, error)
            if not received.has_begun:
                received.keep_alive = False
                await RefusalApp(_STOPPED if is_stopped else _FAILED).answer(received)
            elif not received.is_answered:  # otherwise the connection is the next request's
                self._break_off()
        finally:
            self._guard.tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def answered(self, received: ReceivedRequest) -> None:
        self._answering = None
        self._guard.answered += 1
        if self.transport.is_closing():
            return
        if not received.keep_alive:
            may_send = self._is_sending or not received.is_whole or bool(self.pipeline or self._unparsed)
            # Of a long answer, some may still be under way when the peer sends what nobody asked for.
            may_send = may_send or received.written > LONG_BYTES or readable(self.transport)
            self._leave(linger=not self._has_ended and may_send)
            return
        self._idle_since = self._guard.tick
        self._used_at = self._loop.time()
        self._guard.peers.touch(self)
        if self.pipeline or self._unparsed:
            self._go_on_in_turn()

    def _leave(self, *, linger: bool) -> None:
        """Close after the last answer. Closing on a peer that is still sending would take the answer from it."""
        if not linger:
            self.transport.close()
            return
        self._is_over = True
        self._in_head = self._in_body = False
        self._receiving_since = NOT_WAITING
        self._lingers_since = self._guard.tick
        self._unparsed.clear()
        self.pipeline.clear()
        try:
            self.transport.write_eof()
        except OSError:  # the peer is gone
            self.transport.abort()
        self.flow.hold("unparsed", self._waits_for_turn)
        self.flow.hold("pipeline", False)
        self.flow.hold("body", False)

    def check_deadlines(self) -> None:
        """Let go of a peer that is too slow. Called at every tick."""
        guard = self._guard
        is_unsent = self._lingers_since != NOT_WAITING and self.transport.get_write_buffer_size() > 0
        if is_unsent:
            self._lingers_since = guard.tick  # all is said when all is sent
        if is_unsent or self.flow.write_paused or self.transport.is_closing():
            if self._stalled_since == NOT_WAITING:
                self._stalled_since = guard.tick
            elif guard.tick - self._stalled_since > guard.request_ticks:
                self.dismiss()
            return
        self._stalled_since = NOT_WAITING
        if self._lingers_since != NOT_WAITING:
            if guard.tick - self._lingers_since > LINGER_TICKS:
                self.transport.abort()
            return
        answering = self._is_answering()
        if self._receiving_since != NOT_WAITING:
            if (self.flow.read_paused and not self._waits_for_turn) or (answering and not self._in_body):
                self._receiving_since = guard.tick  # we are the ones who keep the peer waiting
            elif guard.tick - self._receiving_since > guard.request_ticks:
                self._refuse("request_timeout", f"Expected a request within {guard.limits.request_seconds:g} seconds")
        elif not answering and guard.tick - self._idle_since > guard.idle_ticks:
            self.transport.close()

    def gives_way(self, *, known: bool, pressed: bool) -> bool:
        """Whether nothing is lost with this connection. A stranger's answer that nobody takes does not count."""
        if self.flow.write_paused:
            return not known
        if self._answering is not None or self.transport.get_write_buffer_size() > 0:
            return False
        if known and self._receiving_since != NOT_WAITING:
            return False
        if self._lingers_since != NOT_WAITING:
            return True
        if self._waits_for_turn:
            return pressed and self._received is not None
        is_fresh = self._loop.time() - self._used_at < FRESH_SECONDS
        return (pressed or not is_fresh) and not readable(self.transport)

    def dismiss(self) -> None:
        self._spoil()
        self.transport.abort()

    def _break_off(self) -> None:
        """Close in the middle of an answer, after what was written of it."""
        if not self.transport.is_closing():
            self._spoil()
            self.transport.close()

    def _spoil(self) -> None:
        """In HTTP/1.0 an answer may end with its connection: what is missing then shows only in a reset."""
        received = self._received
        is_cut = received is not None and (not received.is_answered or self.transport.get_write_buffer_size() > 0)
        if is_cut and received is not None and received.is_old:
            descriptor = self.transport.get_extra_info("socket")
            descriptor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _is_answering(self) -> bool:
        return self._received is not None and not self._received.is_answered

    def _count_head(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _too_large(self) -> Objection:
        where = "around the body" if self._in_body else "of headers"
        return Objection(
            "headers_too_large", f"Expected at most {self._guard.limits.head_bytes} bytes {where}, got more"
        )

    def _refuse(self, code: str, detail: str, *, linger: bool = True) -> None:
        """Answer the request that is being received with a problem, and close."""
        self._is_over = True
        received = self._received
        if received is not None and self._in_body and self.pipeline:
            # Those before it are due their answers, and then it gets this one.
            received.keep_alive = False
            self.pipeline[-1] = (received, RefusalApp(Objection(code, detail)))
            return
        if received is not None and not received.is_answered and not self._in_body:
            received.keep_alive = False  # an earlier request is still due its answer, and it is the last to get one
            self._is_sending = True
            return
        is_begun = False
        if received is not None and self._in_body:
            is_begun = received.has_begun
            received.cut_off()
        if is_begun:
            self._break_off()
            return
        # Beyond the request that is being received, the headers are those of the one before.
        headers = dict(self._headers) if self._in_head or self._in_body else {}
        self.transport.write(refusal(code, detail, headers))
        if self._guard.access_log:
            write_refusal(code, client=self.client)
        self._leave(linger=linger)


def _tell_failure(received: ReceivedRequest, error: BaseException) -> None:
    """The answer to come has the id of the line."""
    request_id = request_id_of(received.fields)
    received.fields[REQUEST_ID] = request_id.encode("ascii")
    correlation_id = correlation_id_of(received.fields).decode("ascii")
    ids = {"request_id": request_id, **({"correlation_id": correlation_id} if correlation_id else {})}
    if received.is_cut_off:  # a peer that leaves is no alarm
        reason = type(error).__name__
        telemetry.info("the application failed after its peer had left", path=received.path, reason=reason, **ids)
    else:
        telemetry.exception("the application failed", error, path=received.path, **ids)


def _parsed(url: bytes) -> URL:
    """Nearly all requests ask for one of a few paths."""
    return _parsed_before(url) if len(url) <= 128 else httptools.parse_url(url)


_parsed_before = lru_cache(maxsize=256)(httptools.parse_url)


def _address(name: object) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


class _Refused(Exception):
    """Stops the parser; it comes back as the context of the parser's own error."""

    def __init__(self, objection: Objection) -> None:
        self.objection = objection
        super().__init__(objection.detail)


class _Over(Exception):
    """Stops the parser behind the last request that is answered."""
