"""Both contracts in plain dictionaries: for tests, simulations and programs that need no durability.

No method waits, so every call is one atomic step of the event loop and a simulation stays deterministic.
Everything is lost when the process ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import ClassVar

from mainspring.clock import Clock
from mainspring.model import FOREVER, Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import (
    Begin,
    DuePage,
    Finish,
    ListPage,
    Position,
    Put,
    RecordPut,
    Remove,
    TimerFilter,
    Verdict,
    look_rows,
    next_version,
)
from mainspring.stores import rules
from mainspring.stores.pages import PageBuilder, Part, filling, fitting, weight_of
from mainspring.unreadable import Unreadable


class MemoryStore:
    """A `Store` without a database."""

    finishes_with_records: ClassVar = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[TimerKey, Timer] = {}
        self._due: defaultdict[int, list[Position]] = defaultdict(list)
        self._shards: dict[int, Shard] = {}
        self._history: defaultdict[int, dict[str, list[Attempt]]] = defaultdict(dict)
        self._records: defaultdict[str, dict[str, Record]] = defaultdict(dict)

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def time(self) -> int:
        return self._clock.now_ms()

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        return [self._change(change) for change in changes]

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return [self._timers.get(key) for key in keys]

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        """Rows are kept as they are, so all of them can be read."""
        return [None for _ in keys]

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        if limit <= 0:
            return ListPage([], None)
        start, end = where.part_after(after)
        parts = [self._part(shard_id, start, end) for shard_id in set(shards)]
        look = look_rows(1) if where.is_selective else limit
        looked = list(islice(merge(*parts), look))
        page = PageBuilder(limit, looked[-1][0] if len(looked) == look else None)
        timers = [self._timers[TimerKey(shard_id, position.uuid)] for position, shard_id in looked]
        page.add(Part([timer for timer in timers if where.matches(timer)], None, is_full=False))
        return page.page

    def _part(self, shard_id: int, start: Position, end: Position) -> Iterator[tuple[Position, int]]:
        due = self._due.get(shard_id, [])
        places = range(bisect_right(due, start), bisect_right(due, end))
        return ((due[place], shard_id) for place in places)

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        due = self._due.get(shard_id, [])
        start = bisect_right(due, after)
        end = min(start + limit, bisect_left(due, (until + 1, "")))
        timers = [self._timers[TimerKey(shard_id, position.uuid)] for position in due[start:end]]
        timers = timers[: fitting(map(weight_of, timers))]
        end = start + len(timers)
        following = due[end].due_at if end < len(due) else FOREVER
        return DuePage(timers, following if following < FOREVER else None)

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        earliest = (self._due[shard_id][0].due_at if self._due.get(shard_id) else FOREVER for shard_id in shard_ids)
        return [due_at if due_at < FOREVER else None for due_at in earliest]

    async def foreign_writes(self) -> int:
        """Nobody else can reach it."""
        return 0

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return [self._begin(item) for item in items]

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return [self._finish(item) for item in items]

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        attempts = self._history[key.shard_id].get(key.uuid, [])
        end = len(attempts) if before is None else bisect_left(attempts, before, key=_started)
        return attempts[max(0, end - limit) : end][::-1] if limit > 0 else []

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        kept = self._history[shard_id]
        old = sorted(
            (attempt.started_at, uuid)
            for uuid, attempts in kept.items()
            for attempt in attempts
            if attempt.started_at < older_than
        )[:limit]
        for _, uuid in old:
            kept[uuid].pop(0)
            if not kept[uuid]:
                del kept[uuid]
        return len(old)

    def _row(self, key: TimerKey) -> rules.Row[TimerKey]:
        stored = self._timers.get(key)
        return rules.Row(stored.version, key, stored) if stored else rules.Row()

    def _apply(self, key: TimerKey, row: rules.Row[TimerKey]) -> None:
        """Make the row what it is from now on."""
        if (stored := self._timers.pop(key, None)) is not None:
            due = self._due[key.shard_id]
            del due[bisect_left(due, (stored.due_at, key.uuid))]
        if row.timer is not None:
            self._timers[key] = row.timer
            insort(self._due[key.shard_id], Position(row.timer.due_at, key.uuid))

    def _change(self, change: Put | Remove) -> Verdict:
        row = self._row(change.key)
        verdict = rules.change(change, row)
        if verdict is Verdict.APPLIED:
            self._apply(change.key, row)
        return verdict

    def _begin(self, item: Begin) -> Verdict:
        row = self._row(item.key)
        verdict = rules.begin(item, fence=self._shard(item.key.shard_id).version, row=row)
        if verdict is Verdict.APPLIED and row.timer is not None:
            self._timers[item.key] = row.timer
        return verdict

    def _finish(self, item: Finish) -> Verdict:
        key = item.key if item.change is None else item.change.key
        row = self._row(key)
        fence = self._shard(item.key.shard_id).version
        put = item.record
        if put is not None and fence == item.fence and self._version(put) != put.expect:
            return Verdict.STALE
        verdict = rules.finish(item, fence=fence, row=row)
        if verdict is Verdict.APPLIED:
            self._apply(key, row)
            if put is not None:
                written = Record(put.key, put.value, next_version(put.expect, 1), put.expires_at)
                self._records[put.collection][put.key] = written
            if item.attempt is not None:
                attempts = self._history[item.key.shard_id].setdefault(item.key.uuid, [])
                if item.attempt not in attempts:  # the same attempt reported twice is one entry
                    insort(attempts, item.attempt, key=_started)
        return verdict

    def _version(self, put: RecordPut) -> int:
        present = self._present(put.collection, put.key, now=put.now)
        return 0 if present is None else present.version

    # Shards

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard]:
        return [self._shard(shard_id) for shard_id in shard_ids]

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return [self._own(rules.claim(self._shard(claim.shard_id), claim)) for claim in claims]

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return [self._own(rules.release(self._shard(claim.shard_id), claim)) for claim in claims]

    def _shard(self, shard_id: int) -> Shard:
        return self._shards.get(shard_id, Shard(shard_id))

    def _own(self, owned: Shard | Verdict) -> Verdict:
        if isinstance(owned, Verdict):
            return owned
        self._shards[owned.shard_id] = owned
        return Verdict.APPLIED

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return self._present(collection, key, now=now)

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        return [self._present(collection, key, now=now) for collection, key in wanted]

    def _present(self, collection: str, key: str, *, now: int) -> Record | None:
        record = self._records[collection].get(key)
        if record is not None and record.expires_at is not None and record.expires_at <= now:
            del self._records[collection][key]
            return None
        return record

    async def put_record(
        self,
        collection: str,
        key: str,
        value: bytes,
        *,
        expect: int,
        now: int,
        expires_at: int | None = None,
        first: int = 1,
    ) -> Record | None:
        present = await self.get_record(collection, key, now=now)
        if (present.version if present else 0) != expect:
            return None
        record = Record(key, value, next_version(expect, first), expires_at)
        self._records[collection][key] = record
        return record

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        present = await self.get_record(collection, key, now=now)
        if present is None or present.version != expect:
            return False
        del self._records[collection][key]
        return True

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        records = self._records[collection]
        live = (
            record
            for key, record in sorted(records.items())
            if key > after and (record.expires_at is None or record.expires_at > now)
        )
        page = list(islice(live, limit))
        return page[: filling([len(record.value) for record in page])]


def _started(attempt: Attempt) -> tuple[int, int]:
    return attempt.started_at, attempt.attempt
