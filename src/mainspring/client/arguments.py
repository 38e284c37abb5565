"""What callers say in Python, turned into the fields of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mainspring.errors import InvalidInput
from mainspring.fetches.messages import FetchState
from mainspring.jobs.messages import RunKind, RunState
from mainspring.model import State


class Where(TypedDict, total=False):
    """Which timers of a namespace; all conditions must hold; without any, everything matches."""

    namespace: str
    states: Sequence[State]
    id_prefix: str
    labels: Mapping[str, str]
    due_from: datetime
    """Next due at or after this instant."""
    due_to: datetime
    """Next due before this instant."""


class RunsWhere(TypedDict, total=False):
    """Which entries of the ledger of runs; all conditions must hold; without any, everything matches."""

    states: Sequence[RunState]
    kinds: Sequence[RunKind]
    since: datetime
    """Scheduled at or after this instant."""
    until: datetime
    """Scheduled before this instant."""


class FetchesWhere(TypedDict, total=False):
    """Which fetches; all conditions must hold; without any, everything matches."""

    states: Sequence[FetchState]
    labels: Mapping[str, str]
    since: datetime
    """Created at or after this instant."""
    until: datetime
    """Created before this instant."""


class FilterKeywords(TypedDict):
    """`Where` as `FilterFields` wants it."""

    namespace: str
    states: tuple[State, ...]
    id_prefix: str
    labels: dict[str, str]
    due_from: datetime | UnsetType
    due_to: datetime | UnsetType


def filter_keywords(where: Where) -> FilterKeywords:
    return FilterKeywords(
        namespace=where.get("namespace", "default"),
        states=tuple(where.get("states", ())),
        id_prefix=where.get("id_prefix", ""),
        labels=dict(where.get("labels", {})),
        due_from=instant(where.get("due_from")),
        due_to=instant(where.get("due_to")),
    )


def instant(value: datetime | UnsetType | None) -> datetime | UnsetType:
    """Refuses an instant without an offset here, where the caller's stack is still in sight."""
    if value is None or isinstance(value, UnsetType):
        return UNSET
    if value.utcoffset() is None:
        raise InvalidInput(f"Expected an instant with a time zone, got {value.isoformat()}")
    return value


def to_payload(value: object) -> Raw:
    """Any JSON-like value as the payload of a message; a `Raw` is passed on byte for byte."""
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"Expected a payload that can be written as JSON, got: {error}") from error


def from_payload(payload: Raw) -> object:
    """The payload of a timer as Python values."""
    value: object = msgspec.json.decode(payload)
    return value
