"""What a group of changes does to one shard: decided in order, without CQL.

A plan starts from what the partition holds of all that its changes name. Each change is decided against the shard
*as the changes before it leave it*, and at the end the plan says what remains to be written, once per row. So a
group behaves as if its changes had run one after another. The conditions of its batch decide whether the partition is
still as the plan found it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model import Attempt, Shard
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores import rules
from mainspring.stores.cassandra.rows import Place, ShardColumns


class Claim(Struct, frozen=True):
    shard: Shard


class Release(Struct, frozen=True):
    shard: Shard


class Forget(Struct, frozen=True):
    """Remove these entries of the history, the oldest there are: start, uuid and entry of each."""

    ages: Sequence[tuple[int, str, bytes]]


class DueGuard(Struct, frozen=True):
    """From now on, whoever writes a timer that is due before `at` has to say so in the shard's columns."""

    at: int


class Raise(Struct, frozen=True):
    """The due rows begin at `at`, if nobody has written an earlier one since the guard was set."""

    at: int


Change = Put | Remove | Begin | Finish | Claim | Release | Forget | DueGuard | Raise


class Row(rules.Row[Place]):
    """A timer as the group leaves it."""


class ShardPlan:
    def __init__(self, found: ShardColumns, places: Mapping[str, Place], uuids: Iterable[str]) -> None:
        self.found = found
        self.state = found
        self.rows: dict[str, Row] = {}
        for uuid in uuids:
            place = places.get(uuid)
            self.rows[uuid] = Row(place.version if place else 0, place)
        self.history: list[tuple[str, Attempt]] = []
        self.forgotten: list[tuple[int, str, bytes]] = []

    @property
    def changes_nothing(self) -> bool:
        touched = any(row.timer is not None or row.begins or row.is_removed for row in self.rows.values())
        return not (touched or self.history or self.forgotten or self.state != self.found)

    def decide(self, change: Change) -> Verdict:  # noqa: PLR0911  (a table of cases)
        match change:
            case Put() | Remove():
                return self._placed(change, rules.change(change, self.rows[change.key.uuid]))
            case Begin(key):
                return rules.begin(change, fence=self.state.version, row=self.rows[key.uuid])
            case Finish():
                return self._finish(change)
            case Claim(shard):
                return self._own(rules.claim(self._shard(shard.shard_id), shard))
            case Release(shard):
                return self._own(rules.release(self._shard(shard.shard_id), shard))
            case Forget(ages):
                self.forgotten += ages
                return Verdict.APPLIED
            case DueGuard(at):
                if self.state.due_guard is None or self.state.due_guard < at:
                    self.state = replace(self.state, due_guard=at)
                return Verdict.APPLIED
            case Raise(at):
                if self.state.due_guard is None or self.state.due_guard < at:
                    return Verdict.STALE
                if self.state.due_from is None or self.state.due_from < at:
                    self.state = replace(self.state, due_from=at)
                return Verdict.APPLIED

    def _finish(self, item: Finish) -> Verdict:
        row = None if item.change is None else self.rows[item.change.key.uuid]
        verdict = self._placed(item.change, rules.finish(item, fence=self.state.version, row=row))
        if verdict is Verdict.APPLIED and item.attempt is not None:
            self.history.append((item.key.uuid, item.attempt))
        return verdict

    def _placed(self, change: Put | Remove | None, verdict: Verdict) -> Verdict:
        """Record in the shard's columns that something is due before the guard."""
        if verdict is Verdict.APPLIED and isinstance(change, Put):
            due_at = change.timer.due_at
            if self.state.due_guard is not None and due_at < self.state.due_guard:
                self.state = replace(self.state, due_guard=due_at)
                if self.state.due_from is not None and due_at < self.state.due_from:
                    self.state = replace(self.state, due_from=due_at)
        return verdict

    def _shard(self, shard_id: int) -> Shard:
        return Shard(shard_id, self.state.version, self.state.owner)

    def _own(self, owned: Shard | Verdict) -> Verdict:
        if isinstance(owned, Verdict):
            return owned
        self.state = replace(self.state, version=owned.version, owner=owned.owner)
        return Verdict.APPLIED


def uuids_named(changes: Iterable[Change]) -> list[str]:
    """The timers whose places a plan needs, each once."""
    named: dict[str, None] = {}
    for change in changes:
        match change:
            case Put() | Remove() | Begin():
                named[change.key.uuid] = None
            case Finish(change=Put() | Remove() as inner):
                named[inner.key.uuid] = None
            case _:
                pass
    return list(named)


def only_creates(changes: Sequence[Change], uuids: Sequence[str]) -> bool:
    """Whether these changes do nothing but create different timers: then nothing needs to be looked at first."""
    return len(changes) == len(uuids) and all(isinstance(change, Put) and change.expect == 0 for change in changes)
