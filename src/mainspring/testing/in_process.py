"""What an application of this process answers, without a network."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from mainspring.api.asgi import AsgiApp
from mainspring.delivery.call import Call, Reply


async def reply_of(app: AsgiApp, call: Call) -> Reply:
    headers = [(name.encode(), value.encode()) for name, value in call.headers]
    scope = {
        "type": "http",
        "method": call.method,
        "path": urlsplit(call.url).path,
        "headers": [*headers, (b"content-length", b"%d" % len(call.body))],
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": call.body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    head, body = sent
    return Reply(
        status=head["status"],
        headers={name.decode(): value.decode() for name, value in head["headers"]},
        body=body["body"],
        truncated=False,
        problem="",
        detail="",
        sent=True,
        duration_ms=0,
    )
