"""HTTP in front of the reports, as a plain ASGI application: any ASGI server runs it, no framework is needed.

    POST /jobs/trigger/daily-report    called by Mainspring: bearer token, signature, then once for each run
    GET  /reports                      what has been written, for whoever has the token

The token says that the caller may come in, the signature that what it brings is from Mainspring and was not changed.
`Receiver` checks the second and remembers what was done: a repeat gets the recorded answer, and no second report.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from datetime import datetime
from typing import Any

from mainspring.idempotency import IdempotencyStore, NotDone, Resolved, Unresolved
from mainspring.idempotency.http.receiver import MAX_BODY_BYTES, Delivery, Receiver

from .reports import Report, Reports

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON: Headers = [(b"content-type", b"application/json")]


class Application:
    def __init__(self, reports: Reports, store: IdempotencyStore, *, token: str, secrets: Sequence[str]) -> None:
        self._reports = reports
        self._expected = f"Bearer {token}".encode()
        receiver = Receiver(secrets=secrets, store=store, scope="daily-report", resolve=self._resolve)
        self._receive = receiver.waiting(self._report)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin1"): value for name, value in scope["headers"]}
        place = (scope["method"], scope["path"])
        if not hmac.compare_digest(headers.get("authorization", b""), self._expected):
            await answer(send, 401, {"error": "no valid token"}, [(b"www-authenticate", b"Bearer")])
        elif place == ("POST", "/jobs/trigger/daily-report"):
            body = await read(receive)
            received = await self._receive({name: value.decode("latin1") for name, value in headers.items()}, body)
            await answer(send, received.answer.status, received.answer.body, received.answer.headers)
        elif place == ("GET", "/reports"):
            found = await asyncio.to_thread(self._reports.all)
            await answer(send, 200, [report._asdict() for report in found], JSON)
        else:
            await answer(send, 404, {"error": "nothing here"}, JSON)

    async def _report(self, delivery: Delivery) -> dict[str, str]:
        """The work of one run. The receiver sees to it that it does not run twice."""
        at = datetime.fromisoformat(delivery.data["scheduledAt"])
        report = await asyncio.to_thread(self._reports.write, delivery.data["launchId"], at)
        print(f"wrote the report of {report.day} for {report.run}", flush=True)
        return told(report)

    async def _resolve(self, delivery: Delivery, unresolved: Unresolved) -> Resolved[dict[str, str]] | NotDone:
        """The process died at work. The report is all there is to it: either it is there, or nothing was done."""
        report = await asyncio.to_thread(self._reports.find, delivery.data["launchId"])
        return NotDone() if report is None else Resolved(told(report))


def told(report: Report) -> dict[str, str]:
    return {"report": report.day, "run": report.run}


async def read(receive: Receive) -> bytes:
    """The body, or enough of it to be refused as too large."""
    body = b""
    more = True
    while more and len(body) <= MAX_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def answer(send: Send, status: int, document: object, headers: Headers) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
