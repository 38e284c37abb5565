"""What an answer says, apart from what no two instances say alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

_NAMED: Final = re.compile(r"(?:msg|req)_[0-9a-f]{32}")
"""Delivery ids and the ids of fetches that were given none: drawn at random, so their order of appearance counts."""
_HIDDEN: Final = {"durationMs", "p50Ms", "p99Ms", "requestId", "date", "executor"}
_HIDDEN_OF_RUNS: Final = {"startedAt", "finishedAt", "lateMs"}
"""A run that is planned late begins at that instant or at the next one, as the reader happens to come by."""
_SECRET: Final = re.compile(r"whsec_[A-Za-z0-9+/=]+")


class Names:
    """Numbers random names as they appear. One for each instance: equal histories get equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, found: re.Match[str]) -> str:
        return f"<{self._numbers.setdefault(found[0], len(self._numbers) + 1)}>"


def comparable(status: int, body: bytes, names: Names) -> tuple[int, Any]:
    return status, _plain(msgspec.json.decode(body) if body else None, names.number)


def _plain(value: Any, number: Callable[[re.Match[str]], str]) -> Any:
    match value:
        case dict():
            hidden = _HIDDEN | _HIDDEN_OF_RUNS if "launchId" in value else _HIDDEN
            return {_plain(k, number): None if k in hidden else _plain(v, number) for k, v in value.items()}
        case list():
            return [_plain(item, number) for item in value]
        case str():
            return _SECRET.sub("<secret>", _NAMED.sub(number, value))
    return value
