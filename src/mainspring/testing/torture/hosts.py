"""Hundreds of destinations: each a loopback address of its own, so that each is a host with a lane of its own.

The receivers of the simulation decide how they behave; here they get sockets. Nobody listens at one that refuses until
all is healed.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, cast

import httptools

from mainspring.clock import wall_ms
from mainspring.delivery.call import Call
from mainspring.testing.oracle.journal import AnyEvent
from mainspring.testing.simulation.desks import Answer
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.plan import Destination
from mainspring.testing.simulation.receivers import Receivers

PORT_TRIES: Final = 20
_Write = Callable[[AnyEvent], None]


def now_us() -> int:
    """The clock of a run of real processes."""
    return time.monotonic_ns() // 1000


def address_of(number: int) -> str:
    return f"127.9.{number // 250}.{number % 250 + 1}"


class Hosts:
    def __init__(self, destinations: tuple[Destination, ...], port: int, draws: Draws, write: _Write) -> None:
        self.port = port
        self.by_name = {self.name(number): known for number, known in enumerate(destinations)}
        self.receivers = Receivers(self.by_name, draws, write)
        self._servers: list[asyncio.Server] = []

    def name(self, number: int) -> str:
        return f"{address_of(number)}:{self.port}"

    async def listen(self, *, refusing: bool) -> None:
        """At those that refuse, or at all others."""
        loop = asyncio.get_running_loop()
        for number, known in enumerate(self.by_name.values()):
            if (known.kind == "refusing") == refusing:
                make = _maker(self, self.name(number))
                self._servers.append(await loop.create_server(make, address_of(number), self.port, backlog=128))

    async def heal(self) -> None:
        self.receivers.healed = True
        await self.listen(refusing=True)

    def close(self) -> None:
        for server in self._servers:
            server.close()


def _maker(hosts: Hosts, name: str) -> Callable[[], _Connection]:
    return lambda: _Connection(hosts, name)


class _Connection(asyncio.Protocol):
    def __init__(self, hosts: Hosts, name: str) -> None:
        self._hosts = hosts
        self._name = name
        self._parser = httptools.HttpRequestParser(self)
        self._path = ""
        self._headers: list[tuple[str, str]] = []
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = "", [], b""

    def on_url(self, url: bytes) -> None:
        self._path += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode().lower(), value.decode()))

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        url = f"http://{self._name}{self._path}"
        call = Call(method="POST", url=url, headers=tuple(self._headers), body=self._body, timeout_ms=0)
        receivers = self._hosts.receivers
        answer = receivers.receive(call, self._name, node="", now_us=now_us(), wall_ms=wall_ms())
        if not answer.is_silent:
            asyncio.get_running_loop().call_later(answer.after_us / 1_000_000, self._answer, call, answer)

    def _answer(self, call: Call, answer: Answer) -> None:
        heard = not self._transport.is_closing()
        self._hosts.receivers.answered(call, answer, now_us=now_us(), heard=heard)
        if answer.status is None:
            self._transport.abort()
            return
        headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        phrase = HTTPStatus(answer.status).phrase
        self._transport.write(f"HTTP/1.1 {answer.status} {phrase}\r\n{headers}content-length: 2\r\n\r\n{{}}".encode())


@asynccontextmanager
async def destinations_at(destinations: tuple[Destination, ...], draws: Draws, write: _Write) -> AsyncIterator[Hosts]:
    """All of them at one port that is free at every address."""
    for left in reversed(range(PORT_TRIES)):
        hosts = Hosts(destinations, _free_port(), draws, write)
        try:
            await hosts.listen(refusing=False)
            break
        except OSError:
            hosts.close()
            if not left:
                raise
    try:
        yield hosts
    finally:
        hosts.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
