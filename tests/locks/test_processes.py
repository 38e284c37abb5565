"""Real processes on one store: they exclude each other, and one that was stopped does nothing beside its successor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from mainspring import open_lock
from tests.locks.program import NAME, TTL_SECONDS, WAIT_SECONDS, append, read, write
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(shared_url: str) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.locks.program", shared_url, *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=clean_environment())
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_processes_that_count_under_a_lock_lose_no_number(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "number"
    write(file, [0])
    processes = [start("count", str(file), "10") for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.wait(WAIT_SECONDS) == 0
    *tokens, number = read(file)
    assert number == 30
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("where", ["stop-in-block", "stop-before-write"])
async def test_a_holder_that_was_stopped_past_its_lease_writes_nothing_beside_its_successor(
    start: Start, shared_url: str, where: str
) -> None:
    frozen = start(where)
    await _stopped(frozen.pid)
    async with open_lock(shared_url, NAME, ttl_seconds=TTL_SECONDS) as lock:
        async with lock.hold(wait_seconds=WAIT_SECONDS) as held:
            assert await append(held) is not None
            os.kill(frozen.pid, signal.SIGCONT)
            said, _ = await asyncio.to_thread(frozen.communicate, timeout=WAIT_SECONDS)
            assert said == "lost\n"
            await held.confirm()  # it did not let go of what is ours, either
            assert await append(held) is not None
            audit = await held.records.get_record("audit", NAME)
        assert audit is not None
        first, *later = msgspec.json.decode(audit.value, type=list[int])
        assert later == [held.token, held.token]
        assert first < held.token


async def _stopped(pid: int) -> None:
    stat = Path(f"/proc/{pid}/stat")
    async with asyncio.timeout(WAIT_SECONDS):
        while stat.read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC110, ASYNC240 - nobody tells
            await asyncio.sleep(0.02)
