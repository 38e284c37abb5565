"""HTTP at the listener of a real server: heads, bodies, trailers, pipelines, and what only looks like them."""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mainspring.testing.attacks.attack import HOST, Victim
from mainspring.testing.attacks.witness import health, is_answered, resident_bytes
from mainspring.testing.ending import remove_when_ended
from mainspring.testing.fuzzing.campaign import LONGEST_SECONDS, Broken
from mainspring.testing.fuzzing.grammar import HTTP_TOKENS, framed, headers
from mainspring.testing.fuzzing.mutations import mutated
from mainspring.testing.torture.process import TOKEN, ServerProcess

_METHODS: Final = (b"GET", b"POST", b"HEAD", b"OPTIONS", b"PRI", b"get", b"CONNECT", b"TRACE", b"G\xc3\x8bT")
_VERSIONS: Final = (b" HTTP/1.0", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/1.10", b"", b" http/1.1", b"  HTTP/1.1")
_ASKED: Final = {
    b"GET": (b"/health", b"/metrics", b"/openapi.json", b"/"),
    b"POST": (
        b"/v1/timers/list",
        b"/v1/timers/get",
        b"/v1/jobs/list",
        b"/v1/fetches/list",
        b"/v1/namespaces/list",
        b"/v1/timers/create",
    ),
}
_PATHS: Final = (
    *_ASKED[b"GET"],
    *_ASKED[b"POST"],
    b"*",
    b"http://localhost/health",
    b"/v1/timers/list?x=%00",
    b"/../etc/passwd",
    b"/\xff",
    b"/" + b"a" * 20_000,
)
_BODIES: Final = (
    b"{}",
    b'{"timerId":"t"}',
    b'{"limit":1}',
    b'{"timerId":"t","delaySeconds":1,"callbackUrl":"none at all"}',  # never valid: nothing is ever called
    b"",
    b"[" * 300,
    b"x" * 3_000,
    b'{"a":"' + b"y" * 1_100_000 + b'"}',
)
_HEADERS: Final = (
    (b"Authorization", b"Bearer " + TOKEN.encode()),
    (b"Authorization", b"Bearer wrong"),
    (b"Content-Type", b"application/json"),
    (b"Content-Type", b"text/plain"),
    (b"Connection", b"close"),
    (b"Connection", b"keep-alive, upgrade"),
    (b"Upgrade", b"websocket"),
    (b"Expect", b"100-continue"),
    (b"Idempotency-Key", b"a key"),
    (b"Content-Encoding", b"gzip"),
    (b"X-Request-Id", b"\xff\xfe"),
    (b"Host", b"rebound.example"),
    (b"Trailer", b"authorization"),
)
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_WRONG_LINES: Final = re.compile(r'Traceback|unforeseen|"level": ?"(?:error|critical)"|\bERROR\b|\bCRITICAL\b')
_SILENCE_SECONDS: Final = 0.03


class ListenerTarget:
    """Soon answers with less than 500 or closes, and has nothing to say in its log."""

    name = "listener"
    at_once = 32

    def draw(self, dice: random.Random) -> bytes:
        data = b"".join(_request(dice) for _ in range(dice.choice((1, 1, 1, 2, 5, 40))))
        if dice.random() < 0.4:
            data = mutated(dice, data, HTTP_TOKENS)
        return data

    async def run(self, case: bytes) -> float:
        """Send it all, wait until there is nothing more to hear, and hang up: the other side must do so, too."""
        began = time.monotonic()
        heard = bytearray()
        silent = 0.0
        try:
            async with asyncio.timeout(4 * LONGEST_SECONDS + 10):
                reader, writer = await asyncio.open_connection(HOST, self._server.port)
                try:
                    with suppress(OSError):
                        writer.write(case)
                        silent = await _listen(reader, heard)
                        writer.write_eof()
                        heard += await reader.read()
                finally:
                    writer.close()
        except TimeoutError:
            raise Broken("the connection did not end although there was nothing more to read") from None
        for status in _STATUS.findall(bytes(heard)):
            if status >= b"500" and status not in (b"501", b"505"):
                raise Broken(f"answered with {status.decode()}: {bytes(heard[-500:])!r}")
        return time.monotonic() - began - silent

    async def check(self) -> None:
        if self._server.exit_code is not None:
            raise Broken(f"the server ended with {self._server.exit_code}: {self._server.tail()}")
        with self._server.log.open("rb") as log:
            log.seek(self._read)
            told = log.read()
        self._read += len(told)
        if _WRONG_LINES.search(told.decode(errors="replace")):
            raise Broken(f"the log says: {told.decode(errors='replace')[-2000:]}")
        if not await is_answered(self._victim, health(self._victim)):
            raise Broken("the server no longer answers /health")

    def resident_bytes(self) -> int:
        return resident_bytes(self._server.pid)

    async def __aenter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="mainspring-fuzzing-")
        remove_when_ended(Path(self._directory.name))
        self._server = ServerProcess(Path(self._directory.name), store="memory://", allow_loopback="false")
        if not await self._server.ready():
            raise RuntimeError(f"Expected a server, got exit code {self._server.exit_code}: {self._server.tail()}")
        self._victim = Victim(self._server.port, TOKEN)
        self._read = self._server.log.stat().st_size
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.kill()
        self._directory.cleanup()


def _request(dice: random.Random) -> bytes:
    body = dice.choice(_BODIES[:-1]) if dice.random() < 0.97 else _BODIES[-1]
    framing, framed_body = framed(dice, body)
    method = dice.choice((b"GET", b"POST", b"POST") if dice.random() < 0.95 else _METHODS)
    path = dice.choice(_ASKED.get(method, _PATHS) if dice.random() < 0.95 else _PATHS)
    version = b" HTTP/1.1" if dice.random() < 0.96 else dice.choice(_VERSIONS)
    known = [(b"Host", b"localhost"), _HEADERS[0], *framing]
    if dice.random() < 0.3:
        known += dice.sample(_HEADERS, dice.randint(1, 3))
    if method == b"GET" and dice.random() < 0.8:
        known, framed_body = known[:2], b""
    return method + b" " + path + version + b"\r\n" + headers(dice, known) + b"\r\n" + framed_body


async def _listen(reader: asyncio.StreamReader, heard: bytearray) -> float:
    """Read until nothing has come for a while, or ever will; returns how long it waited for nothing."""
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                data = await reader.read(65_536)
        except TimeoutError:
            return time.monotonic() - began
        if not data:
            return 0.0
        heard += data
