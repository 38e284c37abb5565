"""One connection to one target: a single exchange at a time, then idle in the pool, until either side closes it.

Invariants: a request is written once, whole, and never again; an answer is given to exactly one exchange; a connection
that is not perfectly in step with its peer is closed, never reused.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from math import inf
from typing import Final, Protocol, cast

from mainspring.delivery.answer import FIRST_ROOM, AnswerReader, UnreadableAnswer
from mainspring.delivery.call import AnswerMemory, Problem, Reply, failed

Origin = tuple[str, str]
"""Scheme and destination: connections to one origin are interchangeable."""

_FRESH_SECONDS: Final = 0.1
READ_BYTES: Final = 65_536
"""How many are read at once, and so may come before an answer is asked to wait. A transport's own reads are larger."""


class Keeper(Protocol):
    """Who is told what becomes of a connection."""

    buffer: memoryview
    """The buffer its connections read into, `READ_BYTES` long: filled and emptied within one step of their loop."""

    def watch(self, deadline: float) -> None:
        """Call `expire` on the connections whose deadline has passed, at this loop time at the latest."""
        ...

    def keep(self, connection: Connection, now: float) -> None:
        """The exchange is over and the connection can carry another."""
        ...

    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one transport."""

    def __init__(self, keeper: Keeper, origin: Origin, loop: asyncio.AbstractEventLoop, answer_bytes: int) -> None:
        self.origin = origin
        self.deadline = inf
        """Loop time at which the exchange, or the idle connection, expires."""
        self.idle_since = 0.0
        self._keeper = keeper
        self._loop = loop
        self._reader = AnswerReader(answer_bytes)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._started = 0.0
        self._closing = False
        self._room: AnswerMemory | None = None
        """To be asked before more is read."""
        self._asked = 0
        """How many bytes it was asked for."""
        self._waits = False
        """For room."""
        self._has_stalled = False
        """It had room but did not use it."""
        self._sent: Callable[[], None] | None = None
        """To be told when the request is written."""

    def exchange(
        self,
        request: bytes,
        *,
        head: bool,
        started: float,
        deadline: float,
        room: AnswerMemory | None = None,
        sent: Callable[[], None] | None = None,
    ) -> asyncio.Future[Reply]:
        """Write the request, the only time; the future always gets a reply. `started` is when the call began, `sent`
        is called when all of it is written."""
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._started = started
        self.deadline = deadline
        self._answer = answer
        self._room = room
        self._asked = 0
        self._waits = self._has_stalled = False
        self._reader.begin(bodiless=head)
        if self._transport is None or self._closing:
            self._fail("network", "The connection was just closed", sent=False)
            return answer
        if sent is not None:
            self._transport.set_write_buffer_limits(0)  # so that it says when nothing is left
        self._transport.write(request)
        self._sent = sent
        if self._written():
            self.resume_writing()
        self._keeper.watch(deadline)
        return answer

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._closing

    def ready(self, now: float) -> bool:
        """Whether an idle connection can be trusted with a request."""
        if self._closing or self._transport is None or self._transport.is_closing() or now >= self.deadline:
            return False
        return now - self.idle_since < _FRESH_SECONDS or not _readable(self._transport)

    def expire(self) -> None:
        """The deadline has passed. An answer that still waits for room has arrived: it counts, without its body."""
        if self._waits and not self._has_stalled:
            self._reader.cut()
            self.go_on()
        elif self._answer is not None:
            seconds = self.deadline - self._started
            self._fail("timeout", f"Expected a whole answer within {seconds:.6g} s, got none")
        self.abort()

    def abort(self) -> None:
        """Close at once. An exchange in progress is the caller's to end."""
        if not self._closing:
            self._closing = True
            self.deadline = inf
            if self._transport is not None:
                self._transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do everything that an asyncio.Transport does without being one.
        self._transport = cast(asyncio.Transport, transport)

    def resume_writing(self) -> None:
        """Everything has been written."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._keeper.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None:
            # Nothing was asked: whatever this is, it could not be told apart from the next answer.
            self.abort()
            return
        try:
            self._reader.feed(self._keeper.buffer[:nbytes])
        except UnreadableAnswer as unreadable:
            self._fail("unreadable", str(unreadable))
            self.abort()
            return
        self._waits = self._is_to_wait()
        if not self._waits:
            self.go_on()
        elif self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._end_of_stream()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if exc is None:
            self._end_of_stream()
        if self._answer is not None:
            self._fail("network", f"Expected an answer, got {describe(exc)}")
        self._transport = None
        self._reader.drop()
        self._keeper.lost(self)

    # Room for the answer.

    def _is_to_wait(self) -> bool:
        if self._room is None or (wanted := self._reader.wanted) <= self._asked:
            return self._waits
        self._asked = wanted
        return not self._room.ask(wanted, self)

    @property
    def come(self) -> int:
        return self._reader.body_size

    def make_room(self) -> None:
        """An answer of which little has come is read further later. One that has brought much is cut off there."""
        if self._answer is None or self._room is None or self._transport is None:
            return
        if self._reader.body_size > FIRST_ROOM:
            self._reader.cut(keep=True)
            self.go_on()
            self.abort()
            return
        self._has_stalled = True
        self._waits = not self._room.ask(self._asked, self)
        if self._waits:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """There is room for what has come, and for the rest."""
        if self._waits and self.open and self._transport is not None:
            self._transport.resume_reading()
        self._waits = self._has_stalled = False
        if self._answer is None or not self._reader.complete:
            return
        try:
            self._finish()
        except UnreadableAnswer as unreadable:
            self._fail("unreadable", str(unreadable))
            self.abort()

    # Endings of an exchange.

    def _end_of_stream(self) -> None:
        if self._answer is None:
            return
        try:
            if self._reader.end():
                self._finish()
        except UnreadableAnswer as unreadable:
            self._fail("unreadable", str(unreadable))

    def _finish(self) -> None:
        reader = self._reader
        headers, body = reader.result()
        set_cookies = reader.set_cookies if "set-cookie" in headers else ()
        reader.drop()
        answer, self._answer = self._answer, None
        assert answer is not None
        now = self._loop.time()
        if reader.reusable and not self._closing and not answer.done() and self._written():
            self._keeper.keep(self, now)
        else:
            self.abort()
        if not answer.done():
            duration_ms = round((now - self._started) * 1000)
            answer.set_result(
                Reply(reader.status, headers, body, reader.truncated, "", "", True, duration_ms, set_cookies)
            )

    def _written(self) -> bool:
        """An early answer to a request that is still being written counts, but the rest of it is not wanted."""
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def _fail(self, problem: Problem, detail: str, *, sent: bool = True) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            duration_ms = round((self._loop.time() - self._started) * 1000)
            broken = self._reader.broken(with_body=not self._waits)  # there is no room for one that waits
            answer.set_result(failed(problem, detail, sent=sent, duration_ms=duration_ms, broken=broken))
        self._reader.drop()


def describe(error: BaseException | None) -> str:
    """A failure of the network in the words of the operating system."""
    if error is None:
        return "the end of the connection"
    if isinstance(error, OSError) and error.strerror:
        # asyncio puts addresses into strerror; errors of the resolver and of TLS have their own numbers.
        return os.strerror(error.errno) if type(error).__module__ == "builtins" and error.errno else error.strerror
    return str(error) or type(error).__name__


def _readable(transport: asyncio.Transport) -> bool:
    """Whether something has arrived that the event loop has not seen yet: a farewell, or bytes nobody asked for."""
    poll = getattr(select, "poll", None)
    descriptor: int = transport.get_extra_info("socket").fileno()
    if poll is None or descriptor < 0:
        return descriptor < 0
    poller = poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
