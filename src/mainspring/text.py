"""Text from elsewhere: made fit for a terminal or a log, and judged by whether it looks like what it is.

Ids and names have forms. A form is a pattern for programs and a phrase for people: `FORMS` has both.
"""

from __future__ import annotations

import re
from typing import Final

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*(?!\n)$"
REQUEST_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]*(?!\n)$"
POOL: Final = r"^[a-z0-9][a-z0-9-]*(?!\n)$"
PATH: Final = r"^/"
STATUS_RULE: Final = r"^([1-5]xx|[1-5][0-9][0-9]|network|timeout)(?!\n)$"

FORMS: Final = {
    NAME: "only letters, digits, dots, underscores and dashes, the first a letter or a digit",
    REQUEST_ID: "only letters, digits, dots, underscores, colons and dashes, the first a letter or a digit",
    POOL: "only lower-case letters, digits and dashes, the first a letter or a digit",
    PATH: "a path that begins with a slash",
    STATUS_RULE: "a status such as 503, a class such as 5xx, network or timeout",
}

_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)


def counted(count: int, noun: str) -> str:
    """`1 timer`, `2 timers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """The same on one line, in which nothing can move the cursor, change colours or change the direction of writing."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def printable_json(text: str) -> str:
    """The same for JSON on one line, which still means what it meant."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _json_escape(char) for char in text)


def hides_something(text: str) -> bool:
    """Whether it contains control characters, or characters that change the direction of writing or have no width.
    Joiners do not count: some scripts need them."""
    return _HIDDEN.search(text) is not None


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def shown_url(url: str) -> str:
    """A URL without what only its user may know, even if it is not well-formed."""
    without_user = re.sub(r"(?s)^([a-z+]+:/+)?.*@", r"\1********@", url)
    return re.sub(r"(?i)(password|secret|token|key)=[^&]*", r"\1=********", without_user)
