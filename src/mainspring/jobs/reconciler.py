"""Keeps the clocks in step with the registry, which other programs may write: one instance at a time, under a lock.

A look reads the registry page by page, and the clocks of each page in one query. If a definition is not the one that
its clock last saw, the clock is told; if its `lastRun` lags behind its clock, it is completed. A clock without a job
ends by itself at its next instant, or here if it waits for none. Nothing is done under the lock that a late holder
could spoil: being told is harmless, because a clock decides by the definition.

The holder is an instance, so it holds the lock no longer than it is alive: not when its lease as an instance may have
ended, whatever the lock's own says. That is why the others need not wait for the lock of one that died.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from mainspring import telemetry
from mainspring.background import repeat
from mainspring.clock import Clock
from mainspring.errors import LockLost, LockTaken, StoreUnavailable
from mainspring.jobs.last_runs import LastRuns
from mainspring.jobs.record import BrokenJob, Job
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import read_state
from mainspring.kernel.ownership import Ownership
from mainspring.locks import Held, Lock
from mainspring.store import BATCH_LIMIT, RecordStore

LOCK_NAME: Final = "cron:psj"
LOCK_SECONDS: Final = 90.0
FULL_LOOK_SECONDS: Final = 60.0
FOREIGN_LOOK_SECONDS: Final = 5.0
"""For a registry in a store of its own: what others write there is picked up within this time."""
RETRY_SECONDS: Final = 5.0
"""How soon those who do not hold the lock check whether its holder is still alive."""


class Reconciler:
    def __init__(
        self,
        *,
        registry: Registry,
        records: RecordStore,
        rows: RowStore,
        last_runs: LastRuns,
        clock: Clock,
        ownership: Ownership,
        randomness: random.Random,
        is_foreign: bool,
    ) -> None:
        """`records` is the store of the registry; `is_foreign` if it is not the one that holds the rows."""
        self._registry = registry
        self._rows = rows
        self._last_runs = last_runs
        self._clock = clock
        self._ownership = ownership
        self._lock = Lock(
            records,
            clock,
            LOCK_NAME,
            ttl_seconds=LOCK_SECONDS,
            owner=ownership.instance,
            is_gone=ownership.is_gone,
            randomness=randomness,
        )
        self._pause_seconds = FOREIGN_LOOK_SECONDS if is_foreign else FULL_LOOK_SECONDS
        self._seen: dict[str, str] = {}
        """For each job, the seal that its clock has seen, as of the last look."""
        self._full_look_at = 0.0

    async def run(self) -> None:
        """Look at the start and then again and again, whenever the lock can be had. Ends only by cancellation.

        The store may be out of reach, or another program may have written the lock: it waits for better days.
        """
        await repeat(self._look_while_held, seconds=RETRY_SECONDS, complaint="jobs were not reconciled")

    async def _look_while_held(self) -> None:
        try:
            async with self._lock.hold() as held:
                self._full_look_at = 0.0
                while True:
                    await self.look(held)
                    await asyncio.sleep(self._pause_seconds)
        except LockTaken:
            pass  # the lock has told the debug log
        except LockLost as error:
            telemetry.warning("jobs are reconciled by another instance", reason=error.detail)

    async def look(self, held: Held) -> None:
        monotonic = self._clock.monotonic()
        if monotonic >= self._full_look_at:
            self._seen.clear()
            self._full_look_at = monotonic + FULL_LOOK_SECONDS
        names: set[str] = set()
        after = ""
        while True:
            page, after = await self._registry.page(after=after, limit=BATCH_LIMIT)
            self._check(held)
            names.update(job.name for job in page)
            changed = {job.name: job for job in page if self._seen.get(job.name) != job.seal}
            if changed:
                await self._tell(changed)
            if not after:
                break
        for gone in self._seen.keys() - names:
            del self._seen[gone]
        self._check(held)
        await self._end_idle_clocks(names)

    def _check(self, held: Held) -> None:
        held.check()
        if not self._ownership.valid():
            raise LockLost("The lease of this instance has ended")

    async def _tell(self, changed: dict[str, Job | BrokenJob]) -> None:
        """Have the clocks look that have not seen the current definition."""
        try:
            rows = await self._rows.clocks(list(changed))
        except StoreUnavailable:
            rows = [None] * len(changed)  # some cannot be reached: the others are told, even if for nothing
        states = {name: None if row is None else read_state(row) for name, row in zip(changed, rows, strict=True)}
        stale = [name for name, state in states.items() if state is None or state.seal != changed[name].seal]
        untold: list[str] = []
        if stale:
            telemetry.debug("clocks of jobs were asked to look again", count=len(stale))
            untold = await self._rows.tell_clocks(stale)
        self._seen.update({name: job.seal for name, job in changed.items() if name not in untold})
        await self._last_runs.complete(
            {name: (changed[name], state) for name, state in states.items() if state is not None}
        )

    async def _end_idle_clocks(self, names: set[str]) -> None:
        """Remove clocks that wait for nothing and whose job is gone."""
        for row in await self._rows.idle_clocks():
            if row.timer_id not in names:
                await self._rows.stop_clock(row.timer_id, is_wanted=partial(self._exists, row.timer_id))

    async def _exists(self, name: str) -> bool:
        return await self._registry.get(name) is not None
