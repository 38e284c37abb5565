"""The HTTP edge on a loopback port, and what its tests send to it and read from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainspring.api.limits import Limits
from mainspring.api.listener import Listener
from tests.support.service_doubles import TOKEN

LIMITS = Limits(request_seconds=0.4, idle_seconds=0.8, connections=8)
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = HEALTH.replace(b"host: x\r\n", b"host: x\r\nconnection: close\r\n")
CLOSE = "connection: close\r\n"
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(body: bytes = b"{}", *, path: str = "/v1/timers/list", headers: str = "", close: bool = True) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {len(body)}\r\n{headers}"
    )
    if close:
        head += "connection: close\r\n"
    return head.encode() + b"\r\n" + body


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


async def connections_are(listener: Listener, number: int) -> None:
    for _ in range(500):
        if listener.connections == number:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"Expected {number} connections, got {listener.connections}")


def chunked(body: bytes, *, token: str = TOKEN) -> bytes:
    head = f"POST /v1/timers/list HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n"
    return head.encode() + b"transfer-encoding: chunked\r\n\r\n" + body


def asked(path: str, *, method: str = "GET", body: bytes = b"", head: str = "", version: str = "1.1") -> bytes:
    length = f"content-length: {len(body)}\r\n" if body else ""
    return f"{method} /{path} HTTP/{version}\r\nhost: localhost\r\n{length}{head}\r\n".encode() + body


@asynccontextmanager
async def peers(listener: Listener, number: int, says: bytes = b"") -> AsyncIterator[list[Peer]]:
    """Connections that are kept open; those that say something have had their answer."""
    held: list[Peer] = []
    try:
        for _ in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            held.append((reader, writer))
            if says:
                writer.write(says)
                await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)  # until all of them are accepted
        yield held
    finally:
        for _, writer in held:
            writer.close()
