"""What is written down during a run. Everything the checker knows is in these entries.

`at` and the like are seconds of this machine's monotonic clock, which all processes share.
An operation is *ok* (acknowledged), *fail* (certainly not done) or *info* (nobody knows: the connection broke).
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
from msgspec import Struct


class Entry(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """One line of the journal."""


class Operation(Entry, frozen=True, kw_only=True):
    """A request of a client. Those of one timer come from one client, one after the other."""

    timer_id: str
    verb: Literal["create", "update", "delete"]
    outcome: Literal["ok", "fail", "info"]
    invoked_at: float
    returned_at: float
    marker: str = ""
    """What the payload said; empty for a delete."""
    code: str = ""
    """The error, when there was one."""
    # From here on: what the acknowledgement said.
    delivery_id: str = ""
    generation: int = 0
    execute_at: int = 0
    state: str = ""
    attempts: int = 0


class Arrival(Entry, frozen=True, kw_only=True):
    """A request at the receiver, logged before it is answered."""

    timer_id: str
    at: float
    wall_ms: int
    delivery_id: str
    attempt: int
    max_attempts: int
    generation: int
    scheduled_at: int
    marker: str
    at_most_once: bool
    answer: Literal["done", "fail", "reschedule"]


class Crash(Entry, frozen=True, kw_only=True):
    """The server died."""

    at: float
    how: str
    server: int = 0
    """Which one, where there are several."""


class StoredTimer(Entry, frozen=True, kw_only=True):
    """A row that was left in the store when everything had come to rest."""

    timer_id: str
    delivery_id: str
    generation: int
    state: str
    attempts: int
    at_most_once: bool
    reason: str


class StoredAttempt(Entry, frozen=True, kw_only=True):
    """An attempt in the history."""

    timer_id: str
    delivery_id: str
    attempt: int
    outcome: str
    next: str


AnyEntry = Operation | Arrival | Crash | StoredTimer | StoredAttempt


class Journal:
    """Keeps the entries and writes each to a file at once. A context manager."""

    def __init__(self, path: Path) -> None:
        self.entries: list[AnyEntry] = []
        self._path = path

    def __enter__(self) -> Self:
        self._file = self._path.open("ab", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, entry: AnyEntry) -> None:
        self.entries.append(entry)
        self._file.write(msgspec.json.encode(entry) + b"\n")


def read_journal(path: Path) -> list[AnyEntry]:
    with path.open("rb") as file:
        return [msgspec.json.decode(line, type=AnyEntry) for line in file]
