"""Texts that one database or another might read, fold, cut or order differently."""

from __future__ import annotations

from typing import Final

CASES: Final = (
    "a",
    "A",
    "b",
    "B",
    "a ",
    " a",
    "a  ",
    "ab",
    "aB",
    "Ab",
    "á",
    "á",
    "ä",
    "ae",
    "ß",
    "ss",
    "\u0131",
    "i",
    "I",
)
"""Equal for some collations, and never for us."""
COMMANDS: Final = (
    "' OR 1=1 --",
    "'; DROP TABLE mainspring_timers; --",
    '"; DROP KEYSPACE mainspring; --',
    "$where",
    '{"$gt": ""}',
    "$set",
    "a.b.c",
    "$",
    ".",
    "%",
    "_",
    "a%",
    "a_b",
    "\\",
    "\\'",
    "a\\%",
    "{0}",
    "%s",
    "%(name)s",
    ":name",
    "?",
    "$1",
    "#n",
    "attribute_exists(x)",
    "../../etc/passwd",
    "NULL",
    "null",
    "true",
    "0",
    "-1",
    "1e309",
    "NaN",
)
UNICODE: Final = (
    "日本語",
    "🕰️",
    "👩‍👩‍👧‍👦",
    "\u200b",
    "a\u200b",
    "\u202e",
    "\ufeff",
    "\ufffd",
    "\uffff",
    "\ufffe",
    "\U0010ffff",
    "\ue000",
    "é" * 10,
    "İ",
    "ﬁ",
    "K",
    "ǆ",
    "\u0085",
    "\u2028",
)
LONG: Final = ("x" * 255, "🕰" * 255, "é" * 255, " " * 255, "%" * 255, "\\" * 255, "x" * 254 + " ")
CONTROL: Final = ("a\nb", "\t", "\x7f", "\x01", "a\r", "\x1f")
"""Refused as a name, allowed inside of payloads."""

STRINGS: Final = (*CASES, *COMMANDS, *UNICODE, *LONG, *CONTROL)
