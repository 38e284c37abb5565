"""The kinds of values that commands take: durations, instants, JSON from anywhere, pairs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Raw

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(f"({_NUMBER})(ms|s|m|h|d|w)")


class Duration(click.ParamType[float]):
    """Seconds, or numbers with units: 90, 5m, 1h30m, 500ms."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        if re.fullmatch(_NUMBER, text):
            return float(text)
        if not re.fullmatch(f"({_PART.pattern})+", text):
            self.fail(f"Expected a duration such as 90, 5m or 1h30m, got {text!r}", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


class Whole(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            bounds = f" from {self.min} to {self.max}" if self.max is not None else f" of at least {self.min}"
            self.fail(f"Expected a whole number{bounds}, got {str(value)!r:.100}", param, ctx)


class Moment(click.ParamType[datetime]):
    """An instant with an offset."""

    name = "instant"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"Expected an instant such as 2026-12-01T09:00:00+01:00, got {value!r}", param, ctx)
        if moment.utcoffset() is None:
            self.fail(f"Expected an offset such as Z or +01:00 at the end, got {value!r}", param, ctx)
        return moment


class Json(click.ParamType[Raw]):
    """JSON text, @file, or - for stdin; kept byte for byte."""

    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Raw:
        if isinstance(value, Raw):
            return value
        text, data = str(value), b""
        try:
            data = _read(text)
            msgspec.json.decode(data)
        except OSError as error:
            self.fail(f"Expected a readable file, got {text[1:]}: {error.strerror}", param, ctx)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            if text == "-":
                self.fail(f"Expected JSON on stdin, got {'something else' if data.strip() else 'nothing'}", param, ctx)
            self.fail(f"Expected JSON, @file or -, got {text!r:.100}", param, ctx)
        return Raw(data.strip())


class Text(click.ParamType[bytes]):
    """Text, @file, or - for stdin; kept byte for byte."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return _read(str(value))
        except OSError as error:
            self.fail(f"Expected a readable file, got {str(value)[1:]}: {error.strerror}", param, ctx)
        except UnicodeError:
            self.fail("Expected text in UTF-8, @file or -, got something else", param, ctx)


def _read(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    return Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()


class Pair(click.ParamType[tuple[str, str]]):
    """A name and a value with a separator between them."""

    def __init__(self, separator: str) -> None:
        self.name = f"name{separator}value"
        self._separator = separator

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, rest = str(value).partition(self._separator)
        if not separator or not name:
            self.fail(f"Expected NAME{self._separator}VALUE, got {str(value)!r}", param, ctx)
        return name.strip(), rest.strip()


def once_each(pairs: Iterable[tuple[str, str]], what: str) -> dict[str, str]:
    """Pairs as a mapping. A name that is given twice is refused: one of the two values would get lost."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in pairs:
        folded = name.lower() if what == "header" else name
        if folded in seen:
            raise click.UsageError(f"Expected each {what} once, got {name!r} again.")
        seen.add(folded)
        found[name] = value
    return found


class Durations(click.ParamType[tuple[float, ...]]):
    """Durations with commas between them."""

    name = "durations"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(DURATION.convert(part, param, ctx) for part in str(value).split(","))


DURATION = Duration()
DURATIONS = Durations()
MOMENT = Moment()
JSON = Json()
TEXT = Text()
HEADER = Pair(":")
LABEL = Pair("=")
