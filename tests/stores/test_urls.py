"""Which store a URL names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import ConfigError
from mainspring.stores import store_from_url, timer_store_from_url
from mainspring.stores.memory import MemoryStore
from mainspring.stores.redis import RedisStore
from mainspring.stores.sqlite import SQLiteStore


async def test_a_relative_sqlite_path_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = store_from_url("sqlite:///some/dir/a.db", clock=SystemClock())
    assert isinstance(store, SQLiteStore)
    await store.open()
    await store.close()
    assert (tmp_path / "some/dir/a.db").exists()


async def test_an_absolute_sqlite_path_has_four_slashes(tmp_path: Path) -> None:
    store = store_from_url(f"sqlite:///{tmp_path}/a.db", clock=SystemClock())
    await store.open()
    await store.close()
    assert (tmp_path / "a.db").exists()


def test_memory_is_a_store() -> None:
    assert isinstance(store_from_url("memory://", clock=SystemClock()), MemoryStore)


@pytest.mark.parametrize("url", ["", "oracle://x", "sqlite:/x", "sqlite://", "sqlite:///", "memory://x", "a.db"])
def test_anything_else_is_refused_with_what_is_supported(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///|memory://"):
        store_from_url(url, clock=SystemClock())


@pytest.mark.parametrize(
    ("url", "right"), [("postgres://me:canary@h/d", "postgresql://"), ("mariadb://me:canary@h/d", "mysql://")]
)
def test_what_others_call_a_scheme_is_refused_with_our_name_for_it(url: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"starts with {right}, got") as caught:
        store_from_url(url, clock=SystemClock())
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://:canary@h/0", "rediss://:canary@h/0"])
def test_redis_is_refused_as_a_store_of_timers_and_taken_as_one_of_records(url: str) -> None:
    with pytest.raises(ConfigError, match="records only") as caught:
        timer_store_from_url(url, clock=SystemClock())
    assert "canary" not in str(caught.value)
    assert isinstance(store_from_url(url, clock=SystemClock()), RedisStore)


def test_choosing_a_store_does_not_import_the_others() -> None:
    code = "import sys, mainspring.stores; sys.exit('apsw' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
