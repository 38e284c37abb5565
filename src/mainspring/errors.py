"""Every error that Mainspring raises on purpose: one root, one tree, a stable code each.

    MainspringError
    ├── InvalidInput             the request cannot be understood or breaks a rule
    ├── NotFound                 the named thing does not exist
    ├── Conflict                 the named thing is not in the state that the request expects
    │   ├── LockTaken            somebody else holds the lock
    │   └── LockLost             the lock is no longer ours, or may not be
    ├── Unauthenticated          no valid token
    ├── Forbidden                the token does not allow this
    ├── TooLarge                 the request body is over its limit
    ├── RateLimited              too many requests; try again later
    ├── Unavailable              the service cannot do it now; try again later
    │   └── StoreUnavailable     the store refused or could not be reached; nothing was acknowledged
    ├── Unsupported              a capability that this store or build does not have
    ├── ConfigError              the configuration is wrong
    ├── UnsafeTarget             the destination address may not be called
    ├── ServerError              the server failed without saying why
    └── NetworkError             the server could not be reached, or its answer was not understood

A class's docstring is its default message. HTTP status codes live in `mainspring.api`.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mainspring.text import FORMS

_WORDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "datetime": "an instant",
    "null": "null",
}
_QUOTED: Final = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with one field: a JSON pointer and what was expected."""

    pointer: str
    detail: str


class MainspringError(Exception):
    """Something went wrong."""

    code = "error"
    retryable = False
    request_id = ""
    """Set by the client: what the server called the request."""
    outcome_unknown = False
    """Set by the client: the request may have taken effect although it ended with this error."""

    def __init__(self, detail: str = "", *, errors: tuple[FieldError, ...] = ()) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.errors = errors
        super().__init__(self.detail)


class InvalidInput(MainspringError):
    """The request is not valid."""

    code = "invalid_input"


class NotFound(MainspringError):
    """It does not exist."""

    code = "not_found"


class Conflict(MainspringError):
    """It has changed or is not in the expected state."""

    code = "conflict"


class LockTaken(Conflict):
    """Somebody else holds the lock."""

    code = "lock_taken"
    retryable = True


class LockLost(Conflict):
    """The lock is no longer held, or may not be: its lease has ended."""

    code = "lock_lost"


class Unauthenticated(MainspringError):
    """A valid bearer token is required."""

    code = "unauthenticated"


class Forbidden(MainspringError):
    """The token does not allow this."""

    code = "forbidden"


class TooLarge(MainspringError):
    """The request body is too large."""

    code = "too_large"


class RateLimited(MainspringError):
    """Too many requests; try again later."""

    code = "rate_limited"
    retryable = True


class Unavailable(MainspringError):
    """The service cannot do this now; try again later."""

    code = "unavailable"
    retryable = True


class StoreUnavailable(Unavailable):
    """The store cannot be used now; nothing was acknowledged."""

    code = "store_unavailable"


class Unsupported(MainspringError):
    """This store does not have that capability."""

    code = "unsupported"


class ConfigError(MainspringError):
    """The configuration is not valid."""

    code = "config"


class UnsafeTarget(MainspringError):
    """The destination address may not be called."""

    code = "unsafe_target"


class ServerError(MainspringError):
    """The server failed."""

    code = "internal"


class NetworkError(MainspringError):
    """The server could not be reached, or its answer was not understood."""

    code = "network"
    retryable = True


def plain_words(text: str) -> str:
    """What msgspec says about a wrong value, without Python's names for types and without patterns."""

    def words(found: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(name, name) for name in found[1].split(" | "))

    for pattern, form in FORMS.items():
        text = text.replace(f"`str` matching regex {pattern!r}", form)
    return _QUOTED.sub(words, text)
