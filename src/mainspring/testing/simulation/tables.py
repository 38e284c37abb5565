"""What a simulated database holds, in dictionaries. What a group of requests does to it is decided by production code,
`stores.plan`, as in the relational stores.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

import msgspec
from msgspec.structs import replace

from mainspring.delivery.signatures import new_secret
from mainspring.model import FOREVER, Attempt, Namespace, Record, Shard, State, Timer, TimerKey, to_json
from mainspring.namespaces.service import DEFAULT, NAMESPACES, SEQUENCES, SHARDS
from mainspring.store import DuePage, ListPage, Position, TimerFilter, look_rows
from mainspring.stores.pages import PageBuilder, Part, filling, fitting, weight_of
from mainspring.stores.plan import Change, Plan, PruneHistory, PutRecord, Row, StoredRecord
from mainspring.testing.simulation.clock import EPOCH_MS
from mainspring.testing.simulation.plan import World

RowKey = tuple[int, str]


class Tables:
    """Writes in groups (`work`), reads one by one."""

    def __init__(self) -> None:
        self._timers: dict[RowKey, Timer] = {}
        self._due: defaultdict[int, list[Position]] = defaultdict(list)
        self._shards: dict[int, Shard] = {}
        self._history: defaultdict[int, dict[str, list[Attempt]]] = defaultdict(dict)
        self._records: dict[tuple[str, str], Record] = {}

    # --- writes -------------------------------------------------------------------------------------------

    def work(self, group: Sequence[Change]) -> None:
        """Decide and apply; every request has its answer afterwards."""
        plan = Plan(group)
        for key in plan.rows:
            if (stored := self._timers.get(key)) is not None:
                plan.rows[key] = Row(stored.version, stored.due_at)
        for shard_id in plan.shards:
            plan.shards[shard_id] = self._shards.get(shard_id, Shard(shard_id))
        for record_key in plan.records:
            if (record := self._records.get(record_key)) is not None:
                plan.records[record_key] = StoredRecord(record.version, record.expires_at)
        for request in group:
            plan.decide(request)
        self._apply(plan)
        for request in group:
            if isinstance(request, PruneHistory):
                request.answer = self._prune(request)

    def _apply(self, plan: Plan) -> None:
        for shard_id, _, uuid in plan.moved_or_removed():
            self._unlink(self._timers.pop((shard_id, uuid)))
        for timer in plan.written():
            self._link(timer)
        for shard, _, uuid, begins, begun, fence in plan.begun():
            timer = self._timers[shard, uuid]
            self._timers[shard, uuid] = replace(
                timer, state=State.RUNNING, attempts=timer.attempts + begins, version=begun, fence=fence
            )
        for key, attempt in plan.history:
            entries = self._history[key.shard_id].setdefault(key.uuid, [])
            if attempt not in entries:  # the same attempt reported twice is one entry
                insort(entries, attempt, key=_started)
        self._shards.update(plan.claimed)
        for record_key in plan.removed_records():
            self._records.pop(record_key, None)
        for written in plan.written_records():
            in_, name, value, version, expires_at = msgspec.convert(written, tuple[str, str, bytes, int, int | None])
            self._records[in_, name] = Record(name, value, version, expires_at)

    def _link(self, timer: Timer) -> None:
        self._timers[timer.shard_id, timer.uuid] = timer
        insort(self._due[timer.shard_id], Position(timer.due_at, timer.uuid))

    def _unlink(self, timer: Timer) -> None:
        due = self._due[timer.shard_id]
        del due[bisect_left(due, (timer.due_at, timer.uuid))]

    def _prune(self, request: PruneHistory) -> int:
        victims = msgspec.json.decode(request.victims, type=list[tuple[int, int, str, int, int]])
        pruned = 0
        for shard_id, _, uuid, started_at, attempt in victims:
            entries = self._history[shard_id].get(uuid, [])
            kept = [entry for entry in entries if _started(entry) != (started_at, attempt)]
            pruned += len(entries) - len(kept)
            self._history[shard_id][uuid] = kept
        return pruned

    # --- reads --------------------------------------------------------------------------------------------

    def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return [self._timers.get((key.shard_id, key.uuid)) for key in keys]

    def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        if limit <= 0:
            return ListPage([], None)
        start, end = where.part_after(after)
        parts = [self._part(shard_id, start, end) for shard_id in dict.fromkeys(shards)]
        look = look_rows(1) if where.is_selective else limit
        looked = list(islice(merge(*parts), look))
        page = PageBuilder(limit, looked[-1][0] if len(looked) == look else None)
        timers = [self._timers[shard_id, position.uuid] for position, shard_id in looked]
        page.add(Part([timer for timer in timers if where.matches(timer)], None, is_full=False))
        return page.page

    def _part(self, shard_id: int, start: Position, end: Position) -> Iterator[tuple[Position, int]]:
        due = self._due.get(shard_id, [])
        places = range(bisect_right(due, start), bisect_right(due, end))
        return ((due[place], shard_id) for place in places)

    def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        due = self._due.get(shard_id, [])
        start = bisect_right(due, after)
        end = max(start, min(start + limit, bisect_left(due, (until + 1, ""))))
        timers = [self._timers[shard_id, position.uuid] for position in due[start:end]]
        timers = timers[: fitting(map(weight_of, timers))]
        end = start + len(timers)
        following = due[end].due_at if end < len(due) else FOREVER
        return DuePage(timers, following if following < FOREVER else None)

    def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        earliest = [self._due[shard_id][0].due_at if self._due.get(shard_id) else FOREVER for shard_id in shard_ids]
        return [due_at if due_at < FOREVER else None for due_at in earliest]

    def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        attempts = self._history[key.shard_id].get(key.uuid, [])
        end = len(attempts) if before is None else bisect_left(attempts, before, key=_started)
        return attempts[max(0, end - limit) : end][::-1] if limit > 0 else []

    def old_history(self, shard_id: int, *, older_than: int, limit: int) -> str:
        """The oldest entries, as `PruneHistory` names them."""
        old = sorted(
            (attempt.started_at, attempt.attempt, uuid)
            for uuid, attempts in self._history[shard_id].items()
            for attempt in attempts
            if attempt.started_at < older_than
        )[:limit]
        return msgspec.json.encode([(shard_id, 0, uuid, started, attempt) for started, attempt, uuid in old]).decode()

    def shards(self, shard_ids: Sequence[int]) -> list[Shard]:
        return [self._shards.get(shard_id, Shard(shard_id)) for shard_id in shard_ids]

    def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        record = self._records.get((collection, key))
        return None if record is None or (record.expires_at is not None and record.expires_at <= now) else record

    def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        live = (
            record
            for (kept_in, key), record in sorted(self._records.items())
            if kept_in == collection and key > after and (record.expires_at is None or record.expires_at > now)
        )
        page = list(islice(live, limit))
        return page[: filling([len(record.value) for record in page])]


def first_namespace(tables: Tables, world: World, randomness: random.Random) -> Namespace:
    """The namespace of all timers, there before anybody starts."""
    namespace = Namespace(
        name=DEFAULT,
        first_shard=0,
        shard_count=world.shards,
        created_at=EPOCH_MS,
        updated_at=EPOCH_MS,
        secrets=(new_secret(randomness.randbytes(32)),),
        grouped=True,
    )
    found = {(NAMESPACES, DEFAULT): to_json(namespace), (SEQUENCES, SHARDS): str(world.shards).encode()}
    tables.work([PutRecord(key, Record(key[1], value, 1), expect=0, now=EPOCH_MS) for key, value in found.items()])
    return namespace


def _started(attempt: Attempt) -> tuple[int, int]:
    return attempt.started_at, attempt.attempt
