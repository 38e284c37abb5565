"""Text from elsewhere: made fit for a terminal or a log, and judged by whether it looks like what it is.

Ids and names have forms. A form is a pattern for programs and a phrase for people: `FORMS` has both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
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

LONGEST_GUESS: Final = 64
"""Of a longer name, only the beginning is compared with known ones: comparing takes time."""

SYNONYMS: Final = {
    **dict.fromkeys(("show", "describe", "inspect"), ("get",)),
    **dict.fromkeys(("rm", "remove", "cancel"), ("delete", "forget")),
    **dict.fromkeys(("add", "new"), ("create",)),
    **dict.fromkeys(("edit", "change"), ("update",)),
    "ls": ("list",),
    "run": ("trigger", "run-now"),
    "history": ("runs",),
    "tz": ("timezone",),
    "cron": ("schedule",),
    "url": ("callbackUrl",),
    "callbackurl": ("url",),
    "id": ("timerId", "reqId", "name"),
}
"""Words that people try, and what they are called here: of those, the first that is known is meant."""

# What Unicode calls default ignorable, without joiners and variation selectors.
_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)


def counted(count: int, noun: str) -> str:
    """`1 timer`, `2 timers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean labels?`, for the end of a sentence about a name that is not known; empty if none is like it."""
    found = closest(name, known)
    return f"; did you mean {found}?" if found else ""


def closest(name: str, known: Iterable[str]) -> str:
    """The one that is called so by some, or is most like a name; empty if none is. Case, dashes and underscores make no
    difference."""
    folded = {_folded(each): each for each in known}
    if meant := synonym(name, folded.values()):
        return meant
    found = get_close_matches(_folded(name[:LONGEST_GUESS]), folded, n=1)
    return folded[found[0]] if found else ""


def synonym(name: str, known: Iterable[str]) -> str:
    """The known one that some call by this name; empty if there is none."""
    among = set(known)
    return next((each for each in SYNONYMS.get(_folded(name), ()) if each in among), "")


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def printable(text: str) -> str:
    """The same on one line, in which nothing moves the cursor, changes colours or changes the direction of writing, and
    nothing is left out."""
    if _is_plain(text):
        return text
    return "".join(
        char if _is_plain(char) else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def printable_json(text: str) -> str:
    """The same for JSON on one line, which still means what it meant."""
    if _is_plain(text):
        return text
    return "".join(char if _is_plain(char) else _json_escape(char) for char in text)


def hides_something(text: str) -> bool:
    """Whether it contains control characters, or characters that change the direction of writing or have no width.
    Joiners and variation selectors do not count: some scripts need them, and so do emoji."""
    return _HIDDEN.search(text) is not None


def _is_plain(text: str) -> bool:
    return text.isprintable() and not hides_something(text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def shown_url(url: str) -> str:
    """A URL without what only its user may know, even if it is not well-formed."""
    without_user = re.sub(r"(?s)^([a-z+]+:/+)?.*@", r"\1********@", url)
    return re.sub(r"(?i)(password|secret|token|key)=[^&]*", r"\1=********", without_user)
