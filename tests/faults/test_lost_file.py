"""The database file deleted, moved or replaced under a running instance: it says so, and accepts nothing more."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.store import START, TimerFilter
from mainspring.stores import store_from_url
from mainspring.stores.sqlite.descriptors import identity
from mainspring.timers.messages import CreateTimer, ListTimers, TimerRef
from mainspring.wire.instants import to_instant
from tests.support.patience import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mainspring.db"


@pytest.fixture
async def instance(path: Path) -> AsyncIterator[Instance]:
    url = f"sqlite:///{path}"
    config = Config(
        allow_loopback=True,
        store=url,
        data_dir=str(path.parent),
        drain_seconds=0.2,
        lease_seconds=1.0,
        renew_seconds=0.2,
    )
    async with Instance(config) as running:
        yield running


def timer(instance: Instance, timer_id: str) -> CreateTimer:
    at = to_instant(instance.clock.now_ms()) + timedelta(hours=1)
    return CreateTimer(timer_id=timer_id, callback_url="http://127.0.0.1:9/", execute_at=at)


async def _until_the_lease_is(instance: Instance, *, held: bool) -> None:
    async def look() -> bool | None:
        return True if instance.ownership.valid() is held else None

    await until(look, seconds=10, what="a lease that is " + ("held" if held else "lost"))


async def test_a_database_file_that_was_deleted_is_noticed_and_nothing_is_acknowledged(
    instance: Instance, path: Path
) -> None:
    await instance.timers.create(timer(instance, "before"))
    os.unlink(path)
    with pytest.raises(StoreUnavailable, match="deleted or moved"):
        await instance.timers.create(timer(instance, "after"))
    with pytest.raises(StoreUnavailable, match="deleted or moved"):
        await instance.timers.get(TimerRef(timer_id="before"))
    with pytest.raises(StoreUnavailable, match="deleted or moved"):
        await instance.ready()
    await _until_the_lease_is(instance, held=False)


async def test_a_database_file_that_was_replaced_is_noticed(instance: Instance, path: Path, tmp_path: Path) -> None:
    await instance.timers.create(timer(instance, "before"))
    backup = tmp_path / "backup.db"
    copy(path, backup)
    os.replace(backup, path)
    with pytest.raises(StoreUnavailable, match="replaced while it was in use"):
        await instance.timers.create(timer(instance, "after"))


async def test_a_database_file_that_is_put_back_is_used_again(instance: Instance, path: Path, tmp_path: Path) -> None:
    await instance.timers.create(timer(instance, "before"))
    os.rename(path, tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnavailable):
        await instance.timers.create(timer(instance, "meanwhile"))
    os.rename(tmp_path / "elsewhere.db", path)
    await instance.timers.create(timer(instance, "after"))
    page = await instance.timers.list(ListTimers())
    assert [view.timer_id for view in page.timers] == ["before", "after"]
    await _until_the_lease_is(instance, held=True)
    await instance.ready()


def somebody_else(path: Path) -> apsw.Connection:
    """Of the same library: a second one in a process would let go of the locks of the first."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5_000)
    return connection


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def copy(source: Path, target: Path) -> None:
    """In a process of its own: closing the file here would let go of the locks that SQLite has on it."""
    subprocess.run(["cp", source, target], check=True)


def spoil(file: Path, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.truncate(len(content))
        opened.write(content)


def content_of(file: Path) -> bytes:
    return subprocess.run(["cat", file], check=True, capture_output=True).stdout


async def after_a_crash(path: Path, elsewhere: Path) -> list[str]:
    """The timers that a start would find now, if this process ended without a word."""
    os.mkdir(elsewhere)
    for file in filter(os.path.exists, (path, wal_of(path))):
        copy(file, elsewhere / file.name)
    store = store_from_url(f"sqlite:///{elsewhere / path.name}", clock=SystemClock())
    await store.open()
    try:
        return [
            row.timer_id for row in (await store.list_timers(range(16), TimerFilter(), after=START, limit=100)).timers
        ]
    finally:
        await store.close()


async def _refused(instance: Instance, reason: str) -> None:
    with pytest.raises(StoreUnavailable, match=reason):
        await instance.timers.create(timer(instance, "after"))
    with pytest.raises(StoreUnavailable, match=reason):
        await instance.timers.get(TimerRef(timer_id="before"))
    with pytest.raises(StoreUnavailable, match=reason):
        await instance.ready()
    await _until_the_lease_is(instance, held=False)


async def test_a_wal_that_was_deleted_is_noticed_and_what_was_acknowledged_is_there_after_a_crash(
    instance: Instance, path: Path, tmp_path: Path
) -> None:
    await instance.timers.create(timer(instance, "before"))
    os.unlink(wal_of(path))
    await _refused(instance, "deleted or moved")
    assert await after_a_crash(path, tmp_path / "crash") == ["before"]


async def test_a_wal_that_was_put_back_is_used_again(instance: Instance, path: Path, tmp_path: Path) -> None:
    await instance.timers.create(timer(instance, "before"))
    os.rename(wal_of(path), tmp_path / "elsewhere")
    await _refused(instance, "deleted or moved")
    os.rename(tmp_path / "elsewhere", wal_of(path))
    await instance.timers.create(timer(instance, "after"))
    await _until_the_lease_is(instance, held=True)
    assert await after_a_crash(path, tmp_path / "crash") == ["before", "after"]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_another_file_in_the_place_of_the_wal_or_its_index_is_noticed(
    instance: Instance, path: Path, suffix: str
) -> None:
    await instance.timers.create(timer(instance, "before"))
    file = path.with_name(path.name + suffix)
    copy(file, path.with_name("copy"))
    os.replace(path.with_name("copy"), file)
    await _refused(instance, "replaced while it was in use")


@pytest.mark.parametrize("content", [b"", b"\0" * 40_000, os.urandom(40_000)], ids=["empty", "zeros", "noise"])
async def test_a_wal_that_was_truncated_or_overwritten_is_noticed_and_never_copied_into_the_database(
    instance: Instance, path: Path, content: bytes
) -> None:
    await instance.timers.create(timer(instance, "before"))
    database = content_of(path)
    spoil(wal_of(path), content)
    await _refused(instance, "truncated or overwritten")
    await instance.store.close()
    assert content_of(path) == database


async def test_a_wal_that_others_begin_anew_by_right_is_no_trouble(instance: Instance, path: Path) -> None:
    for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
        await instance.timers.create(timer(instance, mode))
        other = somebody_else(path)
        other.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        other.close()
        await instance.timers.create(timer(instance, f"{mode} and after"))
    other = somebody_else(path)
    other.execute("CREATE TABLE of_somebody_else (x)")
    other.execute("VACUUM")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    other.close()
    await instance.timers.create(timer(instance, "last"))
    await instance.ready()


@pytest.mark.parametrize("what", ["an older copy", "nothing"])
async def test_a_database_that_somebody_writes_into_is_noticed_until_it_is_the_same_again(
    instance: Instance, path: Path, what: str
) -> None:
    older, newer = path.with_name("older"), path.with_name("newer")
    copy(path, older)
    for n in range(200):
        await instance.timers.create(timer(instance, f"{n}"))
    other = somebody_else(path)
    other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    await instance.timers.create(timer(instance, "before"))
    copy(path, newer)
    copy(older if what == "an older copy" else Path(os.devnull), path)
    await _refused(instance, "truncated or written into")
    copy(newer, path)
    await instance.timers.create(timer(instance, "after"))
    await _until_the_lease_is(instance, held=True)
    await instance.ready()
    other.close()


@pytest.mark.parametrize("table", ["timers", "history", "records", "shards"])
async def test_a_database_without_a_table_is_noticed_and_ends_nobody(
    instance: Instance, path: Path, table: str
) -> None:
    await instance.timers.create(timer(instance, "before"))
    other = somebody_else(path)
    other.execute(f"DROP TABLE {table}")
    other.close()
    await _refused(instance, f"without {table}")


async def test_an_emptied_database_beside_its_wal_is_not_taken_for_a_new_one(
    instance: Instance, path: Path, tmp_path: Path
) -> None:
    await instance.timers.create(timer(instance, "before"))
    os.truncate(path, 0)
    with pytest.raises(ConfigError, match="empty"):
        await after_a_crash(path, tmp_path / "crash")


async def test_a_backup_that_is_copied_over_the_file_is_noticed_once_the_file_has_grown_since(
    instance: Instance, path: Path, tmp_path: Path
) -> None:
    """The inode is the same, and the WAL of the file that it was stays beside it."""
    backup, other = tmp_path / "backup", somebody_else(path)
    target = apsw.Connection(str(backup))
    with target.backup("main", other, "main") as copying:
        copying.step()
    target.close()
    for n in range(50):
        await instance.timers.create(timer(instance, f"{n}"))
    other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    await instance.timers.create(timer(instance, "before"))
    before = identity(str(path))
    copy(backup, path)
    assert identity(str(path)) == before
    await _refused(instance, "truncated or written into")
    other.close()
