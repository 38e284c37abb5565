"""What is true of the SQLite store beyond the contracts: files, refusals, recovery, bounds."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.model import Shard, Timer
from mainspring.store import DUE_BYTES, START, Position, Put, Remove, TimerFilter, Verdict
from mainspring.stores.committer import PENDING_LIMIT
from mainspring.stores.groups import GROUP_BYTES, Capacity, GroupQueue
from mainspring.stores.plan import Write
from mainspring.stores.sqlite import SQLiteStore
from mainspring.stores.sqlite.queries import Read
from mainspring.stores.sqlite.schema import MIGRATIONS
from mainspring.stores.sqlite.worker import Worker
from mainspring.testing.timer_samples import NOW, create, key_of, timer
from tests.support.small_disk import small_disk


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "test.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, busy_ms=50)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def other(path: str, store: SQLiteStore) -> Iterator[apsw.Connection]:
    """Somebody else at the same file."""
    connection = apsw.Connection(path)
    yield connection
    connection.close(True)


# Files


async def test_a_new_file_is_private_and_its_directory_is_made(tmp_path: Path) -> None:
    path = tmp_path / "not/yet/there.db"
    store = SQLiteStore(str(path))
    await store.open()
    await create(store, timer("a"))
    for suffix in ("", "-wal", "-shm"):
        assert stat.S_IMODE(os.stat(f"{path}{suffix}").st_mode) == 0o600
    await store.close()


async def test_what_was_acknowledged_is_there_after_reopening(path: str) -> None:
    for name in ("a", "b"):
        store = SQLiteStore(path)
        await store.open()
        await create(store, timer(name))
        await store.close()
    store = SQLiteStore(path)
    await store.open()
    assert None not in await store.get([key_of("a"), key_of("b")])
    await store.close()


async def test_a_file_that_is_no_database_is_refused_by_name(path: str) -> None:
    await asyncio.to_thread(Path(path).write_text, "Dear diary, " * 1000)
    with pytest.raises(StoreUnavailable, match=r"test\.db.*not a database"):
        await SQLiteStore(path).open()


async def test_a_path_that_cannot_be_opened_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=str(tmp_path)):
        await SQLiteStore(str(tmp_path)).open()


# Refusals, and life after them


async def test_a_locked_file_is_unavailable_and_then_available_again(
    store: SQLiteStore, other: apsw.Connection
) -> None:
    await create(store, timer("before"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"test\.db.*locked"):
        await store.write([Put(timer("a"), 0)])
    with pytest.raises(StoreUnavailable):
        await store.claim_shards([Shard(0, 0, "me")])
    with pytest.raises(StoreUnavailable):
        await store.put_record("c", "k", b"", expect=0, now=NOW)
    assert await store.get([key_of("before"), key_of("a")]) == [timer("before"), None]
    other.execute("ROLLBACK")
    await create(store, timer("a"))


async def test_a_file_that_cannot_grow_is_unavailable_until_it_can(store: SQLiteStore, path: str) -> None:
    await create(store, timer("before"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_wal_bytes(path) + 20_000, hard))
    try:
        with pytest.raises(StoreUnavailable, match=r"test\.db"):
            await store.write([Put(timer(f"t{n}", payload='"' + "x" * 1000 + '"'), 0) for n in range(100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (await store.list_timers([0], TimerFilter(), after=START, limit=999)).timers == [timer("before")]
    await create(store, *(timer(f"t{n}") for n in range(100)))


async def test_a_full_disk_is_unavailable_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        (disk / "ballast").write_bytes(b"x" * 1_000_000)
        store = SQLiteStore(str(disk / "test.db"))
        await store.open()
        with pytest.raises(StoreUnavailable, match=r"test\.db.*full"):
            await _write_until_refused(store)
        assert len((await store.list_timers([0], TimerFilter(), after=START, limit=999)).timers) > 10
        (disk / "ballast").unlink()
        await create(store, timer("after"))
        await store.close()


async def _write_until_refused(store: SQLiteStore) -> None:
    for n in range(200):
        await create(store, timer(f"t{n}", payload='"' + "x" * 50_000 + '"'))


def _wal_bytes(path: str) -> int:
    return os.path.getsize(f"{path}-wal")


async def test_a_failed_group_is_wholly_undone(store: SQLiteStore, other: apsw.Connection) -> None:
    other.execute("BEGIN IMMEDIATE")
    calls = [store.write([Put(timer(f"t{n}"), 0)]) for n in range(20)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    other.execute("ROLLBACK")
    assert (await store.list_timers([0], TimerFilter(), after=START, limit=99)).timers == []


async def test_a_value_that_cannot_be_stored_fails_alone(store: SQLiteStore) -> None:
    defective = [timer("a", namespace="\ud800"), timer("b", due_at=2**70)]
    rows = [*(timer(f"t{n}") for n in range(10)), *defective, *(timer(f"u{n}") for n in range(10))]
    answers = await asyncio.gather(*(store.write([Put(row, 0)]) for row in rows), return_exceptions=True)
    assert answers[:10] + answers[12:] == [[Verdict.APPLIED]] * 20
    assert [type(answer) for answer in answers[10:12]] == [StoreUnavailable] * 2
    assert [type(answer.__cause__) for answer in answers[10:12]] == [UnicodeEncodeError, OverflowError]  # type: ignore[union-attr]


async def test_too_much_waiting_work_is_refused_at_once(store: SQLiteStore) -> None:
    batch = [Remove(key_of("none"), 1)] * 1000
    calls = [store.write(batch) for _ in range(PENDING_LIMIT // 1000 + 1)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False] * (len(calls) - 1) + [True]
    assert await store.write(batch) == [Verdict.STALE] * 1000


async def test_what_is_written_at_once_is_bounded_in_bytes() -> None:
    """Whoever writes little waits for what is being written, and not for all that is large."""
    groups: list[int] = []
    may_begin = threading.Event()

    def work(group: list[Write]) -> None:
        may_begin.wait(10)
        groups.append(len(group))

    worker = Worker[Write]("bounded", work, lambda: None)
    large = [Put(replace(timer("large"), payload="x" * (GROUP_BYTES // 2)), 0)]
    calls = [asyncio.ensure_future(worker.wait_for(Write(large))) for _ in range(9)]
    await asyncio.sleep(0.05)
    may_begin.set()
    await asyncio.gather(*calls)
    await worker.close()
    assert sum(groups) == 9
    assert max(groups) == 2


async def test_who_writes_little_waits_for_no_more_than_one_that_is_large() -> None:
    groups: list[list[str]] = []
    may_begin = threading.Event()

    def work(group: list[Write]) -> None:
        may_begin.wait(10)
        groups.append(
            [change.timer.timer_id for request in group for change in request.items if isinstance(change, Put)]
        )

    worker = Worker[Write]("fair", work, lambda: None)
    large = [Write([Put(replace(timer("large"), payload="x" * GROUP_BYTES), 0)]) for _ in range(5)]
    small = [Write([Put(timer(f"small-{number}"), 0)]) for number in range(3)]
    calls = [asyncio.ensure_future(worker.wait_for(large[0]))]
    await asyncio.sleep(0.05)
    calls += [asyncio.ensure_future(worker.wait_for(request)) for request in (*large[1:], *small)]
    await asyncio.sleep(0.05)
    may_begin.set()
    await asyncio.gather(*calls)
    await worker.close()
    alone = groups.pop(0)  # the thread took it before the others came
    assert alone == ["large"]
    assert groups[0] == ["small-0", "small-1", "small-2"]
    assert groups[1:] == [["large"]] * 4


async def test_who_writes_much_goes_in_turn_with_those_who_write_little() -> None:
    waiting = GroupQueue[Write](Capacity(items=1))
    large, *small = [Write([Put(timer(f"t{number}"), 0)]) for number in range(4)]
    large.items = [Put(replace(timer("large"), payload="x" * 2 * GROUP_BYTES), 0)]
    for request in (*small, large):
        waiting.add(request)
    groups = []
    while waiting:
        groups.append(waiting.next_group())
    assert groups == [[small[0]], [large], [small[1]], [small[2]]]


async def test_a_single_write_does_not_wait_for_all_bulk_writes_that_came_before_it() -> None:
    """The lease is one: whoever creates timers by the thousand must not cost an instance its shards."""
    waiting = GroupQueue[Write](Capacity(items=1_000))
    bulk = [Write([Put(timer(f"t{number}"), 0)] * 1_000) for number in range(4)]
    single = Write([Put(timer("single"), 0)])
    for request in bulk[:2]:
        waiting.add(request)
    groups = [waiting.next_group()]
    for request in (*bulk[2:], single):
        waiting.add(request)
    while waiting:
        groups.append(waiting.next_group())
    assert groups == [[bulk[0]], [single], *([request] for request in bulk[1:])]


async def test_a_page_of_what_is_due_is_bounded_in_bytes_and_the_next_one_goes_on(store: SQLiteStore) -> None:
    shard_id = timer("any").shard_id
    sizes = [10] * 40 + [100_000] * 25 + [10] * 20 + [3 * DUE_BYTES] + [5_000] * 20
    rows = [
        replace(timer(f"t{number}"), shard_id=shard_id, due_at=NOW + number, payload='"' + "x" * size + '"')
        for number, size in enumerate(sizes)
    ]
    for row in rows:
        await create(store, row)
    seen: list[Timer] = []
    after = START
    while True:
        timers, next_due_at = await store.load_due(shard_id, until=NOW + 1000, after=after, limit=1000)
        page = [len(row.payload or "") for row in timers]
        assert sum(page) <= DUE_BYTES or len(page) == 1
        seen += timers
        if next_due_at is None:
            break
        after = Position(timers[-1].due_at, timers[-1].uuid)
    assert seen == rows


async def test_who_reads_a_row_waits_for_a_few_pages_of_what_is_due(store: SQLiteStore) -> None:
    await create(store, timer("a"))
    may_go_on = threading.Event()
    assert store._threads is not None
    held_up = asyncio.ensure_future(store._threads.reader.wait_for(Read(lambda _: may_go_on.wait(10))))
    await asyncio.sleep(0.05)
    over: list[str] = []

    async def read(name: str, reading: Awaitable[object]) -> None:
        await reading
        over.append(name)

    pages = [read("page", store.load_due(1, until=NOW, after=START, limit=10)) for _ in range(16)]
    reads = [asyncio.ensure_future(one) for one in (*pages, read("row", store.get([key_of("a")])))]
    await asyncio.sleep(0.05)
    may_go_on.set()
    await asyncio.gather(held_up, *reads)
    assert over.index("row") <= 4


# Closing and cancelling


async def test_close_finishes_what_was_accepted(path: str) -> None:
    store = SQLiteStore(path)
    await store.open()
    calls = [asyncio.ensure_future(store.write([Put(timer(f"t{n}"), 0)])) for n in range(200)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*calls) == [[Verdict.APPLIED]] * 200
    with pytest.raises(StoreUnavailable):
        await store.write([Put(timer("late"), 0)])


async def test_a_cancelled_call_disturbs_nobody(store: SQLiteStore) -> None:
    calls = [asyncio.ensure_future(store.write([Put(timer(f"t{n}"), 0)])) for n in range(100)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[1::2] == [[Verdict.APPLIED]] * 50
    await create(store, timer("after"))


async def test_no_thread_outlives_its_store(path: str) -> None:
    before = set(threading.enumerate())  # those of other tests may still be about to end
    for n in range(3):
        store = SQLiteStore(path)
        await store.open()
        await create(store, timer(f"t{n}"))
        await store.close()
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name.startswith("mainspring-")] == []


# Records


async def test_expired_records_leave_the_file(store: SQLiteStore, other: apsw.Connection) -> None:
    for n in range(100):
        await store.put_record("c", f"k{n}", b"", expect=0, now=NOW, expires_at=NOW + 1 + n % 2)
    await store.put_record("c", "other", b"", expect=0, now=NOW + 1)
    assert other.execute("SELECT count(*) FROM records").get == 51
    await store.delete_record("c", "none", expect=1, now=NOW + 2)
    assert other.execute("SELECT count(*) FROM records").get == 1


# The WAL


async def test_the_wal_is_used_again_instead_of_growing(path: str) -> None:
    store = SQLiteStore(path, wal_limit_pages=400)
    await store.open()
    for n in range(150):
        await create(store, timer(f"t{n}", payload='"' + "x" * 50_000 + '"'))
        assert _wal_bytes(path) < 500 * 4200
    await store.close()


async def test_a_reader_that_holds_the_wal_stops_the_writes_at_the_limit_only(path: str) -> None:
    store = SQLiteStore(path, busy_ms=50, wal_limit_pages=400)
    await store.open()
    await create(store, timer("first"))
    reader = apsw.Connection(path)
    reader.execute("BEGIN; SELECT count(*) FROM timers").fetchall()
    with pytest.raises(StoreUnavailable, match="a reader that does not let go"):
        await _write_until_refused(store)
    assert _wal_bytes(path) < 500 * 4200
    assert await store.get([key_of("first")]) == [timer("first")]
    reader.close(True)
    await create(store, timer("after"))
    await store.close()


async def test_a_start_does_not_wait_until_the_wal_of_a_killed_process_is_copied(path: str, tmp_path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await create(store, timer("first"))
    left = str(tmp_path / "left.db")
    for suffix in ("", "-wal"):  # as a killed process leaves them
        shutil.copyfile(path + suffix, left + suffix)
    await store.close()
    frames = _wal_bytes(left)
    successor = SQLiteStore(left)
    await successor.open()
    assert _wal_bytes(left) == frames > 0
    assert await successor.get([key_of("first")]) == [timer("first")]
    await successor.close()
    assert "left.db-wal" not in os.listdir(tmp_path)


# Migrations


async def test_migrations_are_listed_before_and_applied_once(path: str) -> None:
    store = SQLiteStore(path)
    names = [f"{migration.number:04} {migration.name}" for migration in MIGRATIONS]
    assert await store.pending_migrations() == names
    assert await store.migrate() == names
    assert await store.pending_migrations() == []
    assert await store.migrate() == []


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


async def test_a_database_of_a_newer_mainspring_is_refused(store: SQLiteStore, other: apsw.Connection) -> None:
    other.execute("INSERT INTO migrations VALUES (99, 'from the future')")
    with pytest.raises(ConfigError, match=r"migration 1, got 99 in .*test\.db.*newer"):
        await store.pending_migrations()
    with pytest.raises(ConfigError, match="newer"):
        await store.migrate()


async def test_a_write_whose_caller_gave_up_counts_as_that_of_somebody_else(store: SQLiteStore) -> None:
    before = await store.foreign_writes()
    await create(store, timer("heard"))
    assert await store.foreign_writes() == before
    writing = asyncio.ensure_future(store.write([Put(timer("unheard"), 0)]))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await store.write([Put(timer("after"), 0)])  # the writer takes one after the other
    assert None not in await store.get([key_of("unheard")])
    assert await store.foreign_writes() != before
