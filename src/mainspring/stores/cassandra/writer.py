"""One group, one conditional batch: look, decide, apply; and look again when the partition had changed meanwhile.

Every batch is conditional on the shard's columns (its version, the fence, among them) and on the place of every timer
it touches, so it is applied to exactly the state from which it was decided, or not at all. The looks only have to be
recent: an item that is refused was refused by a state that a quorum held while its caller waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from mainspring.errors import StoreUnavailable
from mainspring.model import State, Timer, to_json
from mainspring.store import BATCH_LIMIT, Finish, Put, Verdict
from mainspring.stores.cassandra.connection import Connection, Statement, Value
from mainspring.stores.cassandra.lanes import Lanes, all_of
from mainspring.stores.cassandra.plan import Change, Plan, Row, only_creates, uuids_named
from mainspring.stores.cassandra.rows import (
    Place,
    ShardState,
    Statements,
    history_entry,
    place_columns,
    places_from,
    shard_columns,
    states_from,
    timer_columns,
)

GROUP_BYTES: Final = 1024 * 1024
"""A batch travels as one mutation, and servers refuse those above some megabytes."""
NAMES_LIMIT: Final = 100
"""Rows named in one query: what Scylla accepts unasked."""
_ROUNDS: Final = 10
_STATES_LIMIT: Final = 100_000
_ROW_BYTES: Final = 256

Write = tuple[Statement, Sequence[Value]]


class Writer:
    """All writes of the timer table."""

    def __init__(self, connection: Connection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements
        self._states: dict[int, ShardState] = {}
        """The shards' columns as last seen: a guess, which the conditions check."""
        self._unsettled: set[int] = set()
        """Shards with a write of unknown outcome."""
        self._lanes: Lanes[int, Change, Verdict] = Lanes(
            self._commit, group_items=BATCH_LIMIT, group_weight=GROUP_BYTES
        )

    async def close(self) -> None:
        await self._lanes.close()

    async def apply(self, changes: Sequence[tuple[int, Change]]) -> list[Verdict]:
        """Changes with their shards. All of a shard are one batch, unless they are too many bytes for one."""
        by_shard: dict[int, list[int]] = {}
        for index, (shard_id, _) in enumerate(changes):
            by_shard.setdefault(shard_id, []).append(index)
        parts = [
            (shard_id, part, weight)
            for shard_id, indexes in by_shard.items()
            for part, weight in _within_limits(changes, indexes)
        ]
        answers = await all_of(
            [
                self._lanes.submit(shard_id, [changes[index][1] for index in part], weight=weight)
                for shard_id, part, weight in parts
            ]
        )
        verdicts = [Verdict.STALE] * len(changes)
        for (_, part, _), answer in zip(parts, answers, strict=True):
            for index, verdict in zip(part, answer, strict=True):
                verdicts[index] = verdict
        return verdicts

    async def look(self, shard_id: int, uuids: Sequence[str], *, serial: bool = False) -> dict[str, Place]:
        """The places of those timers that exist."""
        chunks = [list(uuids[start : start + NAMES_LIMIT]) for start in range(0, len(uuids), NAMES_LIMIT)]
        reads = [
            self._connection.read(self._statements.read_places, shard_id, chunk, serial=serial) for chunk in chunks
        ]
        places: dict[str, Place] = {}
        for rows in await all_of(reads):
            places |= places_from(rows)
        return places

    async def settle(self, shard_ids: Iterable[int]) -> None:
        """See to it that what became of writes of unknown outcome can be read, and cannot change any more."""
        for shard_id in self._unsettled.intersection(shard_ids):
            await self._connection.read(self._statements.read_shards, [shard_id], serial=True)
            self._unsettled.discard(shard_id)

    async def state_of(self, shard_id: int) -> ShardState:
        """The shard's columns as they stand now."""
        await self.settle([shard_id])
        rows = await self._connection.read(self._statements.read_shards, [shard_id])
        return self._remember(shard_id, states_from(rows).get(shard_id, ShardState()))

    async def _commit(self, shard_id: int, changes: list[Change]) -> list[Verdict]:
        try:
            return await self._write(shard_id, changes)
        except StoreUnavailable:
            self._unsettled.add(shard_id)
            raise

    async def _write(self, shard_id: int, changes: list[Change]) -> list[Verdict]:
        uuids = uuids_named(changes)
        known = self._states.get(shard_id)
        if known is not None and only_creates(changes, uuids):
            state, places = known, dict[str, Place]()  # the conditions find out whether it is so
        else:
            state, places = await self._look_at_all(shard_id, uuids)
        for _ in range(_ROUNDS):
            plan = Plan(state, places, uuids)
            verdicts = [plan.decide(change) for change in changes]
            if plan.changes_nothing or await self._connection.write_batch(_writes(shard_id, plan, self._statements)):
                self._remember(shard_id, plan.state)
                return verdicts
            state, places = await self._look_at_all(shard_id, uuids)
        raise StoreUnavailable(f"Expected shard {shard_id} to hold still for one write, got changes in {_ROUNDS} looks")

    async def _look_at_all(self, shard_id: int, uuids: Sequence[str]) -> tuple[ShardState, dict[str, Place]]:
        looking = asyncio.gather(self.state_of(shard_id), self.look(shard_id, uuids), return_exceptions=True)
        state, places = await looking
        if isinstance(state, BaseException):
            raise state
        if isinstance(places, BaseException):
            raise places
        return state, places

    def _remember(self, shard_id: int, state: ShardState) -> ShardState:
        if len(self._states) >= _STATES_LIMIT:
            self._states.clear()
        self._states[shard_id] = state
        return state


def _writes(shard_id: int, plan: Plan, statements: Statements) -> list[Write]:
    """What the plan leaves to be written. The shard's columns come first, changed or not: they are the fence."""
    condition = shard_columns(plan.found)
    writes: list[Write] = [(statements.write_shard, (*shard_columns(plan.state), shard_id, *condition))]
    for uuid, row in plan.rows.items():
        writes += _row_writes(shard_id, uuid, row, statements)
    for uuid, attempt in plan.history:
        entry, document = history_entry(attempt)
        writes.append((statements.write_attempt, (shard_id, uuid, entry, document)))
        writes.append((statements.write_age, (shard_id, attempt.started_at, uuid, entry)))
    if plan.forgotten:
        # One range instead of a mark for each: reads of what is oldest would have to pass over all of them.
        writes.append((statements.remove_ages, (shard_id, *max(plan.forgotten))))
        writes += [(statements.remove_attempt, (shard_id, uuid, entry)) for _, uuid, entry in plan.forgotten]
    return writes


def _row_writes(shard_id: int, uuid: str, row: Row, statements: Statements) -> list[Write]:
    condition = place_columns(row.place)
    old, timer = row.place, row.timer
    if timer is not None:
        place = place_columns(Place(timer.due_at, row.version, timer.attempts))
        writes: list[Write] = [
            (statements.write_place, (*place, shard_id, uuid, *condition)),
            (statements.write_timer, timer_columns(timer)),
        ]
        if old is not None and old.due_at != timer.due_at:
            writes.append((statements.remove_timer, (shard_id, old.due_at, uuid)))
        return writes
    if old is None:
        return []
    if row.is_removed:
        return [
            (statements.remove_place, (shard_id, uuid, *condition)),
            (statements.remove_timer, (shard_id, old.due_at, uuid)),
        ]
    if row.begins:
        attempts = old.attempts + row.begins
        begun = (State.RUNNING.value, attempts, row.version, row.fence)
        return [
            (statements.write_place, (old.due_at, row.version, attempts, shard_id, uuid, *condition)),
            (statements.begin_timer, (*begun, shard_id, old.due_at, uuid)),
        ]
    return []


def _within_limits(changes: Sequence[tuple[int, Change]], indexes: list[int]) -> list[tuple[list[int], int]]:
    """The indexes in runs that fit into one batch each, with the weights of the runs."""
    parts: list[tuple[list[int], int]] = []
    part: list[int] = []
    total = 0
    for index in indexes:
        weight = _weight(changes[index][1])
        if part and total + weight > GROUP_BYTES:
            parts.append((part, total))
            part, total = [], 0
        part.append(index)
        total += weight
    return [*parts, (part, total)]


def _weight(change: Change) -> int:
    """About how many bytes a change adds to a batch."""
    match change:
        case Put(timer):
            return _ROW_BYTES + _timer_bytes(timer)
        case Finish(change=inner, attempt=attempt):
            weight = _ROW_BYTES + (0 if attempt is None else len(to_json(attempt)))
            return weight + (_timer_bytes(inner.timer) if isinstance(inner, Put) else 0)
        case _:
            return _ROW_BYTES


def _timer_bytes(timer: Timer) -> int:
    names = len(timer.namespace) + len(timer.timer_id)
    return names + len(to_json(timer.detail)) + len((timer.payload or "").encode())
