"""A line in the log for each request that is answered, if a setting asks for it. If none does, none of this runs."""

from __future__ import annotations

import asyncio
from typing import Final

from mainspring import telemetry
from mainspring.api.asgi import Message, Receive, Scope, Send
from mainspring.api.exchange import Application, Exchange, Head
from mainspring.api.request_id import REQUEST_ID, correlation_id_of

PATH_LIMIT: Final = 200
"""How much of a path is repeated. What comes after a question mark is not."""


class AccessLog:
    """An application, and a line for each of its answers."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def answer(self, exchange: Exchange) -> None:
        noted = _Noted(exchange)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._app.answer(noted)
        finally:
            noted.write(duration_ms=round((clock() - began) * 1000, 1))


def write_refusal(code: str, *, client: tuple[str, int] | None) -> None:
    """The line of what never became a request: the listener has refused it, or the connection."""
    telemetry.access("a request was refused", code=code, client=_address(client))


class _Noted(Exchange):
    """An exchange, and what became of it."""

    __slots__ = ("_bytes", "_exchange", "_request_id", "_status")

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange.method, exchange.path, exchange.headers, exchange.fields)
        self._exchange = exchange
        self._status: int | None = None
        self._bytes = 0
        self._request_id = ""

    def write(self, *, duration_ms: float) -> None:
        path = self.path[:PATH_LIMIT]
        correlation_id = correlation_id_of(self.fields).decode("ascii")
        telemetry.access(
            f"{self.method} {path} {self._status or 'got no answer'}",
            method=self.method,
            path=path,
            status=self._status,
            bytes=self._bytes,
            duration_ms=duration_ms,
            client=_address(self.client),
            request_id=self._request_id,
            **({"correlation_id": correlation_id} if correlation_id else {}),
        )

    @property
    def client(self) -> tuple[str, int] | None:
        return self._exchange.client

    @property
    def reader(self) -> asyncio.Transport | None:
        return self._exchange.reader

    def recognise(self) -> bool:
        return self._exchange.recognise()

    async def body(self, limit: int) -> bytes | None:
        return await self._exchange.body(limit)

    async def answer(self, head: Head, request_id: str, body: bytes) -> None:
        self._status, self._request_id, self._bytes = head.status, request_id, len(body)
        await self._exchange.answer(head, request_id, body)

    def asgi(self) -> tuple[Scope, Receive, Send]:
        scope, receive, send = self._exchange.asgi()

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
                self._request_id = dict(message.get("headers", ())).get(REQUEST_ID, b"").decode("ascii", "replace")
            else:
                self._bytes += len(message.get("body", b""))
            await send(message)

        return scope, receive, send_noted


def _address(client: tuple[str, int] | None) -> str:
    return "" if client is None else client[0]
