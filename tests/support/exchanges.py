"""Two ways to reach the application in tests: straight through ASGI, and raw bytes through a socket."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.api.asgi import AsgiApp
from tests.support.service_doubles import TOKEN


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        return str(self.json()["code"])


class Body:
    """A request body in chunks, which knows whether it was asked for."""

    def __init__(self, *chunks: bytes, cut: bool = False) -> None:
        self._chunks = list(chunks) or [b""]
        self._cut = cut
        self.was_read = False

    async def receive(self) -> MutableMapping[str, Any]:
        self.was_read = True
        if not self._chunks:
            return {"type": "http.disconnect"}
        chunk = self._chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks) or self._cut}


async def call(
    app: AsgiApp,
    path: str,
    body: bytes | Body = b"",
    *,
    method: str = "POST",
    token: str | None = TOKEN,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request; the content length is that of a body given as bytes."""
    sent = {"content-type": "application/json", **(headers or {})}
    if token is not None:
        sent.setdefault("authorization", f"Bearer {token}")
    if isinstance(body, bytes):
        sent.setdefault("content-length", str(len(body)))
        body = Body(body)
    out: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        out.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode("latin1")) for name, value in sent.items()],
    }
    await app(scope, body.receive, send)
    if not out:
        return Answer(0, {}, b"")
    start, end = out
    return Answer(start["status"], {n.decode(): v.decode() for n, v in start["headers"]}, end["body"])


async def exchange(port: int, *chunks: bytes, seconds: float = 5.0) -> bytes:
    """Send bytes to the server and read until it closes the connection."""
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0)
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave in a way that cannot be taken for a peer that only sends no more."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
