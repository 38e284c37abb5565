"""The one record of an origin: its state, and the fetches whose results it waits for.

A result counts if its reqId is among those that are waited for. It is taken out by the same write that changes the
state, so the effect of a result and the fact that it was consumed cannot come apart, and a second one finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from mainspring.errors import InvalidInput, TooLarge
from mainspring.model import Record
from mainspring.origins.values import plain

ORIGINS: Final = "origin"
"""The collection."""
STATE_BYTES: Final = 262_144
WAITING_LIMIT: Final = 1_000
"""How many results one origin may wait for at once."""
LONGEST_KEY: Final = 255


class State(MutableMapping[str, Any]):
    """Durable key-value state: JSON values with text keys.

    Values you read are live: `self.state["items"].append(1)` changes the state. Values you write are copied.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if type(key) is not str or not 1 <= len(key) <= LONGEST_KEY:
            raise InvalidInput(f"Expected a key of 1 to {LONGEST_KEY} characters, got {key!r:.300}")
        self._values[key] = plain(value, f"state[{key!r}]")

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Like that of a dict. Returns the stored value, so changes to it take effect."""
        if key not in self._values:
            self[key] = default
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State({self._values!r})"


class OriginDocument(Struct, kw_only=True, rename="camel"):
    """What is stored. `waiting` are the reqIds of fetches, and when they were asked for."""

    state: dict[str, Any] = {}
    waiting: dict[str, int] = {}


def read(record: Record | None) -> OriginDocument:
    """A fresh copy each time: what a unit does to it is gone unless it is written."""
    return OriginDocument() if record is None else msgspec.json.decode(record.value, type=OriginDocument)


def write(document: OriginDocument, name: str) -> bytes:
    """The bytes to be stored. Raises if the state is no longer JSON, or more than an origin may keep."""
    state = {key: plain(value, f"state[{key!r}]") for key, value in document.state.items()}
    size = len(msgspec.json.encode(state))
    if size > STATE_BYTES:
        raise TooLarge(f"Expected the state of {name} to take at most {STATE_BYTES} bytes, got {size}")
    if len(document.waiting) > WAITING_LIMIT:
        raise TooLarge(
            f"Expected {name} to wait for at most {WAITING_LIMIT} results at once, got {len(document.waiting)}"
        )
    return msgspec.json.encode(OriginDocument(state=state, waiting=document.waiting))
