"""What receivers answer, at the real sender and at the decision that follows: bad heads, chunks, packing; no end."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Final, Self

from mainspring.delivery.call import DETAIL_LIMIT, Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.model import RetryPolicy
from mainspring.testing.attacks.witness import resident_bytes
from mainspring.testing.fuzzing.campaign import Broken
from mainspring.testing.fuzzing.grammar import HTTP_TOKENS, framed, headers, packed
from mainspring.testing.fuzzing.mutations import mutated
from mainspring.testing.timer_samples import timer
from mainspring.timers.decision import decide, read_wishes

ANSWER_BYTES: Final = 1_000_000
_TIMEOUT_MS: Final = 100
_ENDINGS: Final = b"CCCCCCHER"
"""Close, hang, go on without end, reset."""
_CALLS: Final = b"PPPPGH"
_METHOD: Final = {b"P": "POST", b"G": "GET", b"H": "HEAD"}
_STATUSES: Final = (b"200", b"200", b"200", b"204", b"304", b"410", b"429", b"503")
_ODD_STATUSES: Final = (b"100", b"101", b"999", b"2000", b"x", b"-1")
_LINE: Final = b"HTTP/1.1 %b OK\r\n"
_ODD_LINES: Final = (b"HTTP/1.0 %b OK\r\n", b"HTTP/1.1 %b\r\n", b"HTTP/2 %b\r\n", b"ICY %b\r\n", b"%b OK\n")
_BODIES: Final = (
    b"",
    b'{"ok":true}',
    b'{"ok":false}',
    b'{"nextExecuteAt":0}',
    b'{"nextExecuteAt":"9999-12-31T23:59:59Z","payload":{"a":[1,2]}}',
    b'{"nextExecuteAt":1e400}',
    b'{"nextExecuteAt":1,"payload":"\\ud800"}',
    b"[" * 5_000,
    b"\xff" * 100,
    b"x" * 70_000,
    b"x" * 1_100_000,
)
_HEADERS: Final = (
    (b"Content-Type", b"application/json"),
    (b"Retry-After", b"5"),
    (b"Retry-After", b"99999999999999999999"),
    (b"Retry-After", b"Fri, 31 Feb 2026 25:61:00 GMT"),
    (b"Retry-After", b"-1"),
    (b"Connection", b"close"),
    (b"Connection", b"keep-alive"),
    (b"Location", b"http://127.0.0.1/\xff"),
    (b"Set-Cookie", b"a=b"),
)


class AnswersTarget:
    """Every answer becomes a reply in time, and every reply an ending."""

    name = "answers"
    at_once = 64

    def draw(self, dice: random.Random) -> bytes:
        """Two bytes say how to call and how to end; the rest is the answer."""
        data = b"".join(_answer(dice) for _ in range(dice.choice((1, 1, 1, 1, 2, 20))))
        if dice.random() < 0.4:
            data = mutated(dice, data, HTTP_TOKENS)
        return bytes((dice.choice(_CALLS), dice.choice(_ENDINGS))) + data

    async def run(self, case: bytes) -> float:
        """How many seconds it took beyond the deadline of the call, if any, or else in all."""
        number = str(next(self._numbers))
        self._cases[number] = case
        began = time.monotonic()
        try:
            reply = await self._sender.send(
                Call(_METHOD[case[:1]], f"http://127.0.0.1:{self._port}/{number}", (), b"", _TIMEOUT_MS)
            )
        finally:
            del self._cases[number]
        seconds = time.monotonic() - began
        _judge(reply)
        return max(0.0, seconds - _TIMEOUT_MS / 1000)

    async def check(self) -> None:
        """Nothing shows afterwards."""

    def resident_bytes(self) -> int:
        return resident_bytes(os.getpid())

    async def __aenter__(self) -> Self:
        self._cases: dict[str, bytes] = {}
        self._numbers: Iterator[int] = count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        self._sender = Sender(guard=Guard(allow_loopback=True), answer_bytes=ANSWER_BYTES)
        await self._sender.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sender.__aexit__(kind, error, trace)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                while await self._serve_one(reader, writer):
                    pass
        except asyncio.CancelledError:
            task.uncancel()  # only the end of all cancels; the stream machinery need not report it
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        case = self._cases.get(head.split(b" ")[1].decode("latin-1").strip("/"), b"PR")
        writer.write(case[2:])
        await writer.drain()
        match case[1:2]:
            case b"R":
                return False
            case b"C":
                writer.write_eof()
                await reader.read()
                return False
        while case[1:2] == b"E":
            writer.write(case[-64:] * 100)
            await writer.drain()
        return True


def _answer(dice: random.Random) -> bytes:
    body = dice.choice(_BODIES[:-2]) if dice.random() < 0.95 else dice.choice(_BODIES)
    known = dice.sample(_HEADERS, dice.randint(0, 3))
    if dice.random() < 0.3:
        encoding, body = packed(dice, body)
        known.append((b"Content-Encoding", encoding))
    framing, data = framed(dice, body)
    known += framing
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * (dice.choice((1, 16, 17, 2_000)) if dice.random() < 0.05 else 0)
    line = _LINE if dice.random() < 0.95 else dice.choice(_ODD_LINES)
    status = dice.choice(_STATUSES if dice.random() < 0.95 else _ODD_STATUSES)
    return interim + line % status + headers(dice, known) + b"\r\n" + data


def _judge(reply: Reply) -> None:
    """Raises Broken for a reply that contradicts itself, and whatever the decision raises."""
    if (reply.status is None) != bool(reply.problem):
        raise Broken(f"a reply with status {reply.status} and problem {reply.problem!r}")
    if len(reply.body) > ANSWER_BYTES or len(reply.detail) > DETAIL_LIMIT:
        raise Broken(f"a reply with {len(reply.body)} bytes and {len(reply.detail)} characters of detail")
    if reply.problem and (not reply.detail.startswith("Expected ") or not reply.detail.isprintable()):
        raise Broken(f"a reply that does not say what was expected: {reply.detail!r}")
    wishes = read_wishes(reply, max_payload=100_000)
    decide(timer("t"), RetryPolicy(), reply, wishes, started_at=1_000, spread=0.5, delivery_id="msg_next")
