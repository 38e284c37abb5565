"""Notices that executors are gone, so that nobody waits for the watchdogs of their calls.

When a member vanishes, or when shards are taken over, the rows of running fetches in the shards concerned are looked
through, some at a time, and those whose executor is dead become due: the carrier does the rest. Otherwise nothing is
read: watchdogs need no scan. It also gives `Sweeper` its turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from mainspring.background import guarded, repeat
from mainspring.clock import Clock
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.rows import executor_of, in_state, read_rows
from mainspring.fetches.sweeper import Sweeper
from mainspring.store import START, Position, TimerStore

LOOK_SECONDS: Final = 0.5
PAGE: Final = 500
PAGES: Final = 4
"""How many of them one look reads at most from each shard; the next look continues from there."""
SHARDS: Final = 64
"""From how many shards one look reads."""
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
        clock: Clock,
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
        self._clock = clock
        self._overdue = overdue
        self._known_members: set[str] = set()
        self._known_shards: set[int] = set()
        self._were_gone = False
        self._unseen: dict[int, Position] = {}
        """Shards still to be looked through, those that have waited longest first, and how far each has been."""
        self._unsure: set[int] = set()
        """Of these, the ones to be looked through once more: whether some executor is alive could not be told."""

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
        unseen = shards if gone or self._were_gone else shards - self._known_shards
        self._were_gone = gone
        self._unseen |= dict.fromkeys(sorted(unseen), START)
        self._unseen = {shard_id: after for shard_id, after in self._unseen.items() if shard_id in shards}
        self._known_members, self._known_shards = members, shards
        alive: dict[str, bool | None] = {}
        for shard_id in list(self._unseen)[:SHARDS]:
            self._unseen[shard_id] = self._unseen.pop(shard_id)  # behind the others, whatever comes of it
            with guarded(_COMPLAINT, shard=shard_id):
                await self._look_through(shard_id, alive)

    async def _look_through(self, shard_id: int, alive: dict[str, bool | None]) -> None:
        """Some pages. `alive` are the executors asked about so far; None for those whose lease could not be read."""
        where = in_state("running", now=self._clock.now_ms())
        for _ in range(PAGES):
            after = self._unseen[shard_id]
            rows, end = await self._timers.list_timers([shard_id], where, after=after, limit=PAGE)
            for row, executor in read_rows(rows, lambda row: (row, executor_of(row))):
                if executor not in alive:
                    alive[executor] = None
                    with guarded("it is not known whether an executor is alive", executor=executor):
                        alive[executor] = await self._lives(executor)
                if alive[executor] is None:
                    self._unsure.add(shard_id)
                if alive[executor] is False:
                    await self._registry.hasten(row)
            self._unseen[shard_id] = START if end is None else end
            if end is None:
                if shard_id in self._unsure:
                    self._unsure.discard(shard_id)
                else:
                    del self._unseen[shard_id]
                return
