"""Processes that start at the same instant on a store that nobody has used: all of them get to work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.stores import store_from_url
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.source_tree import ROOT

PROCESSES = 5
ROUNDS = 4

# Reads URLs, and uses each store: the tables must be there, and be able to do something.
USE_EACH = """
import asyncio, sys
from mainspring.clock import SystemClock
from mainspring.store import START
from mainspring.stores import store_from_url

async def use(url, name):
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    assert await store.put_record("starts", name, b"", expect=0, now=await store.time())
    assert not (await store.load_due(0, until=0, after=START, limit=1)).timers
    await store.close()

print("ready", flush=True)
for line in sys.stdin:
    asyncio.run(use(line.strip(), sys.argv[1]))
    print("used", flush=True)
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", USE_EACH, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in range(PROCESSES)
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def say(processes: list[subprocess.Popen[str]], line: str) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def heard(processes: list[subprocess.Popen[str]]) -> list[str]:
    return [process.stdout.readline() for process in processes if process.stdout is not None]


@pytest.fixture(params=["sqlite", *server_params("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")])
def unused_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the URL of a store that has no tables yet, each time it is called."""
    if request.param == "sqlite":
        numbers = count(1)
        return lambda: f"sqlite:///{tmp_path}/{next(numbers)}/new.db"
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.get(SERVERS[request.param]).fresh


async def test_processes_that_start_at_once_on_an_unused_store_all_use_it(
    unused_url: Callable[[], str], processes: list[subprocess.Popen[str]]
) -> None:
    assert heard(processes) == ["ready\n"] * PROCESSES
    for _ in range(ROUNDS):
        url = unused_url()
        say(processes, url)
        assert heard(processes) == ["used\n"] * PROCESSES

        store = store_from_url(url, clock=SystemClock())
        await store.open()
        records = await store.scan_records("starts", now=await store.time())
        assert [record.key for record in records] == [str(number) for number in range(PROCESSES)]
        await store.close()
