"""Stands between the store and DynamoDB: counts requests, gives answers of its own, and can be gone for a while.

DynamoDB Local never says that a transaction was in another one's way; the real service does. Here it can be said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import ClientSession, web

from tests.servers.process import free_port

Answer = tuple[int, dict[str, Any]]


class Proxy:
    """`answer(operation, request)` may return a status and a body, or None to pass the request on."""

    def __init__(self, behind: str) -> None:
        self._behind = behind
        self._port = free_port()
        self._runner: web.AppRunner | None = None
        self.counts: Counter[str] = Counter()
        self.answer: Callable[[str, dict[str, Any]], Answer | None] = lambda operation, request: None
        self.lose_answers = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=20_000_000)
        app.router.add_post("/", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        body = await request.read()
        self.counts[operation] += 1
        answer = self.answer(operation, json.loads(body))
        if answer is not None:
            return web.json_response(answer[1], status=answer[0], content_type="application/x-amz-json-1.0")
        kept = ("X-Amz-Target", "X-Amz-Date", "Authorization", "Content-Type")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        async with ClientSession() as session, session.post(self._behind, data=body, headers=headers) as response:
            content = await response.read()
        if self.lose_answers and request.transport is not None:
            request.transport.close()
        return web.Response(body=content, status=response.status, content_type="application/x-amz-json-1.0")


def cancelled(*codes: str) -> Answer:
    """The answer to a transaction that was refused, with one code for each of its actions."""
    return 400, {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": f"Transaction cancelled, specific reasons [{', '.join(codes)}]",
        "CancellationReasons": [{"Code": code} for code in codes],
    }


def error(code: str, message: str = "") -> Answer:
    return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
