"""One run of an ASGI application whose answer is held back until it is recorded.

The application runs in a task of its own, which never outlives the request: `run` returns when the answer is complete,
and `finish` waits for what comes after it. It notices neither that its answer waits nor that its client may have gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from mainspring.idempotency.errors import UnknownOutcome
from mainspring.idempotency.http.answers import Answer, Headers, kept_headers, pack

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_EVENTS: Final = b"text/event-stream"


class Exchange:
    """The body that was read goes in; the answer comes out whole, or straight to the client if it cannot be kept."""

    def __init__(
        self,
        app: AsgiApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        body: bytes,
        max_bytes: int,
        keep_cookies: bool,
    ) -> None:
        self._app = app
        self._scope = {**scope, "extensions": _plain(scope.get("extensions"))}
        self._body: bytes | None = body
        self._receive_more = receive
        self.send = send
        self._max_bytes = max_bytes
        self._keep_cookies = keep_cookies
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._is_direct = False
        self.is_complete = False
        self._moved = asyncio.Event()  # the answer is complete, or goes straight to the client
        self._ended = asyncio.Event()  # the answer is complete, or there will be none
        self._work: asyncio.Task[None] | None = None
        self.failure: Exception | None = None
        """What the application raised: passed outwards as if we were not there."""

    async def run(self) -> bytes:
        """The answer, as soon as it is complete. What the application does after it goes on until `finish`."""
        self._work = asyncio.create_task(self._call())
        self._work.add_done_callback(lambda _: self._ended.set())
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if not self.is_complete:
            raise self._incomplete(self._work)
        assert self._start is not None
        headers = kept_headers(self._start["headers"], with_cookies=self._keep_cookies)
        body = b"" if self._is_direct else b"".join(self._parts)
        return pack(Answer(self._start["status"], headers, body, is_whole=not self._is_direct))

    async def finish(self) -> None:
        """Wait for what runs after the answer, such as background tasks. Its errors are not ours."""
        if self._work is None:
            return
        try:
            await asyncio.wait((self._work,))
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if self.is_complete and not self._work.cancelled():
            self._work.result()

    async def cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))

    async def _call(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    def _incomplete(self, work: asyncio.Task[None]) -> Exception:
        if work.cancelled():
            return UnknownOutcome("The work was interrupted: it may have been done.")
        error = work.exception()
        if not isinstance(error, Exception):
            error = RuntimeError("Expected a complete answer from the application, got none")
        self.failure = error
        if self._start is None:
            return error
        unknown = UnknownOutcome("The work failed after it had begun to answer: it may have been done.")
        unknown.__cause__ = error
        return unknown

    async def deliver(self) -> None:
        """Send to the first caller what was held back, all of it."""
        if not self._is_direct and self._start is not None:
            await self.send(self._start)
            await self.send({"type": "http.response.body", "body": b"".join(self._parts)})

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # If the client goes away, the work goes on. Only an answer that goes straight to the client needs one.
        await self._moved.wait()
        return {"type": "http.disconnect"} if self.is_complete else await self._receive_more()

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = {**message, "headers": [_bytes(*header) for header in message.get("headers", ())]}
            if _is_events(self._start["headers"]):
                await self._go_direct()
            return
        if message["type"] != "http.response.body" or self._start is None:
            raise RuntimeError(f"Expected the start or the body of an answer, got {message['type']}")
        part = message.get("body", b"")
        self._size += len(part)
        if not self._is_direct and self._size > self._max_bytes:
            await self._go_direct()
        if self._is_direct:
            await self.send(message)
        else:
            self._parts.append(bytes(part))
        if not message.get("more_body", False):
            self.is_complete = True
            self._moved.set()
            self._ended.set()

    async def _go_direct(self) -> None:
        assert self._start is not None
        self._is_direct = True
        await self.send(self._start)
        for part in self._parts:
            await self.send({"type": "http.response.body", "body": part, "more_body": True})
        self._parts.clear()
        self._moved.set()


def _plain(extensions: Mapping[str, object] | None) -> dict[str, object]:
    """The scope without extensions for answers that cannot be held back, such as a file sent by the server itself."""
    return {name: value for name, value in (extensions or {}).items() if not name.startswith("http.response.")}


def _is_events(headers: Headers) -> bool:
    return any(name.lower() == b"content-type" and value.lower().startswith(_EVENTS) for name, value in headers)


def _bytes(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header, refused when the application gives it: what cannot be sent cannot be kept either."""
    if not isinstance(name, bytes) or not isinstance(value, bytes):
        raise TypeError(f"Expected a header of bytes, as ASGI says, got others in {name!r}")
    return name, value
