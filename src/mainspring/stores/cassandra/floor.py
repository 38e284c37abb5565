"""Where the due rows of a shard begin.

A timer that has fired leaves a tombstone at the head of the due order for as long as `gc_grace_seconds`
says, and a read from the beginning passes over all of them: slow after thousands, refused after a hundred thousand.
So a shard's columns say from which instant on it has rows (`due_from`), and loads begin there.

Raising it takes three steps, any of which may be the last: set `due_guard`, after which whoever writes an
earlier timer lowers it again in the same batch; check that there is no row below; and raise `due_from`
on condition that the guard is still in place.
"""

from __future__ import annotations

from typing import Final

from mainspring.store import START, Position
from mainspring.stores.cassandra.connection import Connection
from mainspring.stores.cassandra.plan import DueGuard, Raise
from mainspring.stores.cassandra.rows import Statements
from mainspring.stores.cassandra.writer import Writer

RAISE_MS: Final = 10_000
"""The least by which it is raised: raising costs two writes."""
MARGIN_MS: Final = 5_000
"""How far it lags behind, so that timers that are due at once are not written below it."""
STEP_MS: Final = 5_000
"""Floors are multiples of this, so that equally busy shards have the same one, and share queries."""


class Floor:
    def __init__(self, connection: Connection, statements: Statements, writer: Writer) -> None:
        self._connection = connection
        self._statements = statements
        self._writer = writer

    async def of(self, shard_id: int) -> Position:
        """The position before the first due row."""
        state = await self._writer.state_of(shard_id)
        return START if state.due_from is None else Position(state.due_from, "")

    async def raise_below(self, shard_id: int, first: int, *, present: Position) -> None:
        """Nothing happens if the floor is near enough to `first`, or if somebody writes below it meanwhile."""
        due_from = (first - MARGIN_MS) // STEP_MS * STEP_MS
        if due_from - present.due_at < RAISE_MS:
            return
        await self._writer.apply([(shard_id, DueGuard(due_from))])
        below = await self._connection.read(self._statements.read_first, shard_id, *present, due_from)
        if not below:
            await self._writer.apply([(shard_id, Raise(due_from))])
