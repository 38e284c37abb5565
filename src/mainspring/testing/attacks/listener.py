"""Attacks by peers that have no token and never take an answer. Each returns how much the server took of it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

HOST: Final = "127.0.0.1"
_SMALL_BUFFER: Final = 4096
_PAUSE_SECONDS: Final = 0.01


class Attack(Protocol):
    def __call__(self, port: int, *, seconds: float, connections: int = ...) -> Coroutine[Any, Any, int]: ...


async def endless_trailers(port: int, *, seconds: float, connections: int = 4) -> int:
    """A chunked request whose trailer never ends; the bytes that were taken."""
    head = b"POST /v1/timers/list HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    return await _crowd(lambda until: _pour(port, head, b"a:\r\n" * 16_384, until), connections, seconds)


async def unread_pipelines(port: int, *, seconds: float, connections: int = 40) -> int:
    """One request after another, whose answers nobody reads; the bytes that were taken."""
    asks = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1_000
    return await _crowd(lambda until: _pour(port, b"", asks, until), connections, seconds)


async def idle_crowd(port: int, *, seconds: float, connections: int = 2_300) -> int:
    """Connections that say nothing, opened again as soon as they are closed; how many were opened."""
    return await _crowd(lambda until: _idle(port, until), connections, seconds)


LISTENER_ATTACKS: Final[dict[str, Attack]] = {
    "endless trailers": endless_trailers,
    "unread pipelines": unread_pipelines,
    "idle crowd": idle_crowd,
}


async def _crowd(member: Callable[[float], Awaitable[int]], connections: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    return sum(await asyncio.gather(*(member(until) for _ in range(connections))))


async def _pour(port: int, head: bytes, more: bytes, until: float) -> int:
    """Send without end and read nothing; connect again when thrown out."""
    loop = asyncio.get_running_loop()
    taken = 0
    while time.monotonic() < until:
        with _peer() as peer, suppress(OSError, TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await loop.sock_connect(peer, (HOST, port))
                await loop.sock_sendall(peer, head)
                while True:
                    await loop.sock_sendall(peer, more)
                    taken += len(more)
        await asyncio.sleep(_PAUSE_SECONDS)
    return taken


async def _idle(port: int, until: float) -> int:
    loop = asyncio.get_running_loop()
    opened = 0
    while time.monotonic() < until:
        with _peer() as peer, suppress(OSError, TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await loop.sock_connect(peer, (HOST, port))
                opened += 1
                await loop.sock_recv(peer, 1)
        await asyncio.sleep(_PAUSE_SECONDS)
    return opened


def _peer() -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
    peer.setblocking(False)
    return peer
