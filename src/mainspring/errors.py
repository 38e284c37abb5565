"""Every error that Mainspring raises on purpose: one root, one tree, a stable code each.

    MainspringError
    ├── InvalidInput             the request cannot be understood or breaks a rule
    │   └── ReqIdReuse           the reqId was used for another fetch
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
import typing
from enum import Enum
from typing import Final

import msgspec

from mainspring.text import FORMS

EXAMPLE: Final = "2026-12-01T09:00:00Z"
"""What an instant looks like."""
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
_COUNTED: Final = {"str": "characters", "array": "items", "object": "fields"}
_BOUNDS: Final = {">=": "at least", "<=": "at most"}
_PHRASES: Final = {
    "Invalid RFC3339 encoded datetime": f"Expected an instant such as {EXAMPLE}",
    "`datetime` with a timezone component": f"an instant with a time zone, such as {EXAMPLE}",
    "Input data was truncated": "text that ends too early",
}
_CHOICE: Final = re.compile(r"Invalid enum value (.+?)(?= - at `|$)", re.DOTALL)
_LENGTH: Final = re.compile(r"`(str|array|object)` of length (>=|<=) (\d+)")
_NUMBER: Final = re.compile(r"`(int|float)` (>=|<=) (-?[\d.e+]+)")
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


def wrong_field(pointer: str, detail: str) -> InvalidInput:
    """For what is wrong with one field."""
    return InvalidInput(detail, errors=(FieldError(pointer, detail),))


class ReqIdReuse(InvalidInput):
    """The reqId was used for another request."""

    code = "req_id_reuse"


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


def plain_words(text: str, expected: object = None) -> str:
    """What msgspec says about a value of the type `expected`: without Python's names, and with choices and examples."""

    def words(found: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(name, name) for name in found[1].split(" | "))

    def length(found: re.Match[str]) -> str:
        things = _COUNTED[found[1]]
        return f"{_WORDS[found[1]]} of {_BOUNDS[found[2]]} {found[3]} {things if found[3] != '1' else things[:-1]}"

    def number(found: re.Match[str]) -> str:
        return f"{_WORDS[found[1]]} of {_BOUNDS[found[2]]} {float(found[3]):.15g}"

    for pattern, form in FORMS.items():
        text = text.replace(f"`str` matching regex {pattern!r}", form)
    for foreign, ours in _PHRASES.items():
        text = text.replace(foreign, ours)
    if choices := _choices(expected):
        listed = " or ".join(choices) if len(choices) < 3 else f"one of {', '.join(choices)}"
        text = _CHOICE.sub(lambda found: f"Expected {listed}, got {found[1]}", text)
    return _QUOTED.sub(words, _NUMBER.sub(number, _LENGTH.sub(length, text)))


def _choices(expected: object) -> list[str]:
    """The values that a type allows by name, itself or in its parts."""
    if isinstance(expected, type) and issubclass(expected, Enum):
        return [str(member.value) for member in expected]
    parts = typing.get_args(expected)
    if typing.get_origin(expected) is typing.Literal:
        return [str(part) for part in parts]
    return [choice for part in parts for choice in _choices(part)]
