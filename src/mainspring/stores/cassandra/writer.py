"""One group, one conditional batch: look, decide, apply; and look again if the partition has changed meanwhile.

Every batch is conditional on the shard's columns (its version, the fence, among them) and on the place of every timer
it touches, so it is applied to exactly the state on which it was decided, or not at all. The looks only have to be
recent: if an item is refused, it is because of a state that a quorum held while its caller waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from mainspring.errors import StoreUnavailable
from mainspring.model import State
from mainspring.store import BATCH_LIMIT, Begin, Finish, Put, Remove, Verdict
from mainspring.stores.cassandra.committers import Committers, all_of
from mainspring.stores.cassandra.connection import STATEMENT_SECONDS, Connection, Statement, Value
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
from mainspring.stores.groups import Capacity
from mainspring.stores.partly import verdicts
from mainspring.stores.sizes import ROW_BYTES, weigh

GROUP_BYTES: Final = 1024 * 1024
"""A batch travels as one mutation, and servers refuse those above some megabytes."""
NAMES_LIMIT: Final = 100
"""How many rows one query names: what Scylla accepts by default."""
_ROUNDS: Final = 10
_STATES_LIMIT: Final = 100_000

Write = tuple[Statement, Sequence[Value]]


class Writer:
    """All writes of the timer table."""

    def __init__(self, connection: Connection, statements: Statements, *, row_bytes: int) -> None:
        """`row_bytes` is the most that one row may take."""
        self._connection = connection
        self._statements = statements
        self._row_bytes = row_bytes
        self._states: dict[int, ShardState] = {}
        """The shards' columns as last seen: a guess, which the conditions check."""
        self._uncertain: set[int] = set()
        """Shards with a write of unknown outcome."""
        self._batch_bytes = min(GROUP_BYTES, row_bytes)
        self._committers: Committers[int, Change, Verdict] = Committers(
            self._commit, room=Capacity(BATCH_LIMIT, self._batch_bytes, in_order=True)
        )

    async def close(self) -> None:
        await self._committers.close()

    async def apply(self, changes: Sequence[tuple[int, Change]]) -> list[Verdict]:
        """Changes with their shards. All those of a shard are one batch, unless they have too many bytes for one."""
        results: list[Verdict | BaseException] = [Verdict.REFUSED] * len(changes)
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for index, (shard_id, change) in enumerate(changes):
            weight = self._weight(change)
            if weight is not None:
                by_shard.setdefault(shard_id, []).append((index, weight))
        parts = [
            (shard_id, part, weight)
            for shard_id, weighed in by_shard.items()
            for part, weight in _within(self._batch_bytes, weighed)
        ]
        answers = await asyncio.gather(
            *(
                self._committers.submit(shard_id, [changes[index][1] for index in part], size=weight)
                for shard_id, part, weight in parts
            ),
            return_exceptions=True,
        )
        for (_, part, _), answer in zip(parts, answers, strict=True):
            for place, index in enumerate(part):
                results[index] = answer if isinstance(answer, BaseException) else answer[place]
        return verdicts(results)

    def _weight(self, change: Change) -> int | None:
        """About how many bytes a change adds to a batch; None if no batch has room for it."""
        if not isinstance(change, Put | Remove | Begin | Finish):
            return ROW_BYTES
        return weigh(change, limit=self._row_bytes)

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

    async def complete(self, shard_ids: Iterable[int]) -> dict[int, BaseException]:
        """Make sure that the unknown outcome of earlier writes can be read, and can no longer change.

        Returns the shards for which this failed.
        """
        uncertain = list(self._uncertain.intersection(shard_ids))
        results = await asyncio.gather(*map(self._complete, uncertain), return_exceptions=True)
        return {
            shard_id: result
            for shard_id, result in zip(uncertain, results, strict=True)
            if isinstance(result, BaseException)
        }

    async def _complete(self, shard_id: int) -> None:
        await self._connection.read(
            self._statements.read_shards, [shard_id], serial=True, seconds=STATEMENT_SECONDS / 2
        )
        self._uncertain.discard(shard_id)

    async def state_of(self, shard_id: int) -> ShardState:
        """The shard's columns as they stand now."""
        for failure in (await self.complete([shard_id])).values():
            raise failure
        rows = await self._connection.read(self._statements.read_shards, [shard_id])
        return self._remember(shard_id, states_from(rows).get(shard_id, ShardState()))

    async def _commit(self, shard_id: int, changes: list[Change]) -> list[Verdict]:
        try:
            return await self._write(shard_id, changes)
        except StoreUnavailable:
            self._uncertain.add(shard_id)
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
        # One range instead of a tombstone for each: reads of the oldest entries would have to pass over all of them.
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


def _within(limit: int, weighed: list[tuple[int, int]]) -> list[tuple[list[int], int]]:
    """Runs of indexes that fit into one batch each, with the weight of each run."""
    parts: list[tuple[list[int], int]] = []
    part: list[int] = []
    total = 0
    for index, weight in weighed:
        if part and total + weight > limit:
            parts.append((part, total))
            part, total = [], 0
        part.append(index)
        total += weight
    return [*parts, (part, total)]
