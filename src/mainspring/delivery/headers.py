"""Which headers a user may put on a callback: only those that cannot change what is sent, to whom, or who signs.

A header that passes `check_headers` can be written into a request as `name: value` without escaping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mainspring.errors import FieldError, InvalidInput

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\x80-\xff\t]*")

_FRAMING: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS: Final = frozenset({"idempotency-key", "traceparent"})
_OUR_PREFIXES: Final = ("webhook-", "mainspring-")


def check_headers(headers: Mapping[str, str], *, reserved: bool = True) -> None:
    """Raise `InvalidInput` that names every header that may not be sent.

    `reserved` also refuses those that Mainspring itself sets, on requests where it does.
    """
    errors = tuple(
        FieldError("/headers/" + name.replace("~", "~0").replace("/", "~1"), problem)
        for name, problem in _problems(headers, reserved)
    )
    if errors:
        summary = "; ".join(error.detail for error in errors)
        raise InvalidInput(f"Expected headers that a callback may carry, got: {summary}", errors=errors)


def _problems(headers: Mapping[str, str], reserved: bool) -> list[tuple[str, str]]:
    seen: set[str] = set()
    problems = []
    for name, value in headers.items():
        lower = name.lower()
        problem = _name_problem(name, lower, reserved)
        if not problem and lower in seen:
            problem = f"{name!r} is given twice"
        if not problem and not _VALUE.fullmatch(value):
            problem = f"the value of {name!r} has characters other than visible ASCII or Latin-1, spaces and tabs"
        if problem:
            problems.append((name, problem))
        seen.add(lower)
    return problems


def _name_problem(name: str, lower: str, reserved: bool) -> str:
    if not _TOKEN.fullmatch(name):
        return f"{name!r} is not a header name"
    if lower in _FRAMING or lower.startswith("proxy-"):
        return f"{name!r} belongs to the connection and is set by the sender"
    if reserved and (lower in _OURS or lower.startswith(_OUR_PREFIXES)):
        return f"{name!r} is reserved for Mainspring"
    return ""
