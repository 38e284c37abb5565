"""The write side: one group of requests, one transaction. Lock, look, decide, apply.

What was looked at is locked until the commit: shards shared (or exclusively, by claims), rows and records exclusively.
What somebody else holds is skipped, distinguished from what does not exist by a second look without a lock, and left
alone: a program may keep its transaction open for as long as it likes. Only claims wait, for whoever writes under the
old fence.

A row that is not there cannot be locked; if another transaction inserts it meanwhile, this one fails as `Overtaken`, is
rolled back and looks again. That does not retry a write: nothing was written. If the other transaction stays open,
the insert gives up after a moment as `Held`, and halving the group shows whose row it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from mainspring import crashpoint
from mainspring.errors import StoreUnavailable
from mainspring.model import Shard
from mainspring.store import Verdict
from mainspring.stores.plan import (
    BeginAttempts,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    Plan,
    PutRecord,
    RecordKey,
    ReleaseShards,
    StoredRecord,
    Write,
    only_creates,
)
from mainspring.stores.plan import Row as PlannedRow
from mainspring.stores.sql.bisection import WriteRequest
from mainspring.stores.sql.dialect import Held, Overtaken, Session, Statement, Undone, Unfit
from mainspring.stores.sql.pool import Pool
from mainspring.stores.sql.rows import (
    Row,
    history_row,
    places_from,
    record_row,
    record_versions_from,
    shards_from,
    timer_row,
)
from mainspring.stores.sql.statements import Statements, in_parts

LOOKS_LIMIT: Final = 20
PAUSE_SECONDS: Final = 0.001
"""Pauses before each look but the first two, longer each time: who is overtaken that often should step aside."""
BRIEF_MS: Final = 50
"""How long an insert waits for another of the same key."""
APART_MS: Final = 5
"""The same for part of a group: the whole group has already waited."""
PURGE_LIMIT: Final = 200
PURGE_EVERY: Final = 50
"""How many record writes there are between two looks for expired records."""


class Writer:
    def __init__(self, pool: Pool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements
        self._record_writes = 0

    async def work(self, group: list[WriteRequest], apart: bool) -> None:
        """`apart`: the group is part of one that was `Held` or `Unfit`, and is to find out which part of it is."""
        patient_until = asyncio.get_running_loop().time() + BRIEF_MS / 1000
        suspicious = apart
        try:
            if not apart and await self._create(group):
                return
        except Held:
            suspicious = True
        for look in range(LOOKS_LIMIT):
            if look > 1:
                await asyncio.sleep(PAUSE_SECONDS * look)
            try:
                await self._change(group, apart=apart, suspicious=suspicious)
            except Overtaken:
                suspicious = True
                continue
            except Held:
                if suspicious and (apart or asyncio.get_running_loop().time() > patient_until):
                    raise
                suspicious = True
                continue
            await self._purge(group)
            return
        raise StoreUnavailable(f"A row was changed by others each of the {LOOKS_LIMIT} times that it was to be written")

    async def _create(self, group: list[WriteRequest]) -> bool:
        """The common case without a look first: all rows are new. False, and nothing done, if one of them is not."""
        timers = only_creates(group)
        if timers is None:
            return False
        # In the order of their keys, like everybody: then nobody waits for somebody who waits for them.
        timers.sort(key=lambda timer: (timer.shard_id, timer.uuid))
        try:
            rows = [timer_row(timer) for timer in timers]
            inserts = list(self._statements.insert_timers(rows))
            if len(inserts) == 1:
                async with self._pool.session() as session:
                    crashpoint.reach(crashpoint.BEFORE_COMMIT)
                    await session.insert(*inserts[0], wait_ms=BRIEF_MS)
                    crashpoint.reach(crashpoint.AFTER_COMMIT)
            else:
                async with self._pool.transaction() as session:
                    await _insert(session, inserts, wait_ms=BRIEF_MS)
        except (Overtaken, Unfit, UnicodeError):
            return False
        for request in group:
            if isinstance(request, Write):
                request.answer = [Verdict.APPLIED] * len(request.items)
        return True

    async def _change(self, group: list[WriteRequest], *, apart: bool, suspicious: bool) -> None:
        """`suspicious`: something is held, and it may be what a request is to create."""
        plan = Plan(group)
        claims = any(isinstance(request, ClaimShards | ReleaseShards) for request in group)
        wait_ms = APART_MS if apart else BRIEF_MS
        async with self._pool.transaction() as session:
            claim_lock = session.row_lock if apart else "FOR UPDATE"
            stored = await self._look_at_shards(session, plan, claim_lock if claims else session.share_lock)
            if not claims:  # a row that is not there locks nothing
                unclaimed = sorted(_under_fence_0(group) - stored.keys() - plan.held)
                await self._insert_shards(session, [Shard(shard_id) for shard_id in unclaimed])
            locked = await self._look_at_rows(session, plan, suspicious=suspicious)
            for request in group:
                plan.decide(request)
            await self._apply_shards(session, plan, stored)
            await self._apply_timers(session, plan, wait_ms=wait_ms)
            await self._apply_records(session, plan, locked, wait_ms=wait_ms)

    # Lock and look

    async def _look_at_shards(self, session: Session, plan: Plan, lock: str) -> dict[int, Shard]:
        """The fence: whoever claims these shards waits for this transaction, never the other way round."""
        stored: dict[int, Shard] = {}
        for shard_ids in in_parts(sorted(plan.shards)):
            found = await session.fetch(*self._statements.shards(shard_ids, lock))
            stored.update((shard.shard_id, shard) for shard in shards_from(found))
            if missing := [shard_id for shard_id in shard_ids if shard_id not in stored]:
                there = shards_from(await session.fetch(*self._statements.shards(missing)))
                plan.held.update(shard.shard_id for shard in there)
        plan.shards.update(stored)
        return stored

    async def _look_at_rows(self, session: Session, plan: Plan, *, suspicious: bool) -> set[RecordKey]:
        """Read and lock what is there. Returns which records are: one that is not there locks nothing.

        What is not found is held or does not exist. For what is to be created, these need not be told apart yet: the
        insert will tell.
        """
        for keys in in_parts(sorted(plan.rows)):
            places = places_from(await session.fetch(*self._statements.places(keys, session.row_lock)))
            for shard_id, uuid, due_at, version in places:
                plan.rows[shard_id, uuid] = PlannedRow(version, due_at)
            if missing := [
                key for key in keys if plan.rows[key].place is None and (suspicious or key in plan.expected)
            ]:
                there = places_from(await session.fetch(*self._statements.places(missing)))
                plan.held.update((shard_id, uuid) for shard_id, uuid, _, _ in there)
        locked: set[RecordKey] = set()
        for names in in_parts(sorted(plan.records)):
            records = record_versions_from(
                await session.fetch(*self._statements.record_versions(names, session.row_lock))
            )
            for collection, key, version, expires_at in records:
                plan.records[collection, key] = StoredRecord(version, expires_at)
                locked.add((collection, key))
            if unlocked := [name for name in names if name not in locked and (suspicious or name in plan.expected)]:
                records = record_versions_from(await session.fetch(*self._statements.record_versions(unlocked)))
                plan.held.update((collection, key) for collection, key, _, _ in records)
        return locked

    # Apply

    async def _apply_shards(self, session: Session, plan: Plan, stored: dict[int, Shard]) -> None:
        await self._insert_shards(session, [shard for shard in plan.claimed.values() if shard.shard_id not in stored])
        changes: dict[tuple[int, str], list[Row]] = {}
        for shard_id, shard in sorted(plan.claimed.items()):
            if shard_id in stored:
                version = stored[shard_id].version
                changes.setdefault((shard.version - version, shard.owner), []).append((shard_id, version))
        for (growth, owner), keys in changes.items():
            for some in in_parts(keys):
                await _execute_on(len(some), session, self._statements.own_shards(some, growth=growth, owner=owner))

    async def _insert_shards(self, session: Session, shards: list[Shard]) -> None:
        rows: list[Row] = [(shard.shard_id, shard.version, shard.owner) for shard in shards]
        await _execute(session, self._statements.insert_shards(rows))

    async def _apply_timers(self, session: Session, plan: Plan, *, wait_ms: int) -> None:
        gone: list[Row] = []
        written: list[Row] = []
        new: list[Row] = []
        begun: dict[int, list[Row]] = {}
        for (shard_id, uuid), row in sorted(plan.rows.items(), key=_key):
            if row.place is not None and (row.timer is not None or row.is_removed):
                gone.append((shard_id, uuid))
            if row.timer is not None:
                written.append(timer_row(row.timer))
                if row.place is None:
                    new.append((shard_id, uuid))
            if row.begins:
                begun.setdefault(row.begins, []).append((shard_id, uuid, row.version - row.begins))
        for some in in_parts(gone):
            await _execute_on(len(some), session, self._statements.delete_timers(some))
        if session.key_lock:
            for some in in_parts(new):
                await session.fetch(*self._statements.places(some, session.key_lock))
        await _insert(session, self._statements.insert_timers(written), wait_ms=wait_ms)
        for begins, keys in begun.items():
            for some in in_parts(keys):
                await _execute_on(len(some), session, self._statements.begin_timers(some, begins=begins))
        history = sorted({history_row(*entry) for entry in plan.history}, key=str)
        await _execute(session, self._statements.insert_history(history))

    async def _apply_records(self, session: Session, plan: Plan, locked: set[RecordKey], *, wait_ms: int) -> None:
        """Only locked records are replaced. Any other is inserted, which fails if somebody was faster."""
        written = {key: record.written for key, record in sorted(plan.records.items(), key=_key) if record.written}
        for some in in_parts(sorted(locked & {*written, *plan.removed_records()})):
            await _execute_on(len(some), session, self._statements.delete_records(some))
        rows = [record_row(collection, record) for (collection, _), record in written.items()]
        if session.key_lock:
            for new in in_parts(sorted(written.keys() - locked)):
                await session.fetch(*self._statements.record_versions(new, session.key_lock))
        await _insert(session, self._statements.insert_records(rows), wait_ms=wait_ms)

    async def _purge(self, group: list[WriteRequest]) -> None:
        """Remove some expired records now and then, separately from the writes: it does not matter if that fails."""
        instants = [request.now for request in group if isinstance(request, PutRecord | DeleteRecord)]
        self._record_writes += len(instants)
        if self._record_writes < PURGE_EVERY:
            return
        self._record_writes = 0
        await self.purge(min(instants))  # nothing is purged that one of the callers has seen alive

    async def purge(self, now: int) -> None:
        """Remove some records that have expired, but none that somebody holds."""
        with suppress(StoreUnavailable, Undone):
            async with self._pool.transaction() as session:
                expired = self._statements.expired_records(now, PURGE_LIMIT, session.row_lock)
                found = record_versions_from(await session.fetch(*expired))
                keys = sorted((collection, key) for collection, key, _, _ in found)
                if keys:
                    await session.execute(*self._statements.delete_records(keys))


async def _execute(session: Session, statements: Iterable[Statement]) -> None:
    for statement in statements:
        await session.execute(*statement)


async def _insert(session: Session, statements: Iterable[Statement], *, wait_ms: int) -> None:
    for statement in statements:
        await session.insert(*statement, wait_ms=wait_ms)


async def _execute_on(rows: int, session: Session, statement: Statement) -> None:
    """All of these rows are locked and must be found again; otherwise the lock did not hold."""
    if await session.execute(*statement) != rows:
        raise Overtaken


def _key(item: tuple[tuple[int | str, str], object]) -> tuple[int | str, str]:
    return item[0]


def _under_fence_0(group: list[WriteRequest]) -> set[int]:
    return {
        item.key.shard_id
        for request in group
        if isinstance(request, BeginAttempts | FinishAttempts)
        for item in request.items
        if item.fence == 0
    }
