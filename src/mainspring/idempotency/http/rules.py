"""What `Idempotency-Key` means, for ASGI and WSGI alike: whose key it is, which answers are kept, what is refused and
in which words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, Literal

from msgspec import Struct

from mainspring import telemetry
from mainspring.errors import ConfigError, Conflict, InvalidInput, MainspringError, StoreUnavailable
from mainspring.idempotency.errors import InProgress, KeyReuse, UnknownOutcome
from mainspring.idempotency.http.answers import REPLAYED, Answer, as_answer, pack, unpack
from mainspring.idempotency.record import NotDone, Resolved, Unresolved

HEADER: Final = b"idempotency-key"
REQUEST_ID: Final = b"x-request-id"
CORRELATION_ID: Final = b"x-correlation-id"
KEPT_BYTES: Final = 256 * 1024 * 1024
INTERNAL_ERROR: Final = 500
"""By which frameworks tell of an exception that nobody has handled."""
_KEY: Final = re.compile(rb"[\x21-\x7e]{1,255}")
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\["\\])*)"')
_ESCAPED: Final = re.compile(rb'\\(["\\])')
_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_NEVER_KEPT: Final = frozenset({401, 403, 429})
_INVALID: Final = frozenset({400, 422})

OnException = Literal["free", "unknown"]
"""What becomes of the key of a request whose application raises before it answers: a repeat runs, or somebody has to
find out first."""


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """A request with a key, for `resolve`."""

    principal: str
    method: str
    route: str
    key: str
    query: bytes
    body: bytes
    headers: Mapping[str, str]
    """By names in lower case."""


Resolve = Callable[[KeyedRequest, Unresolved], Any]


def request_key(*, principal: str, method: str, route: str, key: str) -> str:
    """The name of a request's record, which `settle` and `forget` take."""
    parts = "\0".join((principal, method, route, key))
    return "http-" + sha256(parts.encode("utf-8", "surrogateescape")).hexdigest()


def credentials_digest(given: bytes) -> str:
    """The default principal: whoever has these credentials. Only their hash is used."""
    return sha256(given).hexdigest() if given else ""


def by_status(status: int) -> bool:
    """What is kept by default. Server errors are not: the server may do better next time. Nor is what says that the
    request is not valid: nothing was done, and whoever corrects it sends it under the same key."""
    return status < INTERNAL_ERROR and status not in _INVALID


def is_kept(status: int, keep: Callable[[int], bool]) -> bool:
    return status not in _NEVER_KEPT and keep(status)


def unquoted(value: bytes) -> bytes:
    """The key in a header. As text of a structured field it is quoted, and many clients send it bare: both are one."""
    quoted = _QUOTED.fullmatch(value)
    return value if quoted is None else _ESCAPED.sub(rb"\1", quoted[1])


def checked(values: list[bytes]) -> str:
    if not values:
        raise InvalidInput("Expected an Idempotency-Key header, got none")
    if len(values) > 1:
        raise InvalidInput(f"Expected one Idempotency-Key header, got {len(values)}")
    key = unquoted(values[0])
    if _KEY.fullmatch(key) is None:
        raise InvalidInput("Expected an Idempotency-Key of 1 to 255 visible ASCII characters, got something else")
    return key.decode("ascii")


def checked_text(what: str, found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"Expected {what}= to give text, got {type(found).__name__}")
    return found


def checked_methods(methods: Iterable[str]) -> frozenset[str]:
    """In upper case. A single text is a mistake: its letters would be the methods."""
    found = frozenset(() if isinstance(methods, str) else (method.upper() for method in methods))
    if not found:
        raise ConfigError(f"Expected the names of methods, such as ('POST', 'PATCH'), got {methods!r}")
    return found


def checked_policy(on_exception: str) -> bool:
    """Whether the outcome of a request is unknown after an exception."""
    if on_exception not in ("free", "unknown"):
        raise ConfigError(f"Expected on_exception= to be free or unknown, got {on_exception!r}")
    return on_exception == "unknown"


def resolution(found: Resolved[object] | NotDone | None) -> Resolved[bytes] | NotDone | None:
    """What `resolve` has found out, as it is kept."""
    return Resolved(pack(as_answer(found.result))) if isinstance(found, Resolved) else found


def again(kept: bytes, own: Mapping[bytes, bytes]) -> Answer:
    """A recorded answer, under its `own_ids`: those of the request that is being answered."""
    answer = unpack(kept)
    if not answer.is_whole:
        raise Conflict("The request was carried out before, and its answer was too large to keep.")
    renamed = ((name, own.get(name.lower(), value)) for name, value in answer.headers)
    headers = [(name, value) for name, value in renamed if value or name.lower() not in own]
    return Answer(answer.status, [*headers, REPLAYED], answer.body)


def own_ids(header: Callable[[bytes], bytes]) -> dict[bytes, bytes]:
    """What the sender calls this request, and what it belongs to; empty if it gives no name that can be repeated."""
    given = {name: header(name) for name in (REQUEST_ID, CORRELATION_ID)}
    return {name: value if _ID.fullmatch(value) else b"" for name, value in given.items()}


def told(error: MainspringError) -> MainspringError:
    """The same, worded for whoever sent the header. The name of the record is for whoever settles it by hand."""
    match error:
        case KeyReuse():
            return KeyReuse("This Idempotency-Key was first used with a different request")
        case InProgress():
            still = "The first request with this Idempotency-Key is still in progress"
            return InProgress(still, retry_after=error.retry_after)
        case UnknownOutcome():
            return UnknownOutcome(
                "A request with this Idempotency-Key was begun, and nobody knows how it ended. It may have been done, "
                f"and is not run again by itself. Its record is {error.key}"
            )
        case StoreUnavailable():
            telemetry.warning("a request with an Idempotency-Key was refused", reason=error.detail)
            return StoreUnavailable("The store of idempotency keys cannot be used now; nothing was done")
        case _:
            return error
