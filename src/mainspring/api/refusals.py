"""Refusals that the listener writes itself, as the application would."""

from __future__ import annotations

import msgspec

from mainspring.api.exchange import CLOSE, Exchange, Head, status_line
from mainspring.api.head_checks import Objection
from mainspring.api.request_id import id_headers, request_id_of
from mainspring.api.routes import NO_CONTENT_POLICY, Headers, secure_headers
from mainspring.wire.problems import PROBLEM_TYPE, RETRY_AFTER_SECONDS, Problem, problem


class RefusalApp:
    """The application of a request with a wrong head."""

    def __init__(self, refused: Objection) -> None:
        self._refused = refused

    async def answer(self, exchange: Exchange) -> None:
        request_id = request_id_of(exchange.fields)
        told = _problem(*self._refused, request_id)
        await exchange.answer(Head(told.status, _problem_headers(told)), request_id, msgspec.json.encode(told))


def refusal(code: str, detail: str, headers: dict[bytes, bytes]) -> bytes:
    """All bytes of an answer that is the last on its connection, to a request with these headers."""
    request_id = request_id_of(headers)
    told = _problem(code, detail, request_id)
    body = msgspec.json.encode(told)
    own = [(b"content-length", b"%d" % len(body)), *id_headers(headers, request_id)]
    lines = b"".join(b"%b: %b\r\n" % header for header in (*_problem_headers(told), *own))
    return b"%b%b%b\r\n%b" % (status_line(told.status), lines, CLOSE, body)


def _problem(code: str, detail: str, request_id: str) -> Problem:
    return problem(code, detail, request_id=request_id, retryable=code in ("unavailable", "request_timeout"))


def _problem_headers(told: Problem) -> Headers:
    return [*secure_headers(PROBLEM_TYPE, NO_CONTENT_POLICY), *retry_after(told.status)]


def retry_after(status: int) -> Headers:
    """The header that says when to try again, for the statuses that have one."""
    seconds = RETRY_AFTER_SECONDS.get(status)
    return [] if seconds is None else [(b"retry-after", b"%d" % seconds)]
