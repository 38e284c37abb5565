"""An HTTP load generator: every connection sends a request as soon as it has the last answer, or at a pace.

At a pace, a request is late from the moment at which it should have been sent: nobody's slowness hides itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import httptools


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was measured. An error is an answer that is not 2xx, or a connection that was lost."""

    rate: float
    p50_ms: float
    p99_ms: float
    errors: int
    requests: int


class Answer(NamedTuple):
    status: int
    body: bytes


@dataclass(slots=True)
class _Run:
    make_request: Callable[[int], bytes]
    ends_at: float
    limit: int | None
    done: asyncio.Event
    open: int
    started_at: float
    rate: float | None
    sent: int = 0
    errors: int = 0
    latencies: list[float] = field(default_factory=list)

    def close_one(self) -> None:
        self.open -= 1
        if not self.open:
            self.done.set()


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._parser = httptools.HttpResponseParser(self)
        self._sent_at = 0.0
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do everything that an asyncio.Transport does without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        run = self._run
        now = time.perf_counter()
        due = now if run.rate is None else run.started_at + run.sent / run.rate
        if max(now, due) >= run.ends_at or run.sent == run.limit:
            self._transport.close()
            return
        number = run.sent
        run.sent += 1
        if due <= now:
            self._write(number, due)
        else:
            asyncio.get_running_loop().call_later(due - now, self._write, number, due)

    def _write(self, number: int, due: float) -> None:
        self._sent_at = due
        self._waiting = True
        self._transport.write(self._run.make_request(number))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        run = self._run
        run.latencies.append(time.perf_counter() - self._sent_at)
        if not 200 <= self._parser.get_status_code() < 300:
            run.errors += 1
        self._waiting = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            self._run.errors += 1
        self._run.close_one()


async def run_load(
    host: str,
    port: int,
    make_request: Callable[[int], bytes],
    connections: int,
    seconds: float,
    *,
    requests: int | None = None,
    rate: float | None = None,
) -> LoadResult:
    """Send for so many seconds, or so many requests if that is earlier; `rate` per second, or as fast as it goes.

    `make_request` gets the number of the request and gives its bytes.
    """
    loop = asyncio.get_running_loop()
    started_at = time.perf_counter()
    run = _Run(make_request, started_at + seconds, requests, asyncio.Event(), connections, started_at, rate)
    for _ in range(connections):
        await loop.create_connection(lambda: _Connection(run), host, port)
    async with asyncio.timeout(seconds + 30):
        await run.done.wait()
    elapsed = time.perf_counter() - started_at
    latencies = sorted(run.latencies) or [0.0]
    return LoadResult(
        rate=len(run.latencies) / elapsed,
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[len(latencies) * 99 // 100] * 1000,
        errors=run.errors,
        requests=len(run.latencies),
    )


class _Asking(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, request: bytes, answer: asyncio.Future[Answer]) -> None:
        self._request = request
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self._answer.set_result(Answer(self._parser.get_status_code(), self._body))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("Expected an answer, got the end of the connection"))


async def ask(host: str, port: int, request: bytes) -> Answer:
    """Send one request on a connection of its own."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()
    await loop.create_connection(lambda: _Asking(request, answer), host, port)
    async with asyncio.timeout(30):
        return await answer


def post(path: str, body: bytes, *, host: str = "localhost", token: str = "") -> bytes:
    """The bytes of a JSON request."""
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    if token:
        head += f"authorization: Bearer {token}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
