"""The fence on SQLite: open transactions step by step, and two processes on one file with an audit of all writes.

The audit is made by triggers, so it is part of the transaction that it is about: `audit` has a row for each write
under a fence, `claims` says how many of them there were when the next owner came.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from mainspring.model import Shard, Timer
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores.sqlite import SQLiteStore
from mainspring.testing.timer_samples import attempt, create, timer

APPLIED, FENCED = Verdict.APPLIED, Verdict.FENCED
SHARDS = [0, 1]

AUDIT = """
    CREATE TABLE audit (shard_id INTEGER, fence INTEGER);
    CREATE TABLE claims (shard_id INTEGER, fence INTEGER, writes INTEGER);
    CREATE TRIGGER audit_begin AFTER UPDATE ON timers BEGIN
        INSERT INTO audit VALUES (NEW.shard_id, NEW.fence);
    END;
    CREATE TRIGGER audit_finish AFTER DELETE ON timers BEGIN
        INSERT INTO audit VALUES (OLD.shard_id, OLD.fence);
    END;
    CREATE TRIGGER audit_claim BEFORE INSERT ON shards BEGIN
        INSERT INTO claims SELECT shard_id, version,
            (SELECT count(*) FROM audit WHERE audit.shard_id = shards.shard_id AND fence = version)
        FROM shards WHERE shard_id = NEW.shard_id AND version < NEW.version;
    END;
"""
GROWN = """
    SELECT shard_id, fence, writes, (SELECT count(*) FROM audit
        WHERE audit.shard_id = claims.shard_id AND audit.fence = claims.fence) AS final
    FROM claims WHERE writes <> final
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "test.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(path: str, store: SQLiteStore) -> AsyncIterator[SQLiteStore]:
    other = SQLiteStore(path)
    await other.open()
    yield other
    await other.close()


@pytest.fixture
def raw(path: str, store: SQLiteStore) -> Iterator[apsw.Connection]:
    """A connection to stop between any two statements, on an audited file."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    connection.execute(AUDIT)
    yield connection
    connection.close(True)


def write_raw(connection: apsw.Connection, row: Timer, fence: int) -> None:
    """A begin, as it is on disk."""
    connection.execute("UPDATE timers SET fence = ?, version = version + 1 WHERE uuid = ?", (fence, row.uuid))


async def test_an_open_fenced_write_holds_up_the_claim_and_is_counted_by_it(
    store: SQLiteStore, other: SQLiteStore, raw: apsw.Connection
) -> None:
    [a] = await create(store, timer("a"))
    await store.claim_shards([Shard(0, 0, "old")])
    raw.execute("BEGIN IMMEDIATE")
    assert raw.execute("SELECT version FROM shards WHERE shard_id = 0").get == 1
    claim = asyncio.create_task(other.claim_shards([Shard(0, 1, "new")]))
    assert not (await asyncio.wait([claim], timeout=0.3))[0]
    write_raw(raw, a, fence=1)
    raw.execute("COMMIT")
    assert await claim == [APPLIED]
    assert await store.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [FENCED]
    assert raw.execute("SELECT shard_id, fence, writes FROM claims").fetchall() == [(0, 1, 1)]
    assert raw.execute(GROWN).fetchall() == []


async def test_a_write_that_meets_an_open_claim_waits_and_is_fenced(store: SQLiteStore, raw: apsw.Connection) -> None:
    a, b = await create(store, timer("a"), timer("b"))
    await store.claim_shards([Shard(0, 0, "old")])
    assert await store.begin([Begin(a.key, 1, 1)]) == [APPLIED]
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("INSERT OR REPLACE INTO shards VALUES (0, 2, 'new')")
    begin = asyncio.create_task(store.begin([Begin(b.key, 1, 1)]))
    finish = asyncio.create_task(store.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]))
    assert not (await asyncio.wait([begin, finish], timeout=0.3))[0]
    raw.execute("COMMIT")
    assert await begin == await finish == [FENCED]
    assert raw.execute("SELECT writes FROM claims").fetchall() == [(1,)]
    assert raw.execute(GROWN).fetchall() == []


async def test_a_look_outside_of_the_transaction_of_the_write_is_found_by_the_audit(
    store: SQLiteStore, other: SQLiteStore, raw: apsw.Connection
) -> None:
    """Not what the store does: it shows that the audits can fail."""
    [a] = await create(store, timer("a"))
    await store.claim_shards([Shard(0, 0, "old")])
    fence = raw.execute("SELECT version FROM shards WHERE shard_id = 0").get
    assert await other.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
    write_raw(raw, a, fence=fence)
    assert raw.execute(GROWN).fetchall() == [(0, 1, 0, 1)]


async def own(store: SQLiteStore, name: str, seconds: float) -> int:
    """Looks at the fence once in a while only, as a frozen owner does, and writes under it whatever happens."""
    choice = random.Random(name)
    end = time.monotonic() + seconds
    writes = turn = 0
    while time.monotonic() < end:
        turn += 1
        fences = {shard.shard_id: shard.version for shard in await store.shards(SHARDS) if shard is not None}
        for step in range(4):
            row = timer(f"{name}-{turn}-{step}", shard_id=choice.choice(SHARDS))
            fence = fences[row.shard_id]
            await create(store, row)
            begun = await store.begin([Begin(row.key, fence, 1)])
            ended = await store.finish([Finish(row.key, fence, Remove(row.key, 2), attempt(turn))])
            writes += (begun + ended).count(APPLIED)
    return writes


async def claim(store: SQLiteStore, name: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for shard in filter(None, await store.shards(SHARDS)):
            await store.claim_shards([Shard(shard.shard_id, shard.version, name)])
        await asyncio.sleep(0.02)


async def own_and_claim(path: str, name: str, seconds: float) -> int:
    """What one process does."""
    store = SQLiteStore(path)
    await store.open()
    *counts, _ = await asyncio.gather(
        own(store, f"{name}1", seconds), own(store, f"{name}2", seconds), claim(store, name, seconds)
    )
    await store.close()
    return sum(counts)


async def hold(connection: apsw.Connection, seconds: float) -> int:
    """Takes the write lock, looks, and keeps everybody waiting, so that all of them have looked before they write."""
    end = time.monotonic() + seconds
    holds = 0
    while time.monotonic() < end:
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        holds += 1
        await asyncio.sleep(0.02)
        connection.execute("COMMIT")
        await asyncio.sleep(0.03)
    return holds


def another_process(path: str, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.stores.test_sqlite_fence", path, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_no_write_of_two_processes_under_a_fence_commits_after_the_next_claim(
    path: str, store: SQLiteStore, raw: apsw.Connection
) -> None:
    seconds = 3.0
    await store.claim_shards([Shard(shard_id, 0, "first") for shard_id in SHARDS])
    with another_process(path, seconds) as child:
        try:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
            here, holds = await asyncio.gather(own_and_claim(path, "parent", seconds), hold(raw, seconds))
            there, _ = await asyncio.to_thread(child.communicate, timeout=20)
        finally:
            child.kill()
    assert raw.execute(GROWN).fetchall() == []
    assert raw.execute("SELECT count(*) FROM claims").get > 20
    assert raw.execute("SELECT count(*) FROM claims WHERE writes > 0").get > 10
    assert holds > 10
    assert min(here, int(there)) > 20


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdout.write(str(asyncio.run(own_and_claim(sys.argv[1], "child", float(sys.argv[2])))))
