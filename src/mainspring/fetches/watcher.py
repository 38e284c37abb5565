"""Notices that executors are gone, so that nobody waits for the watchdogs of their calls.

When a member vanishes, or when shards are taken over, the rows of running fetches in the shards concerned are looked
through, and those whose executor is dead become due: the carrier does the rest. Otherwise nothing is read: watchdogs
need no scan. It also gives `Overdue` its turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from mainspring import telemetry
from mainspring.errors import StoreUnavailable
from mainspring.fetches.ledger import Ledger
from mainspring.fetches.overdue import Overdue
from mainspring.store import START, Position, TimerFilter, TimerStore

LOOK_SECONDS: Final = 0.5
PAGE: Final = 500
_RUNNING: Final = TimerFilter(labels=(("state", "running"),))


class Watcher:
    def __init__(
        self,
        *,
        timers: TimerStore,
        ledger: Ledger,
        members: Callable[[], Iterable[str]],
        executor_gone: Callable[[], Awaitable[bool]],
        owned: Callable[[], Iterable[int]],
        lives: Callable[[str], Awaitable[bool]],
        overdue: Overdue,
    ) -> None:
        """`members` are the instances believed to be alive; `executor_gone` tells of executors that are none, once for
        each; `lives` asks the store. `owned`: shards."""
        self._timers = timers
        self._ledger = ledger
        self._members = members
        self._executor_gone = executor_gone
        self._owned = owned
        self._lives = lives
        self._overdue = overdue
        self._known_members: set[str] = set()
        self._known_shards: set[int] = set()
        self._were_gone = False
        self._unseen: set[int] = set()
        """Shards still to be looked through."""

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                await self.look()
                await self._overdue.look()
            except StoreUnavailable as error:
                telemetry.warning("fetches that nobody makes were not looked for", reason=error.detail)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        members, shards = set(self._members()), set(self._owned())
        gone = await self._executor_gone() or bool(self._known_members - members)
        # Twice, because the row of a call that was just handed over may not say yet that it runs.
        self._unseen |= shards if gone or self._were_gone else shards - self._known_shards
        self._were_gone = gone
        self._unseen &= shards
        self._known_members, self._known_shards = members, shards
        if self._unseen:
            looked = set(self._unseen)
            self._unseen -= looked - await self._look_through(looked)

    async def _look_through(self, shards: set[int]) -> set[int]:
        """Answers the shards in which something could not be done: they are looked through again."""
        again: set[int] = set()
        alive: dict[str, bool] = {}
        after = START
        while True:
            rows = await self._timers.list_timers(sorted(shards), _RUNNING, after=after, limit=PAGE)
            for row in rows:
                executor = row.detail.labels["executor"]
                if executor not in alive:
                    alive[executor] = await self._lives(executor)
                if not alive[executor] and row.shard_id not in again:
                    try:
                        await self._ledger.hasten(row)
                    except StoreUnavailable as error:
                        telemetry.warning("a fetch waits for the store", req_id=row.timer_id, reason=error.detail)
                        again.add(row.shard_id)
            if not rows:
                return again
            after = Position(rows[-1].due_at, rows[-1].uuid)
