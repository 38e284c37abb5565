"""Refusals that the listener writes itself, as the application would."""

from __future__ import annotations

from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from mainspring.api.heads import Objection
from mainspring.api.request_id import request_id_of
from mainspring.api.routes import NO_CONTENT_POLICY, Headers, secure_headers
from mainspring.wire.problems import PROBLEM_TYPE, RETRY_AFTER_SECONDS, Problem, problem


async def refuse_request(refused: Objection, scope: Any, receive: object, send: Any) -> None:
    """The application of a request with a wrong head."""
    told = problem(refused.code, refused.detail, request_id=request_id_of(dict(scope["headers"])))
    body = msgspec.json.encode(told)
    await send({"type": "http.response.start", "status": told.status, "headers": _problem_headers(told, body)})
    await send({"type": "http.response.body", "body": body})


def refusal(code: str, detail: str, request_id: str) -> bytes:
    told = problem(code, detail, request_id=request_id, retryable=code in ("unavailable", "request_timeout"))
    body = msgspec.json.encode(told)
    lines = b"".join(b"%b: %b\r\n" % header for header in _problem_headers(told, body))
    return STATUS_LINE[told.status] + lines + b"connection: close\r\n\r\n" + body


def _problem_headers(told: Problem, body: bytes) -> Headers:
    headers = [
        *secure_headers(PROBLEM_TYPE, NO_CONTENT_POLICY),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", told.request_id.encode("ascii")),
    ]
    if told.status in RETRY_AFTER_SECONDS:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS[told.status]))
    return headers
