"""Errors as RFC 9457 problems, and the only table from error code to HTTP status.

A problem says what was expected, whether trying again can help, and the id under which the request is in the logs.
It never shows what only an operator may see: an unforeseen error becomes the bare `internal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from mainspring.errors import FieldError, MainspringError

STATUSES: Final[Mapping[str, tuple[int, str]]] = {
    "invalid_input": (400, "The request is not valid"),
    "unauthenticated": (401, "A valid token or signature is required"),
    "forbidden": (403, "This is not allowed"),
    "not_found": (404, "It does not exist"),
    "method_not_allowed": (405, "The path does not support this method"),
    "request_timeout": (408, "The request did not arrive in time"),
    "conflict": (409, "It is not in the expected state"),
    "in_progress": (409, "The same request is in progress"),
    "lock_taken": (409, "Somebody else holds the lock"),
    "lock_lost": (409, "The lock is no longer held"),
    "lost_claim": (409, "The same request was taken over in the meantime"),
    "unknown_outcome": (409, "It is unknown whether the request was carried out"),
    "too_large": (413, "The request body is too large"),
    "unsupported_media_type": (415, "The body must be JSON"),
    "misdirected": (421, "The request is for another server"),
    "key_reuse": (422, "The idempotency key was used for another request"),
    "req_id_reuse": (422, "The reqId was used for another request"),
    "unsupported": (422, "This cannot be done here"),
    "rate_limited": (429, "Too many requests"),
    "headers_too_large": (431, "The request headers are too large"),
    "not_recorded": (500, "Done, but not recorded for its idempotency key"),
    "internal": (500, "Something went wrong on our side"),
    "network": (502, "Another server could not be reached"),
    "unavailable": (503, "The service cannot do this now"),
    "store_unavailable": (503, "The store cannot be used now"),
}
PROBLEM_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = {429: 1, 503: 1}


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What went wrong (RFC 9457). Read `code`; the texts are for people."""

    type: Annotated[str, Meta(description="A stable URN that follows from the code.")]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    code: Annotated[str, Meta(description="A stable code for programs.")]
    errors: Annotated[tuple[FieldError, ...], Meta(description="Every wrong field, by JSON pointer.")]
    retryable: Annotated[bool, Meta(description="Whether the same request can succeed later.")]
    request_id: str


def type_of(code: str) -> str:
    return "urn:mainspring:problem:" + code.replace("_", "-")


def problem(
    code: str, detail: str, *, request_id: str, errors: tuple[FieldError, ...] = (), retryable: bool = False
) -> Problem:
    status, title = STATUSES[code]
    return Problem(
        type=type_of(code),
        title=title,
        status=status,
        detail=detail,
        code=code,
        errors=errors,
        retryable=retryable,
        request_id=request_id,
    )


def status_of(error: MainspringError) -> tuple[int, str]:
    """The status and title of an error, or of its base class; 500 for one that callers should never meet."""
    codes = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return STATUSES[next((code for code in codes if code in STATUSES), "internal")]


def problem_of(error: MainspringError, *, request_id: str) -> Problem | None:
    """The problem that tells of an error; None for an error that callers should never meet."""
    if error.code not in STATUSES:
        return None
    return problem(error.code, error.detail, request_id=request_id, errors=error.errors, retryable=error.retryable)


def internal(*, request_id: str) -> Problem:
    return problem("internal", "The details are in the server's log, under the request id.", request_id=request_id)
