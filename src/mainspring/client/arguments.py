"""What callers say in Python, turned into the fields of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

import msgspec
from msgspec import Raw

from mainspring.fetches.messages import FetchState
from mainspring.jobs.messages import RunKind, RunState
from mainspring.model import State
from mainspring.wire.arguments import json_of


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


def to_payload(value: object) -> Raw:
    """Any JSON-like value as the payload of a message; a `Raw` is passed on byte for byte."""
    return json_of(value, "a payload")


def from_payload(payload: Raw) -> object:
    """The payload of a timer as Python values."""
    value: object = msgspec.json.decode(payload)
    return value
