"""The rows that jobs have in the engine: a *clock row* for each job, and a row for each launch that is under way.

They live in two system namespaces, made when the first job is. A clock row is a hint: what is to be done follows from
the definition, when the row is due. So any change is told by making it due now (`hasten`), and telling twice does no
harm.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.jobs.calendar import spread_ms
from mainspring.jobs.definition import Job, Terms
from mainspring.jobs.ledger import Launch, launch_id
from mainspring.jobs.messages import LaunchKind
from mainspring.jobs.request import UPCOMING
from mainspring.model import FOREVER, Detail, State, Timer, TimerKey, to_json
from mainspring.store import (
    BATCH_LIMIT,
    START,
    Position,
    Put,
    Remove,
    TimerFilter,
    TimerStore,
    Verdict,
    first_version,
    was_applied,
)
from mainspring.timers.namespaces import NamespaceService

CLOCKS: Final = "mainspring.jobs"
LAUNCHES: Final = "mainspring.launches"
_PATIENCE: Final = 100
_PAUSE_SECONDS: Final = 0.05
_NOWHERE: Final = "clock:"


class Errand(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The payload of a launch row: what its carrier cannot read from the definition."""

    kind: LaunchKind
    terms: Terms
    """Of the calendar by which it was planned."""
    previous: str = ""
    next_at: tuple[int, ...] = ()
    """The next instants, found out when there was time for it; nothing if they were not."""
    body: Raw | UnsetType = UNSET


class Rows:
    def __init__(
        self,
        *,
        store: TimerStore,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
        wake: Callable[[int, int], None],
    ) -> None:
        """`wake` tells the engine of a row."""
        self._store = store
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness
        self._wake = wake

    def new_delivery_id(self) -> str:
        return f"msg_{self._random.getrandbits(128):032x}"

    # --- clocks ---------------------------------------------------------------------------------------

    async def clocks(self, names: Sequence[str]) -> list[Timer | None]:
        namespace = await self._namespaces.system(CLOCKS)
        return await self._store.get([namespace.key_of(name) for name in names])

    async def start_clocks(self, names: Sequence[str]) -> None:
        """Have clocks that are due now: new rows where there are none."""
        namespace = await self._namespaces.system(CLOCKS)
        now = self._clock.now_ms()
        rows = []
        for name in names:
            key = namespace.key_of(name)
            detail = Detail(
                execute_at=now,
                callback_url=_NOWHERE,
                delivery_id=self.new_delivery_id(),
                created_at=now,
                updated_at=now,
            )
            rows.append(
                Timer(shard_id=key.shard_id, uuid=key.uuid, namespace=CLOCKS, timer_id=name, due_at=now, detail=detail)
            )
        verdicts = await self._put_new(rows)
        for row, verdict in zip(rows, verdicts, strict=True):
            if verdict is Verdict.STALE:
                await self.hasten(row.key)

    async def idle_clocks(self) -> list[Timer]:
        """Clocks that wait for no instant: of jobs that are paused, finished or broken, or gone."""
        if all(namespace.name != CLOCKS for namespace in self._namespaces.known):
            return []
        namespace = await self._namespaces.system(CLOCKS)
        where = TimerFilter(due_from=FOREVER)
        found: list[Timer] = []
        after = START
        while True:
            page = await self._store.list_timers(namespace.shards, where, after=after, limit=BATCH_LIMIT)
            found += page
            if len(page) < BATCH_LIMIT:
                return found
            after = Position(page[-1].due_at, page[-1].uuid)

    async def hasten_clock(self, name: str) -> None:
        await self.hasten((await self._namespaces.system(CLOCKS)).key_of(name))

    async def stop_clock(self, name: str) -> None:
        await self._remove((await self._namespaces.system(CLOCKS)).key_of(name))

    # --- launches -------------------------------------------------------------------------------------

    async def launches(self, identities: Sequence[str]) -> list[Timer | None]:
        namespace = await self._namespaces.system(LAUNCHES)
        return await self._store.get([namespace.key_of(identity) for identity in identities])

    async def launch(
        self,
        job: Job,
        launches: Sequence[tuple[str, Launch]],
        *,
        upcoming: Sequence[int] = (),
        body: Raw | UnsetType = UNSET,
    ) -> None:
        """Have rows for launches that are on record. One that has a row already keeps it.

        `upcoming` are the instants that follow on the first of the launches, in order, if they are known.
        """
        namespace = await self._namespaces.system(LAUNCHES)
        now = self._clock.now_ms()
        rows = []
        for mark, launch in launches:
            identity = launch_id(job.name, mark)
            key = namespace.key_of(identity)
            following = bisect_right(upcoming, launch.instant)
            errand = Errand(
                kind=launch.kind,
                terms=job.definition.terms,
                previous=launch.previous,
                next_at=tuple(upcoming[following : following + UPCOMING]),
                body=body,
            )
            due_at = launch.instant if launch.due_at is None else launch.due_at
            detail = Detail(
                execute_at=due_at,
                callback_url=job.url,
                delivery_id=launch.delivery_id,
                created_at=now,
                updated_at=now,
                callback_timeout_ms=round(job.definition.timeout_seconds * 1000),
                retry_policy=job.definition.policy,
            )
            rows.append(
                Timer(
                    shard_id=key.shard_id,
                    uuid=key.uuid,
                    namespace=LAUNCHES,
                    timer_id=identity,
                    due_at=max(due_at, now),
                    payload=to_json(errand).decode(),
                    detail=detail,
                )
            )
        await self._put_new(rows)

    async def hasten_launch(self, identity: str) -> None:
        await self.hasten((await self._namespaces.system(LAUNCHES)).key_of(identity))

    async def stop_launch(self, identity: str) -> None:
        await self._remove((await self._namespaces.system(LAUNCHES)).key_of(identity))

    # --- both -----------------------------------------------------------------------------------------

    async def hasten(self, key: TimerKey) -> None:
        """Have a row looked at once more from now on. One that is being looked at is waited for, a while.

        What has begun and is retried keeps the instant it was begun for: its repeats must decide as it did.
        """
        for _ in range(_PATIENCE):
            [row] = await self._store.get([key])
            now = self._clock.now_ms()
            if row is None or (row.state is not State.RUNNING and row.due_at <= now):
                return
            if row.state is State.RUNNING:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            detail = row.detail if row.attempts else replace(row.detail, execute_at=now)
            [verdict] = await self._store.write([Put(replace(row, due_at=now, detail=detail), row.version)])
            if was_applied(verdict):
                self._wake(row.shard_id, now)
                return

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

    async def _remove(self, key: TimerKey) -> None:
        while True:
            [row] = await self._store.get([key])
            if row is None:
                return
            [verdict] = await self._store.write([Remove(key, row.version)])
            if was_applied(verdict):
                return


def planned(job: Job, instant: int, kind: LaunchKind, *, previous: str, now: int, delivery_id: str) -> Launch:
    """The record of a launch that is to come."""
    return Launch(
        kind=kind,
        state="planned",
        instant=instant,
        planned_at=now,
        due_at=instant + spread_ms(job.name, instant, job.definition.jitter_seconds),
        counted=job.definition.max_runs is not None and kind in ("scheduled", "catchup"),
        previous=previous,
        delivery_id=delivery_id,
    )
