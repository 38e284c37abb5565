"""Several processes on one SQLite file, and processes that are killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from mainspring.model import Shard
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores.sqlite import SQLiteStore
from mainspring.testing.timer_samples import attempt, create, key_of, timer

PREAMBLE = """
import asyncio, sys
from mainspring.model import Shard
from mainspring.store import Put, Verdict
from mainspring.stores.sqlite import SQLiteStore
from mainspring.testing.timer_samples import timer

path = sys.argv[1]
"""

CLAIM_ONCE = """
async def main():
    store = SQLiteStore(path)
    await store.open()
    [shard] = await store.shards([0])
    assert await store.claim_shards([Shard(0, shard.version, "child")]) == [Verdict.APPLIED]
    await store.close()
asyncio.run(main())
"""

CLAIM_MANY = """
async def main():
    store = SQLiteStore(path)
    await store.open()
    while (shard := (await store.shards([0]))[0]).version < 60:
        if await store.claim_shards([Shard(0, shard.version, "x")]) == [Verdict.APPLIED]:
            print(shard.version + 1)
    await store.close()
asyncio.run(main())
"""

OPEN_AND_CLOSE = """
async def main():
    store = SQLiteStore(path, busy_ms=10_000)
    await store.open()
    await store.close()
asyncio.run(main())
"""

WRITE_FOREVER = """
async def write(store, lane):
    for n in range(1_000_000):
        name = f"{lane}-{n}"
        assert await store.write([Put(timer(name, payload='"' + "x" * 500 + '"'), 0)]) == [Verdict.APPLIED]
        print(name, flush=True)

async def main():
    store = SQLiteStore(path, wal_limit_pages=2_000)
    await store.open()
    await asyncio.gather(*(write(store, lane) for lane in range(16)))
asyncio.run(main())
"""


def start(code: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PREAMBLE + code, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def output_of(process: subprocess.Popen[str]) -> list[str]:
    with process:
        try:
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    return output.split()


async def test_an_owner_that_another_process_deposed_is_fenced(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "test.db"))
    await store.open()
    [a] = await create(store, timer("a"))
    await store.claim_shards([Shard(0, 0, "parent")])
    assert await store.begin([Begin(a.key, 1, 1)]) == [Verdict.APPLIED]
    await asyncio.to_thread(output_of, start(CLAIM_ONCE, tmp_path / "test.db"))
    assert await store.shards([0]) == [Shard(0, 2, "child")]
    assert await store.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [Verdict.FENCED]
    assert await store.begin([Begin(a.key, 1, 2)]) == [Verdict.FENCED]
    await store.close()


def test_every_version_of_a_shard_has_one_holder_among_all_processes(tmp_path: Path) -> None:
    processes = [start(CLAIM_MANY, tmp_path / "test.db") for _ in range(3)]
    won = [int(version) for process in processes for version in output_of(process)]
    assert sorted(won) == list(range(1, 61))


def test_processes_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    for process in [start(OPEN_AND_CLOSE, tmp_path / "new/test.db") for _ in range(5)]:
        output_of(process)
    connection = apsw.Connection(str(tmp_path / "new/test.db"))
    assert connection.execute("SELECT group_concat(number) FROM migrations").get == "1"
    connection.close()


@pytest.mark.parametrize("lines", [40, 1500])
async def test_what_a_killed_process_had_acknowledged_is_there(tmp_path: Path, lines: int) -> None:
    process = start(WRITE_FOREVER, tmp_path / "test.db")
    with process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(lines)]
        process.kill()
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    connection = apsw.Connection(str(tmp_path / "test.db"))
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    connection.close()
    store = SQLiteStore(str(tmp_path / "test.db"))
    await store.open()
    assert len(acknowledged) >= lines
    assert None not in await store.get([key_of(name) for name in acknowledged])
    await store.close()
