"""What a group of changes does to one shard: decided in order, without CQL.

A plan starts from what the partition holds of all that its changes name. Each change is decided against the shard
*as the changes before it leave it*, and at the end the plan says what remains to be written, once per row. So a
group behaves as if its changes had run one after the other. Whether the partition still is as the plan found it, the
conditions of its batch decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model import LAST_VERSION, Attempt, Shard, State, Timer
from mainspring.store import Begin, Finish, Put, Remove, Verdict, next_version
from mainspring.stores.cassandra.rows import Place, ShardState


class Claim(Struct, frozen=True):
    shard: Shard


class Release(Struct, frozen=True):
    shard: Shard


class Forget(Struct, frozen=True):
    """Remove these entries of the history, the oldest that there are: start, uuid and entry of each."""

    ages: Sequence[tuple[int, str, bytes]]


class Guard(Struct, frozen=True):
    """From now on, whoever writes a timer that is due before `at` has to say so in the shard's columns."""

    at: int


class Raise(Struct, frozen=True):
    """The due rows begin at `at`, if nobody has written an earlier one since the guard was set."""

    at: int


Change = Put | Remove | Begin | Finish | Claim | Release | Forget | Guard | Raise


class Row(Struct):
    """A timer as the group leaves it."""

    place: Place | None
    """Where the partition holds it; None: nowhere."""
    version: int
    """0: there is none."""
    timer: Timer | None = None
    """All of it, if the group has rewritten it."""
    begins: int = 0
    """Attempts begun on the stored row, if it has not."""
    fence: int = 0

    @property
    def is_removed(self) -> bool:
        return self.version == 0 and self.place is not None


class Plan:
    def __init__(self, found: ShardState, places: Mapping[str, Place], uuids: Iterable[str]) -> None:
        self.found = found
        self.state = found
        self.rows: dict[str, Row] = {}
        for uuid in uuids:
            place = places.get(uuid)
            self.rows[uuid] = Row(place, place.version if place else 0)
        self.history: list[tuple[str, Attempt]] = []
        self.forgotten: list[tuple[int, str, bytes]] = []

    @property
    def changes_nothing(self) -> bool:
        touched = any(row.timer is not None or row.begins or row.is_removed for row in self.rows.values())
        return not (touched or self.history or self.forgotten or self.state != self.found)

    def decide(self, change: Change) -> Verdict:  # noqa: PLR0911  (a table of cases)
        match change:
            case Put() | Remove():
                return self._change(change)
            case Begin():
                return self._begin(change)
            case Finish():
                return self._finish(change)
            case Claim(shard):
                return self._own(shard.version == self.state.version, shard.version + 1, shard.owner)
            case Release(shard):
                same = (shard.version, shard.owner) == (self.state.version, self.state.owner)
                return self._own(same, shard.version, "")
            case Forget(ages):
                self.forgotten += ages
                return Verdict.APPLIED
            case Guard(at):
                if self.state.due_guard is None or self.state.due_guard < at:
                    self.state = replace(self.state, due_guard=at)
                return Verdict.APPLIED
            case Raise(at):
                if self.state.due_guard is None or self.state.due_guard < at:
                    return Verdict.STALE
                if self.state.due_from is None or self.state.due_from < at:
                    self.state = replace(self.state, due_from=at)
                return Verdict.APPLIED

    def _change(self, change: Put | Remove) -> Verdict:
        row = self.rows[uuid_of(change)]
        if row.version != change.expect:
            return Verdict.STALE
        if isinstance(change, Remove):
            if row.version == 0:
                return Verdict.STALE
            row.version = 0
            row.timer = None
        else:
            row.version = next_version(row.version, change.timer.version)
            row.timer = replace(change.timer, version=row.version)
            self._place_at(change.timer.due_at)
        row.begins = 0
        return Verdict.APPLIED

    def _place_at(self, due_at: int) -> None:
        if self.state.due_guard is not None and due_at < self.state.due_guard:
            self.state = replace(self.state, due_guard=due_at)
            if self.state.due_from is not None and due_at < self.state.due_from:
                self.state = replace(self.state, due_from=due_at)

    def _begin(self, item: Begin) -> Verdict:
        if self.state.version != item.fence:
            return Verdict.FENCED
        row = self.rows[item.key.uuid]
        if row.version != item.expect or not 0 < row.version < LAST_VERSION:
            return Verdict.STALE
        row.version += 1
        timer = row.timer
        if timer is None:
            row.begins += 1
            row.fence = item.fence
        else:
            row.timer = replace(
                timer, state=State.RUNNING, attempts=timer.attempts + 1, version=row.version, fence=item.fence
            )
        return Verdict.APPLIED

    def _finish(self, item: Finish) -> Verdict:
        if self.state.version != item.fence:
            return Verdict.FENCED
        verdict = Verdict.APPLIED if item.change is None else self._change(item.change)
        if verdict is Verdict.APPLIED and item.attempt is not None:
            self.history.append((item.key.uuid, item.attempt))
        return verdict

    def _own(self, matches: bool, version: int, owner: str) -> Verdict:
        if not matches:
            return Verdict.STALE
        self.state = replace(self.state, version=version, owner=owner)
        return Verdict.APPLIED


def uuid_of(change: Put | Remove) -> str:
    return change.timer.uuid if isinstance(change, Put) else change.key.uuid


def uuids_named(changes: Iterable[Change]) -> list[str]:
    """The timers whose places a plan needs, each once."""
    named: dict[str, None] = {}
    for change in changes:
        match change:
            case Put() | Remove():
                named[uuid_of(change)] = None
            case Begin(key):
                named[key.uuid] = None
            case Finish(change=Put() | Remove() as inner):
                named[uuid_of(inner)] = None
            case _:
                pass
    return list(named)


def only_creates(changes: Sequence[Change], uuids: Sequence[str]) -> bool:
    """Whether these changes do nothing but create different timers: then nothing needs to be looked at first."""
    return len(changes) == len(uuids) and all(isinstance(change, Put) and change.expect == 0 for change in changes)
