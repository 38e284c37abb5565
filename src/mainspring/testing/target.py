"""A local HTTP server to be called: records what arrives and answers as it is told, even badly.

    async with TargetServer() as target:
        target.script("/hook", Answer(status=503), Answer())      # first 503, from then on 200
        ...
        await target.wait_for(2)
        assert target.requests[0].headers["webhook-id"] == ...

`python -m mainspring.testing.target --port 8712` serves the same from a shell; there, and for every path without a
script, the path itself chooses the answer: /status/503, /delay/2.5, /echo, /drip/0.1, /huge/1000000, /redirect, and
each misbehaviour by its name, such as /hang, /reset or /gzip-bomb. All else is 200 with `{"ok":true}`.

Requests are counted by their id: `?id=` in the path, or the header `req-id`, `idempotency-key` or `webhook-id`. The
counts are in `counts`, and GET /counts answers with them; that request itself is neither recorded nor counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import struct
import sys
import time
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from socket import SO_LINGER, SOL_SOCKET, socket
from types import TracebackType
from typing import Final, Literal, Self, get_args
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

Behaviour = Literal[
    "plain",
    "chunked",
    "until-close",
    "echo",
    "drip",
    "hang",
    "reset",
    "close",
    "close-after-headers",
    "huge",
    "gzip-bomb",
    "garbage",
    "continue-spam",
    "endless-headers",
    "early",
]
COUNTS_PATH: Final = "/counts"
ID_HEADERS: Final = ("req-id", "idempotency-key", "webhook-id")
HEAD_LIMIT: Final = 65_536
BODY_LIMIT: Final = 16 * 1024 * 1024
_CHUNK: Final = b"x" * 65_536


class Answer(Struct, frozen=True, kw_only=True):
    """What to say, and how."""

    status: int = 200
    body: bytes = b'{"ok":true}'
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    delay_seconds: float = 0.0
    """Waited before the first byte."""
    behaviour: Behaviour = "plain"
    """plain, chunked, until-close: well-behaved. echo: the request as JSON instead of `body`. drip: one byte of the
    body at a time, `drip_seconds` apart. hang: no answer. reset and close: no answer, and the connection ends so.
    huge: `size` bytes. gzip-bomb: zeros that unpack to `size` bytes. early: the answer before the request body is
    read."""
    drip_seconds: float = 0.05
    size: int = 1_000_000_000
    close: bool = False
    """Close the connection after the answer, without having announced it."""


class Request(Struct, frozen=True):
    """A request as it arrived. Header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    arrived_at: float
    """`time.monotonic()`."""
    connection: int
    """Requests on one connection have the same number."""

    @property
    def id(self) -> str:
        """What the request is counted by; empty: it has no id."""
        named = parse_qs(urlsplit(self.path).query).get("id", []) if "?" in self.path else []
        named += [self.headers[name] for name in ID_HEADERS if name in self.headers]
        return named[0] if named else ""


class TargetServer:
    """An async context manager: listens on loopback while it is open. `url` has no path."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: socket | None = None,
        tls: ssl.SSLContext | None = None,
        keep: int = 100_000,
    ) -> None:
        """`listener` is a socket that is bound already, in place of host and port."""
        self.requests: deque[Request] = deque(maxlen=keep)
        self.deliveries: Counter[str] = Counter()
        """Requests per webhook-id."""
        self.counts: Counter[str] = Counter()
        """Requests per id."""
        self.connections = 0
        """Accepted so far."""
        self.open_connections = 0
        self.bytes_written = 0
        self._host, self.port, self._tls = host, port, tls
        self._listener = listener
        self._scripts: dict[str, deque[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def script(self, path: str, *answers: Answer) -> None:
        """The answers to requests for this path, in turn; the last one stays."""
        self._scripts[path] = deque(answers)

    async def wait_for(self, count: int, *, seconds: float = 10.0) -> None:
        """Return once at least `count` requests have been recorded; TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def wait_for_open(self, count: int, *, seconds: float = 10.0) -> None:
        """Return once exactly `count` connections are open."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: self.open_connections == count)

    async def drop_connections(self) -> None:
        """Close what is open, like a server that has had enough of idle connections."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait_for_open(0)

    async def __aenter__(self) -> Self:
        start = partial(asyncio.start_server, self._serve, ssl=self._tls, limit=HEAD_LIMIT, backlog=1024)
        self._server = await (start(sock=self._listener) if self._listener else start(self._host, self.port))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await asyncio.sleep(0)  # connections that were just accepted get to start, so that they can be ended
        await self.drop_connections()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        number = self.connections
        try:
            while await self._serve_one(reader, writer, number):
                pass
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the caller has gone, or never spoke HTTP: nothing to record, nobody to tell
        except asyncio.CancelledError:
            # Only `drop_connections` cancels. Ending quietly keeps the stream machinery from reporting it.
            task.uncancel()
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if self._tls else writer.close()
            self.open_connections -= 1
            async with self._changed:
                self._changed.notify_all()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        """Read a request and answer it; False when the connection is over."""
        method, path, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
        answer = self._next_answer(path)
        body = b"" if answer.behaviour == "early" else await _read_body(reader, headers)
        request = Request(method, path, headers, body, time.monotonic(), number)
        if (method, path) == ("GET", COUNTS_PATH):
            answer = Answer(body=msgspec.json.encode(self.counts))
        else:
            await self._record(request)
        if answer.behaviour == "echo":
            answer = replace(answer, behaviour="plain", body=_echo(request))
        if answer.delay_seconds:
            await asyncio.sleep(answer.delay_seconds)
        if answer.behaviour == "hang":
            await reader.read()  # until the caller gives up
        async for data in _chunks_of(answer, method):
            if writer.is_closing():  # the caller has gone; uvloop raises for what is written then
                return False
            writer.write(data)
            await writer.drain()
            self.bytes_written += len(data)
        if answer.behaviour == "reset":
            # Lingering for no time makes the close a reset.
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        announced = dict(answer.headers).get("connection", "").lower() == "close"
        return answer.behaviour in ("plain", "chunked", "drip", "gzip-bomb", "continue-spam") and not (
            answer.close or announced
        )

    async def _record(self, request: Request) -> None:
        self.requests.append(request)
        if "webhook-id" in request.headers:
            self.deliveries[request.headers["webhook-id"]] += 1
        if request.id:
            self.counts[request.id] += 1
        async with self._changed:
            self._changed.notify_all()

    def _next_answer(self, path: str) -> Answer:
        script = self._scripts.get(path)
        if not script:
            return answer_by_path(path)
        return script.popleft() if len(script) > 1 else script[0]


def answer_by_path(path: str) -> Answer:
    """What a path without a script gets."""
    name, _, value = path.partition("?")[0].strip("/").partition("/")
    if name == "redirect":
        return Answer(status=302, headers=(("location", path),), body=b"")
    try:
        return _answer_with(name, value)
    except ValueError:
        return Answer()


def _answer_with(name: str, value: str) -> Answer:
    """Raises ValueError for a value that is not a number."""
    if name == "status":
        return Answer(status=int(value))
    if name == "delay":
        return Answer(delay_seconds=float(value))
    behaviour: Behaviour
    for behaviour in get_args(Behaviour):
        if name == behaviour:
            plain = Answer(behaviour=behaviour)
            if not value:
                return plain
            if name == "drip":
                return replace(plain, drip_seconds=float(value))
            return replace(plain, size=int(value)) if name in ("huge", "gzip-bomb") else plain
    return Answer()


def _echo(request: Request) -> bytes:
    """What arrived, as JSON; bytes that are not text as escapes."""
    parts = urlsplit(request.path)
    return msgspec.json.encode(
        {
            "method": request.method,
            "path": parts.path,
            "query": parse_qs(parts.query, keep_blank_values=True),
            "headers": request.headers,
            "body": request.body.decode("utf-8", "backslashreplace"),
        }
    )


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        key = name.strip().lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return method, path, headers


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    return await reader.readexactly(min(int(headers.get("content-length", "0")), BODY_LIMIT))


async def _chunks_of(answer: Answer, method: str) -> AsyncIterator[bytes]:  # noqa: PLR0912 - one branch per behaviour
    body = b"" if method == "HEAD" or answer.status in (204, 304) else answer.body
    match answer.behaviour:
        case "plain" | "early" | "echo":
            yield _head(answer, ("content-length", str(len(answer.body)))) + body
        case "chunked":
            yield _head(answer, ("transfer-encoding", "chunked"))
            for start in range(0, len(body), 1000):
                piece = body[start : start + 1000]
                yield b"%x\r\n%s\r\n" % (len(piece), piece)
            yield b"0\r\nx-trailer: ignored\r\n\r\n"
        case "until-close":
            yield _head(answer) + body
        case "drip":
            yield _head(answer, ("content-length", str(len(body))))
            for byte in body:
                await asyncio.sleep(answer.drip_seconds)
                yield bytes((byte,))
        case "hang" | "reset" | "close":
            pass
        case "close-after-headers":
            yield _head(answer, ("content-length", str(len(body) + 1)))
        case "huge":
            yield _head(answer, ("content-length", str(answer.size)))
            for start in range(0, answer.size, len(_CHUNK)):
                yield _CHUNK[: answer.size - start]
        case "gzip-bomb":
            bomb = _bomb(answer.size)
            yield _head(answer, ("content-encoding", "gzip"), ("content-length", str(len(bomb)))) + bomb
        case "garbage":
            yield b"\x00\x01 this is not HTTP \xff\r\n\r\n"
        case "continue-spam":
            for _ in range(1000):
                yield b"HTTP/1.1 100 Continue\r\n\r\n"
            yield _head(answer, ("content-length", str(len(body)))) + body
        case "endless-headers":
            yield b"HTTP/1.1 200 OK\r\n"
            for number in range(1_000_000):
                yield b"x-%d: %s\r\n" % (number, b"y" * 1000)


def _head(answer: Answer, *framing: tuple[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = "".join(f"{name}: {value}\r\n" for name, value in (*answer.headers, *framing))
    return f"HTTP/1.1 {answer.status} {phrase}\r\n{lines}\r\n".encode("latin-1")


def _bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    packed = [packer.compress(zeros) for _ in range(size >> 20)]
    return b"".join([*packed, packer.compress(zeros[: size % (1 << 20)]), packer.flush()])


async def _main(host: str, port: int) -> None:
    async with TargetServer(host=host, port=port) as target:
        sys.stdout.write(f"{target.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m mainspring.testing.target",
        description="A local HTTP server to be called: says where, answers by path.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    arguments = parser.parse_args()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_main(arguments.host, arguments.port))
    except OSError as error:
        from mainspring.api.listener import cannot_listen

        parser.error(cannot_listen(arguments.host, arguments.port, error).detail)
    except OverflowError:
        parser.error(f"Expected a port from 0 to 65535, got {arguments.port}")
