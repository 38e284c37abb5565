"""The target of all timers of a run: writes an arrival down, then answers as the payload of the timer asks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, cast

import httptools
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.clock import wall_ms
from mainspring.testing.torture.journal import Arrival, Journal

RESCHEDULE_MS = 300
ANSWER_SECONDS = 0.04
"""How long an answer takes, so that a server always dies with calls in flight and others waiting behind them."""


class Wish(Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload of a timer: who wrote it, and how its receiver is to behave."""

    marker: str
    at_most_once: bool = False
    fails: int = 0
    """So many arrivals of each delivery are answered 503."""
    reschedule: bool = False
    """The delivery that does not fail asks for one more."""


class _Body(Struct, rename="camel"):
    timer_id: str
    attempt: int
    generation: int
    payload: Wish


_decode = msgspec.json.Decoder(_Body).decode


class Receiver:
    """Counts arrivals per delivery; `url` is where timers point."""

    def __init__(self, journal: Journal, answer_seconds: float) -> None:
        self.journal = journal
        self.answer_seconds = answer_seconds
        self.url = ""
        self._arrived: Counter[str] = Counter()

    def receive(self, headers: dict[str, str], data: bytes) -> bytes:
        """The answer, after the arrival has been written down."""
        body = _decode(data)
        wish = body.payload
        delivery_id = headers["webhook-id"]
        self._arrived[delivery_id] += 1
        answer: Literal["done", "fail", "reschedule"] = "reschedule" if wish.reschedule else "done"
        if self._arrived[delivery_id] <= wish.fails:
            answer = "fail"
        self.journal.write(
            Arrival(
                timer_id=body.timer_id,
                at=time.monotonic(),
                wall_ms=wall_ms(),
                delivery_id=delivery_id,
                attempt=body.attempt,
                max_attempts=int(headers["mainspring-max-attempts"]),
                generation=body.generation,
                scheduled_at=int(headers["mainspring-scheduled-at"]),
                marker=wish.marker,
                at_most_once=wish.at_most_once,
                answer=answer,
            )
        )
        if answer == "fail":
            return _response("503 Service Unavailable", b"{}")
        if answer == "done":
            return _response("200 OK", b'{"ok":true}')
        again = replace(wish, marker=f"{wish.marker}+", reschedule=False, fails=0)
        return _response("200 OK", msgspec.json.encode({"nextExecuteAt": wall_ms() + RESCHEDULE_MS, "payload": again}))


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        answer = self._receiver.receive(self._headers, self._body)
        asyncio.get_running_loop().call_later(self._receiver.answer_seconds, self._transport.write, answer)


@asynccontextmanager
async def receiving(journal: Journal, *, answer_seconds: float = ANSWER_SECONDS) -> AsyncIterator[Receiver]:
    """A receiver on a loopback port, on the running loop."""
    receiver = Receiver(journal, answer_seconds)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(receiver), "127.0.0.1", 0, backlog=1024)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield receiver
    finally:
        server.close()
