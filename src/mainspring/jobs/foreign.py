"""A record of the registry as other programs write it: its text, put into our words, and its `lastRun`. Pure.

Other programs, in other languages, say the same in different ways. What can mean only one thing is taken for it:

| written                                      | taken for                                                  |
|----------------------------------------------|------------------------------------------------------------|
| `null`, in a job, its `dst` or `retryPolicy` | absent                                                     |
| `"30"`, `"true"`, `1` for a truth value      | the number, or the truth value                             |
| `"post"`, `"Skip"`, `"LATEST"`               | method, overlap and catchup in any case                    |
| numbers and truth values in headers, labels  | their text                                                 |
| an absolute `route`                          | a route, if it is below the base URL; otherwise a `url`    |
| a `route` without a leading slash            | the same with one                                          |
| an empty `url` or `route`                    | absent                                                     |

`lastRun` is the newest instant that was run. It is told in RFC 3339 or in milliseconds since the epoch, as a number or
as text; numbers that are too small for that are seconds. What is none of these is not known, and nothing is wrong
with the job. It is written in the form in which it was found, and no other member of the record is touched: they may
mean something to the program that has written them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, get_args

import msgspec
from msgspec import Raw

from mainspring.jobs.messages import Catchup, Method, Overlap
from mainspring.wire.instants import LAST_INSTANT, to_instant, to_ms

LAST_RUN: Final = "lastRun"
_SECONDS_BELOW: Final = 100_000_000_000
"""Milliseconds up to this are before March 1973, when no job had run; as seconds they are of the next millennium."""
_WORDS: Final[dict[str, dict[str, str]]] = {
    member: {word.lower(): word for word in words}
    for member, words in (
        ("method", get_args(Method)),
        ("overlap", (*get_args(Overlap), "terminateOther")),
        ("catchup", get_args(Catchup)),
    )
}
_NULL: Final = b"null"

_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_texts: Final = msgspec.json.Decoder(dict[str, str | int | float | bool | None]).decode
_last_run: Final = msgspec.json.Decoder(str | int | float | None).decode


def split(text: bytes) -> tuple[bytes, Raw | None]:
    """The text of a record without its `lastRun`, always in the same form, and that by itself.

    What is no JSON object is left as it is: whoever reads it will say what is wrong with it.
    """
    try:
        members = _members(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return text, None
    last_run = members.pop(LAST_RUN, None)
    return msgspec.json.encode(members), last_run


def read_last_run(written: Raw | None) -> int | None:
    """The instant, in milliseconds; None: there is none, or it makes no sense."""
    try:
        value = None if written is None else _last_run(written)
        if isinstance(value, str) and not _is_number(value):
            ms = _ms(datetime.fromisoformat(value))
        else:
            number = float(value or 0)
            ms = round(number * 1000 if number < _SECONDS_BELOW else number)
        return ms if 0 < ms <= LAST_INSTANT else None
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None


def with_last_run(text: bytes, instant: int) -> bytes:
    """The text of a record with another `lastRun`, in the form of the one it has; everything else as it was."""
    members = _members(text)
    members[LAST_RUN] = Raw(_written_like(members.get(LAST_RUN), instant))
    return msgspec.json.encode(members)


def _written_like(present: Raw | None, instant: int) -> bytes:
    if present is None or read_last_run(present) is None:
        return str(instant).encode()
    value = _last_run(present)
    if isinstance(value, str) and not _is_number(value):
        return msgspec.json.encode(to_instant(instant))
    number = str(instant // 1000 if float(value or 0) < _SECONDS_BELOW else instant)
    return msgspec.json.encode(number) if isinstance(value, str) else number.encode()


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _ms(instant: datetime) -> int:
    """Without an offset it is in UTC."""
    return to_ms(instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC))


def in_our_words(text: bytes, *, base_url: str) -> bytes:
    """A job as our types would have it, as far as it can be told. Raises what decoding raises."""
    members = {name: value for name, value in _members(text).items() if bytes(value) != _NULL}
    for name, words in _WORDS.items():
        if (value := _text(members.get(name))) is not None and value.lower() in words:
            members[name] = _raw(words[value.lower()])
    for name in ("headers", "labels"):
        if name in members:
            given = _texts(members[name])
            members[name] = _raw({key: _as_text(value) for key, value in given.items() if value is not None})
    for name in ("dst", "retryPolicy"):
        if name in members:
            nested = _members(members[name])
            members[name] = _raw({key: value for key, value in nested.items() if bytes(value) != _NULL})
    for name in ("url", "route"):
        if _text(members.get(name)) == "":
            del members[name]
    if (route := _text(members.get("route"))) is not None:
        name, target = _target(route, base_url.rstrip("/"))
        del members["route"]
        if name in members:
            members["route"] = _raw(f"/{route}")  # two targets: others will say that this is one too many
        else:
            members[name] = _raw(target)
    return msgspec.json.encode(members)


def _target(route: str, base_url: str) -> tuple[str, str]:
    if "://" not in route.partition("?")[0]:
        return "route", route if route.startswith("/") else f"/{route}"
    if base_url and route.startswith(f"{base_url}/"):
        return "route", route.removeprefix(base_url)
    return "url", route


def _text(value: Raw | None) -> str | None:
    return msgspec.json.decode(value, type=str) if value is not None and bytes(value).startswith(b'"') else None


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _as_text(value: str | float | bool) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
