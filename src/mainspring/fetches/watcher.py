"""Notices that executors are gone, so that nobody waits for the watchdogs of their calls.

When a member vanishes, or when shards are taken over, the rows of running fetches in the shards concerned are looked
through, and those whose executor is dead become due: the carrier does the rest. Otherwise nothing is read: watchdogs
need no scan. It also gives `Sweeper` its turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from mainspring.background import guarded, repeat
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.rows import executor_of, read_rows
from mainspring.fetches.sweeper import Sweeper
from mainspring.store import TimerFilter, TimerStore, timer_pages

LOOK_SECONDS: Final = 0.5
PAGE: Final = 500
_RUNNING: Final = TimerFilter(labels=(("state", "running"),))
_COMPLAINT: Final = "could not look for fetches that no executor is making"


class Watcher:
    def __init__(
        self,
        *,
        timers: TimerStore,
        registry: FetchRegistry,
        members: Callable[[], Iterable[str]],
        executor_gone: Callable[[], Awaitable[bool]],
        owned: Callable[[], Iterable[int]],
        lives: Callable[[str], Awaitable[bool]],
        overdue: Sweeper,
    ) -> None:
        """`members` are the instances believed to be alive; `executor_gone` reports executors that are not instances,
        once each; `lives` asks the store. `owned`: shards."""
        self._timers = timers
        self._registry = registry
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
        await repeat(self._turn, seconds=LOOK_SECONDS, complaint="fetches that nobody begins were not looked for")

    async def _turn(self) -> None:
        with guarded(_COMPLAINT):
            await self.look()
        await self._overdue.look()

    async def look(self) -> None:
        members, shards = set(self._members()), set(self._owned())
        gone = await self._executor_gone() or bool(self._known_members - members)
        # Twice, because the row of a call that was just handed over may not yet say that it runs.
        self._unseen |= shards if gone or self._were_gone else shards - self._known_shards
        self._were_gone = gone
        self._unseen &= shards
        self._known_members, self._known_shards = members, shards
        alive: dict[str, bool | None] = {}
        for shard_id in sorted(self._unseen):
            with guarded(_COMPLAINT, shard=shard_id):
                if await self._look_through(shard_id, alive):
                    self._unseen.discard(shard_id)

    async def _look_through(self, shard_id: int, alive: dict[str, bool | None]) -> bool:
        """False if something is not known, so that it has to be looked through again.

        `alive` are the executors asked about so far; None for those whose lease could not be read.
        """
        is_sure = True
        async for rows in timer_pages(self._timers, [shard_id], _RUNNING, limit=PAGE):
            for row, executor in read_rows(rows, lambda row: (row, executor_of(row))):
                if executor not in alive:
                    alive[executor] = None
                    with guarded("it is not known whether an executor is alive", executor=executor):
                        alive[executor] = await self._lives(executor)
                is_sure &= alive[executor] is not None
                if alive[executor] is False:
                    await self._registry.hasten(row)
        return is_sure
