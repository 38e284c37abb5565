"""The reads of the timer table. Each sees every write that was acknowledged before it began: quorum meets quorum.

`get` may be the read after an unknown outcome, also after one of another instance, so it completes what is still open
in the partition: what it does not show will not appear later. Reads of the shards do so after unknown outcomes of this
instance. The others need not: what they miss is not yet acknowledged, and every step that follows from them is a
conditional write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.errors import StoreUnavailable
from mainspring.model import FOREVER, Attempt, Shard, Timer, TimerKey
from mainspring.store import PAGE_BYTES, START, DuePage, Position
from mainspring.stores.cassandra.committers import all_of
from mainspring.stores.cassandra.connection import STATEMENT_SECONDS, Connection, Row, Statement, Value
from mainspring.stores.cassandra.floor import Floor
from mainspring.stores.cassandra.rows import (
    END_OF_HISTORY,
    ShardColumns,
    Statements,
    ages_from,
    attempts_from,
    firsts_from,
    history_position,
    instants_from,
    place_of,
    row_bytes,
    shard_from,
    states_from,
    timers_from,
)
from mainspring.stores.cassandra.writer import NAMES_LIMIT, Writer
from mainspring.stores.pages import fitting
from mainspring.stores.partial_results import answered
from mainspring.unreadable import Unreadable, claimable, readable, timer_name

_ROUNDS: Final = 10
_FIRST_ROWS: Final = 64
_GROWTH: Final = 4


class Reader:
    def __init__(self, connection: Connection, statements: Statements, writer: Writer) -> None:
        self._connection = connection
        self._statements = statements
        self._writer = writer
        self._floor = Floor(connection, statements, writer)

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        found = {timer.key: timer for timer in readable(await self._get(keys))}
        return [found.get(key) for key in keys]

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        found = {row.name: row for row in await self._get(keys) if isinstance(row, Unreadable)}
        return [found.get(timer_name(key)) for key in keys]

    async def _get(self, keys: Sequence[TimerKey]) -> list[Timer | Unreadable]:
        by_shard: dict[int, dict[str, None]] = {}
        for key in keys:
            by_shard.setdefault(key.shard_id, {})[key.uuid] = None
        reads = [
            self._get_some(shard_id, list(uuids)[start : start + NAMES_LIMIT])
            for shard_id, uuids in by_shard.items()
            for start in range(0, len(uuids), NAMES_LIMIT)
        ]
        return [row for rows in await all_of(reads) for row in rows]

    async def _get_some(self, shard_id: int, uuids: Sequence[str]) -> list[Timer | Unreadable]:
        """A timer that moves between the two reads is looked for again."""
        found: list[Timer | Unreadable] = []
        missing = uuids
        for _ in range(_ROUNDS):
            places = await self._writer.look(shard_id, missing, serial=True)
            if not places:
                return found
            keys = [(place.due_at, uuid, b"") for uuid, place in places.items()]
            rows = await self._connection.read(self._statements.read_timers, shard_id, keys)
            found += timers_from(rows)
            missing = list(places.keys() - {place_of(row).uuid for row in rows})
            if not missing:
                return found
        raise StoreUnavailable(f"Expected timers of shard {shard_id} to stay for two reads, got {_ROUNDS} moves")

    async def behind(self, shard_id: int, after: Position, *, below: int, limit: int) -> list[Row]:
        """The first rows after a position that are due before `below`: at most `limit`, or as many as make up a page.

        Cassandra does not say how large rows are. So a few are read first, and then as many as there would be room for
        if the others were like them.
        """
        rows: list[Row] = []
        size = 0
        chunk = _FIRST_ROWS
        while len(rows) < limit and size <= PAGE_BYTES:
            wanted = min(chunk, limit - len(rows))
            found = await self._connection.read(self._statements.read_range, shard_id, *after, below, wanted)
            rows += found
            if len(found) < wanted:
                break
            size += sum(map(row_bytes, found))
            chunk = min(_GROWTH * chunk, max(1, (PAGE_BYTES - size) * len(rows) // max(size, 1)))
            after = place_of(rows[-1])
        return rows

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        if after.due_at > START.due_at:
            return await self._load(shard_id, until=until, after=after, limit=limit)
        floor = await self._floor.of(shard_id)
        page = await self._load(shard_id, until=until, after=floor, limit=limit)
        first = page.timers[0].due_at if page.timers else page.next_due_at
        await self._floor.raise_below(shard_id, until if first is None else min(first, until), present=floor)
        return page

    async def _load(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        """The page with one row more, and the first row that is not due: one of the two says what follows."""
        while True:
            later = after if after.due_at > until else Position(until + 1, "")
            due, not_due = await asyncio.gather(
                self.behind(shard_id, after, below=until + 1, limit=limit + 1),
                self._connection.read(self._statements.read_first, shard_id, *later, FOREVER),
            )
            page = due[: min(limit, fitting(map(row_bytes, due)))]
            following = [place_of(row).due_at for row in due[len(page) :]] or instants_from(not_due)
            timers = readable(timers_from(page))
            if timers or len(page) == len(due):
                return DuePage(timers, next((due_at for due_at in following if due_at < FOREVER), None))
            after = place_of(page[-1])

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        """Two round trips for many shards: where their rows begin, and the first row of each after that.

        Each shard is read from its own floor on, those with the same floor together.
        """
        states = await self._states(shard_ids)
        floors: dict[int, list[int]] = {}
        for shard_id, state in states.items():
            if isinstance(state, ShardColumns):
                floors.setdefault(START.due_at if state.due_from is None else state.due_from, []).append(shard_id)
        asked = [
            self._ask_each(self._statements.read_firsts, chunk, floor, FOREVER)
            for floor, group in floors.items()
            for chunk in _chunks(group)
        ]
        firsts: dict[int, int | BaseException | None] = {
            shard_id: state if isinstance(state, BaseException) else None for shard_id, state in states.items()
        }
        for rows, failures in await all_of(asked):
            firsts |= firsts_from(rows)
            firsts |= failures
        results = [firsts[shard_id] for shard_id in shard_ids]
        return [
            START.due_at if isinstance(result, BaseException) else instant
            for result, instant in zip(results, answered(results), strict=True)
        ]

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None, limit: int) -> list[Attempt]:
        if limit <= 0:
            return []
        end = END_OF_HISTORY if before is None else history_position(*before)
        attempts: list[Attempt] = []
        while len(attempts) < limit:  # unreadable ones do not count towards the limit
            rows = await self._connection.read(self._statements.read_history, key.shard_id, key.uuid, end, limit)
            attempts += readable(attempts_from(key, rows))
            if len(rows) < limit:
                break
            end = msgspec.convert(rows[-1][1], bytes)
        return attempts[:limit]

    async def oldest_history(
        self, shard_id: int, *, since: int, older_than: int, limit: int
    ) -> list[tuple[int, str, bytes]]:
        return ages_from(await self._connection.read(self._statements.read_ages, shard_id, since, older_than, limit))

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        states = await self._states(shard_ids)
        found = answered([states[shard_id] for shard_id in shard_ids])
        return claimable(
            None if state is None else shard_from(shard_id, state)
            for shard_id, state in zip(shard_ids, found, strict=True)
        )

    async def states(self, shard_ids: Sequence[int]) -> dict[int, ShardColumns]:
        """The columns of all of these shards."""
        states: dict[int, ShardColumns] = {}
        for shard_id, state in (await self._states(shard_ids)).items():
            if isinstance(state, BaseException):
                raise state
            states[shard_id] = state
        return states

    async def _states(self, shard_ids: Sequence[int]) -> dict[int, ShardColumns | BaseException]:
        """The columns of each shard, or why they are not known."""
        failed = await self._writer.complete(shard_ids)
        asked = [shard_id for shard_id in shard_ids if shard_id not in failed]
        states: dict[int, ShardColumns | BaseException] = dict.fromkeys(shard_ids, ShardColumns())
        reads = [self._ask_each(self._statements.read_shards, chunk) for chunk in _chunks(asked)]
        for rows, failures in await all_of(reads):
            states |= states_from(rows)
            states |= failures
        return states | failed

    async def _ask_each(
        self, statement: Statement, shard_ids: list[int], *values: Value
    ) -> tuple[list[Row], dict[int, BaseException]]:
        """The rows of these partitions, and the partitions that do not answer.

        One query names them all. It fails with any of them: then each is asked by itself, in the time that is left.
        """
        seconds = STATEMENT_SECONDS / 2
        try:
            return await self._connection.read(statement, shard_ids, *values, seconds=seconds), {}
        except StoreUnavailable as error:
            if len(shard_ids) == 1:
                return [], {shard_ids[0]: error}
        results = await asyncio.gather(
            *(self._connection.read(statement, [shard_id], *values, seconds=seconds) for shard_id in shard_ids),
            return_exceptions=True,
        )
        rows: list[Row] = []
        failures: dict[int, BaseException] = {}
        for shard_id, result in zip(shard_ids, results, strict=True):
            if isinstance(result, BaseException):
                failures[shard_id] = result
            else:
                rows += result
        return rows, failures


def _chunks(shard_ids: Sequence[int]) -> list[list[int]]:
    distinct = list(dict.fromkeys(shard_ids))
    return [distinct[start : start + NAMES_LIMIT] for start in range(0, len(distinct), NAMES_LIMIT)]
