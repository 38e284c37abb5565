"""The sync client against a real server, and that it is what the generator makes of the async one."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

import mainspring.client
from mainspring.client import AsyncClient, Client
from mainspring.client._async.jobs import AsyncJobs
from mainspring.client._async.namespaces import AsyncNamespaces
from mainspring.client._async.timers import AsyncTimers
from mainspring.client._sync.jobs import Jobs
from mainspring.client._sync.namespaces import Namespaces
from mainspring.client._sync.timers import Timers
from mainspring.errors import NetworkError, NotFound
from tests.support.running_server import Running

FAR = datetime(2036, 1, 2, 3, 4, 5, tzinfo=UTC)
GENERATOR = Path(__file__).parent.parent.parent / "tools" / "generate_sync.py"


def test_the_sync_client_creates_reads_lists_and_deletes(server: Running) -> None:
    with Client(server.url, server.token) as client:
        created = client.timers.create("sync-1", callback_url="http://127.0.0.1:9/", execute_at=FAR, payload=[1])
        assert client.timers.get("sync-1") == created
        assert [timer.timer_id for timer in client.timers.iterate(id_prefix="sync-")] == ["sync-1"]
        assert client.timers.delete("sync-1").timer == created
        with pytest.raises(NotFound):
            client.timers.get("sync-1")


def test_many_threads_share_one_client(server: Running) -> None:
    def create(number: int) -> str:
        return client.timers.create(f"thread-{number}", callback_url="http://127.0.0.1:9/", execute_at=FAR).timer_id

    with Client(server.url, server.token) as client, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(create, range(40))) == [f"thread-{number}" for number in range(40)]


def test_its_background_thread_ends_with_the_client(server: Running) -> None:
    before = threading.active_count()
    client = Client(server.url, server.token)
    assert threading.active_count() == before
    client.open()
    client.health()
    assert threading.active_count() > before
    client.close()
    client.close()
    assert threading.active_count() == before
    with pytest.raises(NetworkError, match=r"client is not open: use `with Client\(\)"):
        client.health()


def test_the_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("one", "other"), [(AsyncClient, Client), (AsyncTimers, Timers), (AsyncJobs, Jobs), (AsyncNamespaces, Namespaces)]
)
def test_both_sides_have_the_same_methods_with_the_same_arguments(one: type, other: type) -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(each).parameters) for name, each in methods if not name.startswith("__")}

    assert surface(one) == surface(other)


def test_the_public_names_are_sorted_and_exist() -> None:
    names = mainspring.client.__all__
    assert names == sorted(names)
    assert all(hasattr(mainspring.client, name) for name in names)
