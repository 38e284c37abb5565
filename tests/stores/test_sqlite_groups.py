"""A group of requests in one transaction does what the same requests do one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.model import Record, Shard
from mainspring.store import START, Begin, Finish, Put, Remove, TimerFilter, Verdict
from mainspring.stores.memory import MemoryStore
from mainspring.stores.plan import (
    Batch,
    BeginAttempts,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    ReleaseShards,
    Write,
    WriteRequest,
)
from mainspring.stores.sqlite import SQLiteStore
from mainspring.stores.sqlite.checkpoint import Checkpointer
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.writer import Writer
from mainspring.testing.timer_samples import NOW, attempt, create, key_of, timer

A, B = key_of("a"), key_of("b")

GROUPS: dict[str, list[WriteRequest]] = {
    "a row that is begun and removed": [
        BeginAttempts([Begin(A, 1, 1)]),
        FinishAttempts([Finish(A, 1, Remove(A, 2), attempt())]),
        Write([Remove(A, 2), Remove(B, 1)]),
    ],
    "a row that is begun and rewritten": [
        BeginAttempts([Begin(A, 1, 1), Begin(A, 1, 2)]),
        Write([Put(timer("a", due_at=NOW + 5), 3)]),
        Write([Put(timer("b", due_at=NOW), 1), Put(timer("b", payload="1"), 2)]),
    ],
    "a row that is rewritten and begun": [
        Write([Put(timer("a", due_at=NOW - 5), 1)]),
        BeginAttempts([Begin(A, 1, 2), Begin(A, 1, 2), Begin(B, 1, 1)]),
    ],
    "a row that is removed, made again and begun": [
        Write([Remove(A, 1)]),
        BeginAttempts([Begin(A, 1, 1)]),
        Write([Put(timer("a", due_at=NOW + 1), 0)]),
        BeginAttempts([Begin(A, 1, 1)]),
    ],
    "a row that is made and removed": [
        Write([Put(timer("new"), 0)]),
        Write([Put(timer("new"), 0)]),
        Write([Remove(key_of("new"), 1)]),
    ],
    "an owner that is deposed in between": [
        BeginAttempts([Begin(A, 1, 1)]),
        ClaimShards([Shard(0, 1, "new"), Shard(7, 0, "new")]),
        ClaimShards([Shard(0, 1, "late")]),
        FinishAttempts([Finish(A, 1, Remove(A, 2), attempt()), Finish(B, 1, None, attempt())]),
        BeginAttempts([Begin(A, 2, 2), Begin(B, 1, 1)]),
        ReleaseShards([Shard(0, 2, "late"), Shard(0, 2, "new")]),
    ],
}


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    database = Database(str(tmp_path / "test.db"), 2_000)
    database.create_file()
    checkpointer = Checkpointer(database)
    writer = Writer(database, checkpointer)
    yield writer
    writer.close()
    checkpointer.close()


@pytest.mark.parametrize("name", GROUPS)
async def test_a_group_equals_its_requests_in_order(name: str, writer: Writer, tmp_path: Path) -> None:
    grouped, in_order = SQLiteStore(str(tmp_path / "test.db")), MemoryStore(SystemClock())
    await grouped.open()
    for store in (grouped, in_order):
        await store.claim_shards([Shard(0, 0, "me")])
        await create(store, timer("a"), timer("b"))
    group = GROUPS[name]
    writer.work(group)
    assert [request.answer for request in group] == [await _run(in_order, request) for request in group]
    for store in (grouped, in_order):
        assert await store.shards([0, 7]) == await in_order.shards([0, 7])
        assert await store.history(A) + await store.history(B) == await in_order.history(A) + await in_order.history(B)
    rows = (await grouped.list_timers([0], TimerFilter(), after=START, limit=9)).timers
    assert rows == (await in_order.list_timers([0], TimerFilter(), after=START, limit=9)).timers
    await grouped.close()


async def _run(store: MemoryStore, request: WriteRequest) -> list[Verdict]:
    match request:
        case Write(items=changes):
            return await store.write(changes)
        case BeginAttempts(items=begins):
            return await store.begin(begins)
        case FinishAttempts(items=finishes):
            return await store.finish(finishes)
        case ClaimShards(items=claims):
            return await store.claim_shards(claims)
        case ReleaseShards(items=claims):
            return await store.release_shards(claims)
        case _:
            raise AssertionError(f"Expected a batch, got {request}")


async def test_records_of_a_group_are_decided_in_order(writer: Writer, tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "test.db"))
    await store.open()
    await store.put_record("c", "k", b"0", expect=0, now=NOW, expires_at=NOW + 5)
    group: list[WriteRequest] = [
        PutRecord(("c", "k"), Record("k", b"1", 2), expect=1, now=NOW),
        PutRecord(("c", "k"), Record("k", b"2", 2), expect=1, now=NOW),
        DeleteRecord(("c", "k"), expect=2, now=NOW),
        PutRecord(("c", "k"), Record("k", b"3", 1, NOW + 3), expect=0, now=NOW),
        PutRecord(("c", "k"), Record("k", b"4", 1, NOW + 9), expect=0, now=NOW + 3),
        DeleteRecord(("c", "none"), expect=0, now=NOW),
    ]
    writer.work(group)
    answers = [request.answer for request in group if not isinstance(request, Batch)]
    assert answers == [
        Record("k", b"1", 2),
        None,
        True,
        Record("k", b"3", 1, NOW + 3),
        Record("k", b"4", 1, NOW + 9),
        False,
    ]
    assert await store.get_record("c", "k", now=NOW + 4) == Record("k", b"4", 1, NOW + 9)
    await store.close()
