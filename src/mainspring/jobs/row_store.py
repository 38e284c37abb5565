"""The rows of jobs at the store: reads and writes them.

A clock row is a hint: what is to be done follows from the definition, when the row is due. So any change is told by
making it due now (`tell_clock`), and telling twice does no harm. A recreated job has a new clock: what the old one knew
was about another job.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.webhook import new_delivery_id
from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.jobs.clock_state import ClockState
from mainspring.jobs.ledger import Run, launch_id
from mainspring.jobs.record import Job
from mainspring.jobs.rows import CLOCKS, RUNS, clock_row, hastened, read_state, run_row
from mainspring.model import FOREVER, State, Timer, TimerKey, to_json
from mainspring.namespaces.service import NamespaceService
from mainspring.store import (
    BATCH_LIMIT,
    Put,
    Remove,
    TimerFilter,
    TimerStore,
    Verdict,
    first_version,
    look,
    timer_pages,
    was_applied,
)

_PATIENCE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0


class MissingRows(Struct, frozen=True):
    """The stamps of runs that have no row."""

    refused: Sequence[str]
    """The database cannot hold them."""
    unwritten: Sequence[str]
    """Their part of the database cannot be reached: nobody knows whether they were written."""

    def check(self) -> None:
        """For callers that can ask again: everything that the database can hold should be written."""
        if self.unwritten:
            raise StoreUnavailable("Runs may not have been stored: their part of the database is unreachable")


class RowStore:
    def __init__(
        self,
        *,
        store: TimerStore,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
        wake: Callable[[int, int], None],
    ) -> None:
        """`wake` tells the engine about a row."""
        self._store = store
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness
        self._wake = wake

    def new_delivery_id(self) -> str:
        return new_delivery_id(self._random)

    # --- clocks ---------------------------------------------------------------------------------------

    async def clocks(self, names: Sequence[str]) -> list[Timer | None]:
        namespace = await self._namespaces.system(CLOCKS)
        return await self._store.get([namespace.key_of(name) for name in names])

    async def new_clock(self, name: str, state: ClockState) -> None:
        """Have a clock for a job that was just made: due now, and knowing what it needs to begin with.

        A row that is there already belongs to a deleted job of the same name, even if it is being looked at this very
        moment. It is replaced: the outcome of that look is not written, because the delivery has changed.
        """
        while True:
            fresh = await self._clock_row(name, state)
            row = await look(self._store, fresh.key)
            if (
                isinstance(row, Timer) and row.detail.created_at >= state.created_at
            ):  # somebody has seen the new job first
                return await self._tell(fresh)
            if isinstance(row, Timer):  # what that one has left behind is this one's to end
                state = replace(state, unwritten=read_state(row).unwritten)
                fresh = replace(fresh, payload=to_json(state).decode())
            if await self._write(fresh, expect=0 if row is None else row.version):
                return None

    async def tell_clock(self, name: str, state: ClockState | None) -> None:
        """Have the clock of a job look at it from now on; if there is none, a new one, which knows this much."""
        await self._tell(await self._clock_row(name, state))

    async def tell_clocks(self, names: Sequence[str]) -> list[str]:
        """The same for many. Returns those that could not be told: they stop no other."""
        rows = [await self._clock_row(name) for name in names]
        untold: list[str] = []
        for row, verdict in zip(rows, await self._put_new(rows), strict=True):
            try:
                if not was_applied(verdict):
                    await self._tell(row)
            except (StoreUnavailable, TooLarge) as error:
                telemetry.warning("the clock of a job could not be notified", job=row.timer_id, reason=error.detail)
                untold.append(row.timer_id)
        return untold

    async def _clock_row(self, name: str, state: ClockState | None = None) -> Timer:
        namespace = await self._namespaces.system(CLOCKS)
        return clock_row(name, state, namespace, delivery_id=self.new_delivery_id(), now=self._clock.now_ms())

    async def _tell(self, fresh: Timer) -> None:
        """Have the existing row looked at, or this one. It is written in any case: see `stop_clock`."""
        while not await self._hasten(fresh.key, anyway=True):
            [damaged] = await self._store.damaged([fresh.key])  # one that cannot be read is nobody's clock
            if await self._write(fresh, expect=0 if damaged is None else damaged.version):
                return

    async def idle_clocks(self) -> list[Timer]:
        """Clocks that wait for no instant: of jobs that are paused, finished or broken, or gone."""
        if all(namespace.name != CLOCKS for namespace in self._namespaces.known):
            return []
        namespace = await self._namespaces.system(CLOCKS)
        where = TimerFilter(due_from=FOREVER)
        return [row async for page in timer_pages(self._store, namespace.shards, where) for row in page]

    async def hasten_clock(self, name: str) -> None:
        await self._hasten((await self._namespaces.system(CLOCKS)).key_of(name))

    async def stop_clock(self, name: str, *, is_wanted: Callable[[], Awaitable[bool]]) -> None:
        """Remove the clock of a job that is gone, unless there is one of its name again.

        One that has begun to look ends by itself: there may be something on record that it has to make up for. So does
        one that has left runs behind.
        Whether there is one is asked after the row was read. Whoever makes a job writes its definition first and then,
        in any case, its clock: so either the definition is seen here, or the row has changed before it is removed.
        """
        key = (await self._namespaces.system(CLOCKS)).key_of(name)
        while True:
            [row] = await self._store.get([key])
            if row is None or row.attempts or await is_wanted():
                return
            if read_state(row).unwritten:
                await self._hasten(key)
                return
            if await self._remove(row):
                return

    # --- runs -------------------------------------------------------------------------------------

    async def runs(self, identities: Sequence[str]) -> list[Timer | None]:
        namespace = await self._namespaces.system(RUNS)
        return await self._store.get([namespace.key_of(identity) for identity in identities])

    async def add_runs(
        self,
        job: Job,
        runs: Sequence[tuple[str, Run]],
        *,
        upcoming: Sequence[int] = (),
        body: Raw | UnsetType = UNSET,
    ) -> MissingRows:
        """Have rows for runs that are on record. One that has a row already keeps it.

        `upcoming` are the instants that follow the first of the runs, in order, if they are known. Returns which runs
        have no row, or may have none: no other goes without one because of them.
        """
        namespace = await self._namespaces.system(RUNS)
        now = self._clock.now_ms()
        rows = [
            run_row(launch_id(job.name, stamp), job, run, namespace, upcoming=upcoming, body=body, now=now)
            for stamp, run in runs
        ]
        verdicts = await self._put_new(rows)
        stamps = [stamp for stamp, _ in runs]
        return MissingRows(
            [stamp for stamp, verdict in zip(stamps, verdicts, strict=True) if verdict is Verdict.REFUSED],
            [stamp for stamp, verdict in zip(stamps, verdicts, strict=True) if verdict is Verdict.UNAVAILABLE],
        )

    async def hasten_run(self, identity: str) -> None:
        await self._hasten((await self._namespaces.system(RUNS)).key_of(identity))

    async def stop_run(self, identity: str) -> None:
        key = (await self._namespaces.system(RUNS)).key_of(identity)
        while True:
            [row] = await self._store.get([key])
            if row is None or await self._remove(row):
                return

    # --- both -----------------------------------------------------------------------------------------

    async def _hasten(self, key: TimerKey, *, anyway: bool = False) -> bool:
        """Have a row looked at once more from now on. One that is being looked at is waited for, a while. False: none.

        Raises `StoreUnavailable` if the look takes longer: it may act on what it saw before, and has to be told again.
        One that is due need not be written, unless that is wanted `anyway`.
        """
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while self._clock.monotonic() < deadline:
            [row] = await self._store.get([key])
            now = self._clock.now_ms()
            if row is None:
                return False
            if row.state is State.RUNNING:
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause)
                continue
            if row.due_at <= now and not anyway:
                return True
            if await self._write(hastened(row, now), expect=row.version):
                return True
        raise StoreUnavailable("The row has been busy for a while and cannot be notified of the change")

    async def _put_new(self, rows: Sequence[Timer]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for start in range(0, len(rows), BATCH_LIMIT):
            batch = rows[start : start + BATCH_LIMIT]
            fresh = [replace(row, version=first_version(self._random)) for row in batch]
            written = await self._store.write([Put(row, 0) for row in fresh])
            for row, verdict in zip(batch, written, strict=True):
                if verdict is Verdict.APPLIED:
                    self._wake(row.shard_id, row.due_at)
            verdicts += written
        return verdicts

    async def _write(self, row: Timer, *, expect: int) -> bool:
        """False if the row is not as expected. Raises what `was_applied` does."""
        version = first_version(self._random) if expect == 0 else expect
        [verdict] = await self._store.write([Put(replace(row, version=version), expect)])
        if was_applied(verdict):
            self._wake(row.shard_id, row.due_at)
            return True
        return False

    async def _remove(self, row: Timer) -> bool:
        [verdict] = await self._store.write([Remove(row.key, row.version)])
        return was_applied(verdict)
