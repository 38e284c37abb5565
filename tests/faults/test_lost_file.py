"""The database file deleted, moved or replaced under a running instance: it says so, and accepts nothing more."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring.config import Config
from mainspring.errors import StoreUnavailable
from mainspring.instance import Instance
from mainspring.timers.messages import CreateTimer, ListTimers, TimerRef, to_instant
from tests.faults.waiting import until


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
    shutil.copy(path, backup)
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
