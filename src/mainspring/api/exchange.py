"""A request and the way of its answer, whoever has received it: our own listener (`received`), or somebody else's
server (`asgi`)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from mainspring.api.routes import Headers

if TYPE_CHECKING:
    from mainspring.api.asgi import Receive, Scope, Send

_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
CLOSE: Final = b"connection: close\r\n"


class PeerGone(Exception):
    """There is nobody left to answer."""


def status_line(status: int) -> bytes:
    if not 200 <= status <= 599:
        raise RuntimeError(f"Expected the status of an answer, got {status}")
    return b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, b""))


class Head:
    """What all answers of a kind begin with. Names and values come from tables of ours, or were validated."""

    __slots__ = ("headers", "lines", "status")

    def __init__(self, status: int, headers: Headers) -> None:
        self.status = status
        self.headers = headers
        self.lines = status_line(status) + b"".join(b"%b: %b\r\n" % header for header in headers)


class Exchange(ABC):
    """What an application is asked, and how it answers."""

    __slots__ = ("fields", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: Headers, fields: dict[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        """Without its escapes."""
        self.headers = headers
        self.fields = fields
        """The headers by their names, which are in lower case."""

    @property
    @abstractmethod
    def client(self) -> tuple[str, int] | None:
        """Where the peer is, where that is known."""

    @property
    @abstractmethod
    def reader(self) -> asyncio.Transport | None:
        """The way to whoever takes the answer, where that is known."""

    @abstractmethod
    def recognise(self) -> bool:
        """The peer has shown a token: whether there is a place for it."""

    @abstractmethod
    async def body(self, limit: int) -> bytes | None:
        """The whole body; None if it is longer. Raises `PeerGone`."""

    @abstractmethod
    async def answer(self, head: Head, request_id: str, body: bytes) -> None:
        """Returns when the peer has taken what there is no room to keep for it."""

    @abstractmethod
    def asgi(self) -> tuple[Scope, Receive, Send]:
        """The same for an ASGI application, which then answers in place of whoever asks for this."""


class Application(Protocol):
    """Answers what a listener receives."""

    async def answer(self, exchange: Exchange, /) -> None: ...
