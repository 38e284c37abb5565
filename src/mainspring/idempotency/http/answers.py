"""An HTTP answer as it is kept and given again, and refusals: RFC 9457 problems in the form of Mainspring's own API.

What belongs to one connection or one moment is not kept: hop-by-hop headers, `date`, and `set-cookie`, which may hold a
session that has ended since. Everything else comes back byte for byte.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.idempotency.entries import ResultKind
from mainspring.idempotency.errors import InProgress, UnknownOutcome
from mainspring.wire.problems import PROBLEM_TYPE, Problem, status_of, type_of

Headers = list[tuple[bytes, bytes]]

REPLAYED: Final = (b"idempotent-replayed", b"true")
UNAVAILABLE_RETRY_SECONDS: Final = 1
_JSON: Final = b"application/json"
_DONE: Final = b'{"ok":true}'

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


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Status, headers and body of an answer."""

    status: int
    headers: Headers
    body: bytes
    is_whole: bool = True
    """False: it was too large to be kept, and `body` is empty."""


class PackedAnswer(bytes):
    """The type of results that are packed answers: those who settle such a key by hand give an answer."""

    kept_as: ResultKind = "answer"


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Answer).decode


def pack(answer: Answer) -> bytes:
    """The bytes that a store keeps."""
    return _encode(answer)


def unpack(kept: bytes) -> Answer:
    """Raises for an answer that can no longer be read: the work was done, and does not run again."""
    try:
        return _decode(kept)
    except (TypeError, ValueError) as error:
        raise UnknownOutcome(f"The work was done, but its recorded answer cannot be read: {error}") from error


def as_answer(result: object) -> Answer:
    """An `Answer`; None for `{"ok": true}`; bytes for a body that is JSON already; or any value that JSON can say."""
    match result:
        case Answer():
            return result
        case None:
            body = _DONE
        case bytes():
            body = result
        case _:
            body = msgspec.json.encode(result)
    return Answer(200, [(b"content-type", _JSON), (b"content-length", b"%d" % len(body))], body)


def kept_headers(headers: Headers, *, with_cookies: bool = False) -> Headers:
    return [
        (bytes(name), bytes(value))
        for name, value in headers
        if name.lower() not in NOT_KEPT and (with_cookies or name.lower() != COOKIE)
    ]


def refusal(error: MainspringError, *, request_id: str = "", status: int | None = None) -> Answer:
    """The problem that describes an error, with `Retry-After` where trying again can help. What the store said is not
    for whoever is refused: it may name the store's address."""
    usual, title = status_of(error)
    status = status or usual
    body = msgspec.json.encode(
        Problem(
            type=type_of(error.code),
            title=title,
            status=status,
            detail=(StoreUnavailable() if isinstance(error, StoreUnavailable) else error).detail,
            code=error.code,
            errors=error.errors,
            retryable=error.retryable,
            request_id=request_id,
        )
    )
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
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
