"""An HTTP answer as it is kept and given again, and refusals: RFC 9457 problems in the form of Mainspring's own API.

What belongs to one connection or one moment is not kept: hop-by-hop headers, `date`, and `set-cookie`, which may hold a
session that has ended since. All else comes back byte for byte.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mainspring.errors import Conflict, Forbidden, InvalidInput, MainspringError, TooLarge, Unauthenticated, Unavailable
from mainspring.idempotency.errors import InProgress, KeyReuse, UnknownOutcome

Headers = list[tuple[bytes, bytes]]

REPLAYED: Final = (b"idempotent-replayed", b"true")
PROBLEM_TYPE: Final = b"application/problem+json"
UNAVAILABLE_RETRY_SECONDS: Final = 1

NOT_KEPT: Final = frozenset(
    {
        b"connection",
        b"date",
        b"idempotent-replayed",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
COOKIE: Final = b"set-cookie"

# The first class that fits counts: special ones stand before what they are made from.
_STATUSES: Final[tuple[tuple[type[MainspringError], int, str], ...]] = (
    (KeyReuse, 422, "The idempotency key was used for another request"),
    (InvalidInput, 400, "The request is not valid"),
    (Unauthenticated, 401, "A valid signature is required"),
    (Forbidden, 403, "This is not allowed"),
    (UnknownOutcome, 409, "Nobody knows whether the work was done"),
    (InProgress, 409, "The same request is in progress"),
    (Conflict, 409, "The thing is not in the expected state"),
    (TooLarge, 413, "The request body is too large"),
    (Unavailable, 503, "The service cannot do this now"),
)


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Status, headers and body of an answer."""

    status: int
    headers: Headers
    body: bytes
    is_whole: bool = True
    """False: it was too large to be kept, and `body` is empty."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Answer).decode


def pack(answer: Answer) -> bytes:
    """The bytes that a store keeps."""
    return _encode(answer)


def unpack(kept: bytes) -> Answer:
    """Raises for an answer that cannot be read any more: the work was done, and does not run again."""
    try:
        return _decode(kept)
    except ValueError as error:
        raise UnknownOutcome(f"The work was done, but its recorded answer cannot be read: {error}") from error


def kept_headers(headers: Headers, *, with_cookies: bool = False) -> Headers:
    return [
        (bytes(name), bytes(value))
        for name, value in headers
        if name.lower() not in NOT_KEPT and (with_cookies or name.lower() != COOKIE)
    ]


def status_of(error: MainspringError) -> tuple[int, str]:
    """The status and title of an error; 500 for one that callers should never meet."""
    for kind, status, title in _STATUSES:
        if isinstance(error, kind):
            return status, title
    return 500, "Something went wrong on our side"


def refusal(error: MainspringError, *, request_id: str = "", status: int | None = None) -> Answer:
    """The problem that tells of an error, with `Retry-After` where trying again can help."""
    usual, title = status_of(error)
    status = status or usual
    body = msgspec.json.encode(
        {
            "type": "urn:mainspring:problem:" + error.code.replace("_", "-"),
            "title": title,
            "status": status,
            "detail": error.detail,
            "code": error.code,
            "errors": error.errors,
            "retryable": error.retryable,
            "requestId": request_id,
        }
    )
    headers = [
        (b"content-type", PROBLEM_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    if (seconds := retry_after(error)) is not None:
        headers.append((b"retry-after", b"%d" % seconds))
    return Answer(status, headers, body)


def retry_after(error: MainspringError) -> int | None:
    if isinstance(error, InProgress):
        return max(1, error.retry_after)
    return UNAVAILABLE_RETRY_SECONDS if error.retryable else None
