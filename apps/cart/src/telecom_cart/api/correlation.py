"""X-Correlation-Id: the caller's, or one of ours; in every answer, in problems, and in every log line of the request.

Work that goes on after the request, such as a checkout, keeps it. What timers do has none: those lines name the user.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from contextvars import ContextVar
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "X-Correlation-Id"
_CORRELATION_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_current: ContextVar[str] = ContextVar("correlation_id", default="")

logger = logging.getLogger("telecom_cart.access")


def correlation_id() -> str:
    return _current.get()


class CorrelationFilter(logging.Filter):
    """Gives log records a `correlation_id`."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.correlation_id = correlation_id() or "-"
        return True


class Correlation:
    """Stands around everything else, and writes a line for each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = _checked(scope) or secrets.token_hex(8)
        status = 0

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[HEADER] = own
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        token = _current.set(own)
        started = time.monotonic()
        try:
            await self._app(scope, receive, marked)
        finally:
            spent = (time.monotonic() - started) * 1000
            # The path as it was sent, which is ASCII: what it stands for may end a line.
            path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")
            logger.info("%s %s %s %.1f ms", scope["method"], path, status or "-", spent)
            _current.reset(token)


def _checked(scope: Scope) -> str:
    """The caller's, if it can be said again."""
    given = [value for name, value in scope["headers"] if name == HEADER.lower().encode()]
    is_usable = len(given) == 1 and _CORRELATION_ID.fullmatch(given[0])
    return given[0].decode() if is_usable else ""
