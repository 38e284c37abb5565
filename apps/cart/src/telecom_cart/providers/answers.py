"""How adapters read what a platform answers: strictly, because nothing that a platform says is known to be true.

A document is JSON of bounded numbers. Of it, texts are short and printable, so that they can be stored, sent again and
written to a log; numbers are whole; lists are lists. What has another form is `Unreadable`, which `understood` turns
into an error of the contract. What a platform has to say in words is for operators only, and goes through `shown`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

from telecom_cart.provider import ContextGone, ProviderError, Uncertain, Unreachable, is_plain
from telecom_cart.providers.http_calls import Answer, header_of

SHOWN_CHARACTERS = 300
MOST_DIGITS = 30
MOST_MINOR = 10**15
MOST_QUANTITY = 10**9
_CODE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMES = re.compile(r"(?i)\b(basic|bearer)\s+[^\s\"',;]+")
_WORDS = re.compile(r"(?i)\b(token|secret|password|key)\s+(?=\S*[\d_=])[^\s\"',;]+")
"""A word behind one of these that is no word of a language."""
_TOKENS = re.compile(r"\bshp[a-z]{2}_[^\s\"',;&\\]+")
"""Shopify's begin so."""
_NAMED = re.compile(
    r"(?i)([\w-]*(?:token|secret|password|passwd|authorization|cookie|key|usid|credential)[\w-]*"
    r"\\*[\"']?\s*(?:[=:]|%3[ad])\s*\\*[\"']?)(?!(?:basic|bearer)\s)[^\s&\"',;)}\\]+"
)


class Unreadable(ValueError):
    """An answer has another form than the platform's documentation gives it."""


def document_of(answer: Answer) -> dict[str, Any] | None:
    """The JSON object of an answer, with exact numbers. None: it has none that can be read."""
    try:
        document = json.loads(answer.body, parse_float=_exact, parse_int=_integer, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def text(value: object) -> str:
    """An id, a number of an order, a status, or the like."""
    if not is_plain(value):
        raise Unreadable("Expected a short printable text")
    return str(value)


def optional_text(value: object) -> str:
    """The same; empty, if there is none."""
    return "" if value is None or value == "" else text(value)


def whole(value: object) -> int:
    """How many of something."""
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_QUANTITY or value != int(value):  # type: ignore[operator, call-overload]
        raise Unreadable("Expected a whole number")
    return int(value)  # type: ignore[call-overload, no-any-return]


def objects(value: object) -> list[dict[str, Any]]:
    """A list of objects, and really that: what is not there is not an empty one."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Unreadable("Expected a list of objects")
    return value


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unreadable("Expected true or false")
    return value


def minor_units(amount: object, currency: str) -> int | None:
    """An amount in the smallest coins, exactly. None: it is no such number."""
    if not isinstance(amount, int | str | Decimal) or len(str(amount)) > MOST_DIGITS:
        return None
    try:
        coins = Decimal(str(amount)).scaleb(EXPONENTS.get(currency, 2))
    except ArithmeticError:
        return None
    is_amount = coins.is_finite() and abs(coins) <= MOST_MINOR and coins == coins.to_integral_value()
    return int(coins) if is_amount else None


EXPONENTS = {"BHD": 3, "CLP": 0, "ISK": 0, "JOD": 3, "JPY": 0, "KRW": 0, "KWD": 3, "OMR": 3, "TND": 3, "VND": 0}
"""The digits after the point, for currencies that have not two."""


def told_time(answer: Answer) -> int | None:
    """What the clock of the platform said, in ms since the epoch, or ours if that is behind: one that runs ahead of the
    clock of the orders would hide them, and to look from too early only takes longer. None: it said nothing."""
    try:
        said = round(parsedate_to_datetime(header_of(answer, "date")).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
    return min(said, round(time.time() * 1000)) if said >= 0 else None


@contextmanager
def understood(error: type[ProviderError] = Unreachable) -> Iterator[None]:
    """Reads what a platform answered. An answer of another form than expected is this error.

    `Uncertain` is for what is read after an order was asked for: then nothing but a refusal in the platform's own words
    says that there is none.
    """
    try:
        yield
    except (Unreachable, ContextGone) as found:
        if error is not Uncertain:
            raise
        raise Uncertain(str(found), told=found.told) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise error("The platform's answer cannot be understood") from None


def code_of(value: object) -> str:
    """The platform's word for an error, which users may see. Empty, if it is anything but a word."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else ""


def shown(value: object) -> str:
    """What a platform said, fit for operators: short, on one line, and without secrets. Users are not shown it."""
    if not isinstance(value, str):
        return ""
    cut = value[: 4 * SHOWN_CHARACTERS]
    for pattern, instead in ((_TOKENS, "***"), (_SCHEMES, r"\1 ***"), (_WORDS, r"\1 ***"), (_NAMED, r"\1***")):
        cut = pattern.sub(instead, cut)
    plain = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in cut)
    return plain[:SHOWN_CHARACTERS]


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise Unreadable("Expected a number of fewer digits")
    return int(digits)


def _exact(digits: str) -> Decimal:
    number = Decimal(digits)
    if len(digits) > MOST_DIGITS or abs(number.adjusted()) > MOST_DIGITS:
        raise Unreadable("Expected a number of fewer digits")
    return number


def _no_number(name: str) -> NoReturn:
    raise Unreadable(f"Expected JSON, which has no {name}")
