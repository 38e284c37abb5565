"""Requests straight through ASGI, with every byte of the answer and every message that made it."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.idempotency.http.held_answer import AsgiApp

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Headers
    body: bytes
    messages: int

    def header(self, name: bytes) -> bytes | None:
        return next((value for found, value in self.headers if found.lower() == name), None)

    @property
    def was_replayed(self) -> bool:
        return self.header(b"idempotent-replayed") == b"true"

    @property
    def code(self) -> str:
        assert self.header(b"content-type") == b"application/problem+json"
        problem = msgspec.json.decode(self.body)
        assert list(problem) == ["type", "title", "status", "detail", "code", "errors", "retryable", "requestId"]
        assert problem["status"] == self.status
        return str(problem["code"])


class Client:
    """Calls an application. `gone` makes the client look as if it had hung up after its request."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(
        self,
        path: str = "/orders",
        body: bytes = b"{}",
        *,
        key: str | bytes | None = None,
        method: str = "POST",
        query: bytes = b"",
        headers: dict[str, str] | None = None,
        chunks: int = 1,
        gone: bool = False,
    ) -> Answer:
        sent = [(b"host", b"test"), (b"content-type", b"application/json")]
        sent += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        if key is not None:
            sent.append((b"idempotency-key", key if isinstance(key, bytes) else key.encode()))
        size = max(1, -(-len(body) // chunks))
        parts = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
        out: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            if not gone:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            out.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query,
            "headers": sent,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "extensions": {"http.response.pathsend": {}},
        }
        async with asyncio.timeout(10):
            await self._app(scope, receive, send)
        if not out:
            return Answer(0, [], b"", 0)
        start, *bodies = out
        assert start["type"] == "http.response.start"
        return Answer(start["status"], list(start["headers"]), b"".join(m.get("body", b"") for m in bodies), len(out))
