"""Hypothesis state machines: random sequences of calls, compared with a plain model after every step.

    TestTimers = timer_machine(open_store).TestCase

`open_store` makes an empty, open store. A failing example is printed as the calls that lead to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from mainspring.model import FOREVER, Attempt, Record, Shard, State, Timer, TimerKey
from mainspring.store import START, Begin, Finish, Position, Put, Remove, Store, TimerFilter, Verdict
from mainspring.testing.timer_samples import NOW, attempt, key_of, timer

T = TypeVar("T")
OpenStore = Callable[[], Awaitable[Store]]

BOUNDED = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])

_SHARDS = (0, 1)
_names = st.sampled_from(["a", "b", "c", "d%", "é"])
_shards = st.sampled_from(_SHARDS)
_instants = st.sampled_from([NOW, NOW + 1, NOW + 2, FOREVER])
_versions = st.integers(0, 4)
_fences = st.integers(0, 3)
_keys = st.builds(lambda name, shard_id: key_of(name, shard_id=shard_id), _names, _shards)
_timers = st.builds(
    lambda name, shard_id, due_at, state: timer(name, shard_id=shard_id, due_at=due_at, state=state),
    _names,
    _shards,
    _instants,
    st.sampled_from(State),
)
_attempts = st.builds(
    lambda number, day: attempt(number, started_at=NOW + day * 86_400_000), st.integers(1, 3), _versions
)
_changes = st.one_of(st.builds(Put, _timers, _versions), st.builds(Remove, _keys, _versions))


class _OpenedStore(RuleBasedStateMachine):
    """A store on an event loop of its own."""

    open_store: OpenStore

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = self.run(self._open())

    def run(self, call: Coroutine[object, object, T]) -> T:
        return self.runner.run(call)

    async def _open(self) -> Store:
        return await type(self).open_store()

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()


class TimerMachine(_OpenedStore):
    """`TimerStore` against dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[TimerKey, Timer] = {}
        self.owners: dict[int, Shard] = {}
        self.attempts: dict[TimerKey, list[Attempt]] = {}

    @rule(changes=st.lists(_changes, max_size=6))
    def write(self, changes: list[Put | Remove]) -> None:
        assert self.run(self.store.write(changes)) == [self.changed(change) for change in changes]

    @rule(items=st.lists(st.builds(Begin, _keys, _fences, _versions), max_size=6))
    def begin(self, items: list[Begin]) -> None:
        assert self.run(self.store.begin(items)) == [self.begun(item) for item in items]

    @rule(data=st.data(), fence=_fences, entry=st.none() | _attempts)
    def finish(self, data: st.DataObject, fence: int, entry: Attempt | None) -> None:
        change = data.draw(st.none() | _changes)
        key = data.draw(_keys) if change is None else _key_of(change)
        item = Finish(key, fence, change, entry)
        assert self.run(self.store.finish([item])) == [self.finished(item)]

    @rule(shard_id=_shards, version=_fences, owner=st.sampled_from(["x", "y"]))
    def claim(self, shard_id: int, version: int, owner: str) -> None:
        applied = self.owner(shard_id).version == version
        if applied:
            self.owners[shard_id] = Shard(shard_id, version + 1, owner)
        claims = [Shard(shard_id, version, owner)]
        assert self.run(self.store.claim_shards(claims)) == [Verdict.APPLIED if applied else Verdict.STALE]

    @rule(shard_id=_shards, version=_fences, owner=st.sampled_from(["x", "y"]))
    def release(self, shard_id: int, version: int, owner: str) -> None:
        claim = Shard(shard_id, version, owner)
        applied = self.owner(shard_id) == claim and version > 0
        if applied:
            self.owners[shard_id] = replace(claim, owner="")
        assert self.run(self.store.release_shards([claim])) == [Verdict.APPLIED if applied else Verdict.STALE]

    @rule(shard_id=_shards, until=_instants.filter(lambda instant: instant < FOREVER), limit=st.integers(1, 4))
    def load_due(self, shard_id: int, until: int, limit: int) -> None:
        rows = [row for row in self.in_order() if row.shard_id == shard_id]
        page = [row for row in rows if row.due_at <= until][:limit]
        following = [row.due_at for row in rows[len(page) :] if row.due_at < FOREVER]
        loaded = self.run(self.store.load_due(shard_id, until=until, after=START, limit=limit))
        assert loaded == (page, following[0] if following else None)

    @rule(prefix=st.sampled_from(["", "a", "d%", "%"]), state=st.none() | st.sampled_from(State), after=_instants)
    def list_page(self, prefix: str, state: State | None, after: int) -> None:
        where = TimerFilter(id_prefix=prefix, states=() if state is None else (state,))
        expected = [
            row
            for row in self.in_order()
            if row.timer_id.startswith(prefix) and state in (None, row.state) and row.due_at >= after
        ]
        listed, _ = self.run(self.store.list_timers(_SHARDS, where, after=Position(after, ""), limit=3))
        assert [_place(row) for row in listed] == [_place(row) for row in expected[:3]]

    @rule(shard_id=_shards, days=_versions)
    def prune(self, shard_id: int, days: int) -> None:
        older_than = NOW + days * 86_400_000
        removed = 0
        for key, entries in self.attempts.items():
            if key.shard_id == shard_id:
                kept = [entry for entry in entries if entry.started_at >= older_than]
                removed += len(entries) - len(kept)
                entries[:] = kept
        assert self.run(self.store.prune_history(shard_id, older_than=older_than, limit=1000)) == removed

    @invariant()
    def earliest_instants_are_equal(self) -> None:
        due = [[row.due_at for row in self.rows.values() if row.shard_id == shard_id] for shard_id in _SHARDS]
        earliest = [min((instant for instant in instants if instant < FOREVER), default=None) for instants in due]
        assert self.run(self.store.next_due(_SHARDS)) == earliest

    @invariant()
    def rows_are_equal(self) -> None:
        keys = sorted(self.rows, key=lambda key: (key.shard_id, key.uuid))
        assert self.run(self.store.get(keys)) == [self.rows[key] for key in keys]
        listed, _ = self.run(self.store.list_timers(_SHARDS, TimerFilter(), after=START, limit=100))
        assert {row.key for row in listed} == set(self.rows)
        assert len(listed) == len(self.rows)

    @invariant()
    def shards_and_history_are_equal(self) -> None:
        assert self.run(self.store.shards(_SHARDS)) == [self.owner(shard_id) for shard_id in _SHARDS]
        for key, entries in self.attempts.items():
            newest_first = sorted(entries, key=lambda entry: (entry.started_at, entry.attempt), reverse=True)
            assert self.run(self.store.history(key)) == newest_first

    # The model

    def owner(self, shard_id: int) -> Shard:
        return self.owners.get(shard_id, Shard(shard_id))

    def in_order(self) -> list[Timer]:
        return sorted(self.rows.values(), key=_place)

    def changed(self, change: Put | Remove) -> Verdict:
        key = _key_of(change)
        version = self.rows[key].version if key in self.rows else 0
        if version != change.expect or (isinstance(change, Remove) and version == 0):
            return Verdict.STALE
        if isinstance(change, Put):
            self.rows[key] = replace(change.timer, version=version + 1)
        else:
            del self.rows[key]
        return Verdict.APPLIED

    def begun(self, item: Begin) -> Verdict:
        if self.owner(item.key.shard_id).version != item.fence:
            return Verdict.FENCED
        row = self.rows.get(item.key)
        if row is None or row.version != item.expect:
            return Verdict.STALE
        self.rows[item.key] = replace(
            row, state=State.RUNNING, attempts=row.attempts + 1, version=row.version + 1, fence=item.fence
        )
        return Verdict.APPLIED

    def finished(self, item: Finish) -> Verdict:
        if self.owner(item.key.shard_id).version != item.fence:
            return Verdict.FENCED
        verdict = Verdict.APPLIED if item.change is None else self.changed(item.change)
        if verdict is Verdict.APPLIED and item.attempt is not None:
            entries = self.attempts.setdefault(item.key, [])
            if item.attempt not in entries:
                entries.append(item.attempt)
        return verdict


class RecordMachine(_OpenedStore):
    """`RecordStore` against a dictionary. Time only goes forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.records: dict[tuple[str, str], Record] = {}

    @rule(by=st.integers(0, 3))
    def wait(self, by: int) -> None:
        self.now += by

    @rule(
        collection=st.sampled_from("AB"),
        key=_names,
        value=st.binary(max_size=4),
        expect=_versions,
        lifetime=st.none() | st.integers(0, 4),
    )
    def put(self, collection: str, key: str, value: bytes, expect: int, lifetime: int | None) -> None:
        expires_at = None if lifetime is None else self.now + lifetime
        expected = None
        if self.version(collection, key) == expect:
            expected = self.records[collection, key] = Record(key, value, expect + 1, expires_at)
        call = self.store.put_record(collection, key, value, expect=expect, now=self.now, expires_at=expires_at)
        assert self.run(call) == expected

    @rule(collection=st.sampled_from("AB"), key=_names, expect=_versions)
    def delete(self, collection: str, key: str, expect: int) -> None:
        expected = expect > 0 and self.version(collection, key) == expect
        if expected:
            del self.records[collection, key]
        assert self.run(self.store.delete_record(collection, key, expect=expect, now=self.now)) == expected

    @invariant()
    def collections_are_equal(self) -> None:
        for collection in "AB":
            live = [
                record
                for (owner, key), record in sorted(self.records.items())
                if owner == collection and self.version(collection, key)
            ]
            assert self.run(self.store.scan_records(collection, now=self.now)) == live
            assert (
                self.run(self.store.scan_records(collection, now=self.now, after="b", limit=2))
                == [record for record in live if record.key > "b"][:2]
            )
            for record in live:
                assert self.run(self.store.get_record(collection, record.key, now=self.now)) == record

    def version(self, collection: str, key: str) -> int:
        record = self.records.get((collection, key))
        if record is None or (record.expires_at is not None and record.expires_at <= self.now):
            return 0
        return record.version


def timer_machine(open_store: OpenStore) -> type[TimerMachine]:
    class BoundTimerMachine(TimerMachine):
        pass

    return _bind(BoundTimerMachine, open_store)


def record_machine(open_store: OpenStore) -> type[RecordMachine]:
    class BoundRecordMachine(RecordMachine):
        pass

    return _bind(BoundRecordMachine, open_store)


M = TypeVar("M", bound=_OpenedStore)


def _bind(machine: type[M], open_store: OpenStore) -> type[M]:
    machine.open_store = staticmethod(open_store)
    machine.TestCase.settings = BOUNDED
    return machine


def _key_of(change: Put | Remove) -> TimerKey:
    return change.timer.key if isinstance(change, Put) else change.key


def _place(row: Timer) -> tuple[int, str]:
    return row.due_at, row.uuid
