"""Attacks by peers that have no token and never take an answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from mainspring.testing.attacks.attack import HOST, Attack, Victim, crowd

_SMALL_BUFFER: Final = 4096
_PAUSE_SECONDS: Final = 0.01


class Tally:
    """What a peer has achieved. It may be thrown out at any moment, so it counts as it goes."""

    total = 0


Behaviour = Callable[[socket.socket, Tally], Awaitable[None]]


async def _endless_trailers(victim: Victim, seconds: float, size: int) -> int:
    head = b"POST /v1/timers/list HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    return await peers(victim, seconds, size, _pouring(head, b"a:\r\n" * 16_384))


async def _one_byte_chunks(victim: Victim, seconds: float, size: int) -> int:
    head = b"POST /v1/timers/list HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    return await peers(victim, seconds, size, _pouring(head, b"1\r\na\r\n" * 10_000))


async def _unread_pipelines(victim: Victim, seconds: float, size: int) -> int:
    asks = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1_000
    return await peers(victim, seconds, size, _pouring(b"", asks))


async def _idle_crowd(victim: Victim, seconds: float, size: int) -> int:
    return await peers(victim, seconds, size, _idle)


LISTENER_ATTACKS: Final = (
    Attack(
        name="endless-trailers",
        what="A chunked request whose trailer never ends.",
        run=_endless_trailers,
        size=4,
        counts="bytes taken",
    ),
    Attack(
        name="one-byte-chunks",
        what="A chunked request that is refused, and whose body goes on, a byte a chunk.",
        run=_one_byte_chunks,
        size=20,
        counts="bytes taken",
    ),
    Attack(
        name="unread-pipelines",
        what="One request after another, whose answers nobody reads.",
        run=_unread_pipelines,
        size=100,
        counts="bytes taken",
    ),
    Attack(
        name="idle-crowd",
        what="Connections that say nothing, opened again as soon as they are closed.",
        run=_idle_crowd,
        size=2_300,
        counts="connections opened",
    ),
)


def _pouring(head: bytes, more: bytes) -> Behaviour:
    """Sends without end and reads nothing."""

    async def pour(peer: socket.socket, tally: Tally) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(peer, head)
        while True:
            await loop.sock_sendall(peer, more)
            tally.total += len(more)

    return pour


async def _idle(peer: socket.socket, tally: Tally) -> None:
    tally.total += 1
    await asyncio.get_running_loop().sock_recv(peer, 1)


async def peers(victim: Victim, seconds: float, size: int, behave: Behaviour) -> int:
    """Peers that connect again when they are thrown out."""

    async def keep_coming(until: float) -> int:
        tally = Tally()
        while time.monotonic() < until:
            with _socket() as peer, suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await asyncio.get_running_loop().sock_connect(peer, (HOST, victim.port))
                    await behave(peer, tally)
            await asyncio.sleep(_PAUSE_SECONDS)
        return tally.total

    return await crowd(keep_coming, size, seconds)


def _socket() -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
    peer.setblocking(False)
    return peer
