"""A program with an origin is killed at every point at which something is half done, and started again."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from mainspring import crashpoint
from mainspring.clock import SystemClock
from mainspring.origins.outbox import OUTBOX
from mainspring.stores import store_from_url
from mainspring.testing.target import TargetServer
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.slow  # real processes take their time

SECONDS = 40


async def run(store: str, target: str, crash_at: str = "") -> tuple[int | None, bytes]:
    environment = clean_environment()
    if crash_at:
        environment[crashpoint.VARIABLE] = crash_at
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.origins.program", store, target),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return program.returncode, said


async def left_in_outbox(store_url: str) -> int:
    store = store_from_url(store_url, clock=SystemClock())
    await store.open()
    try:
        return len(await store.scan_records(OUTBOX, now=await store.time()))
    finally:
        await store.close()


@pytest.mark.parametrize(
    "crash_at",
    [
        "origin-kept:1",  # asked for, nothing committed
        "origin-committed:1",  # committed, no fetch created
        "fetch-recorded:1",  # the fetch has no row yet
        "origin-created:1",  # the fetch is created, and still in the outbox
        "fetch-ended:1",  # the result is recorded, the origin has not got it
        "origin-handled:2",  # the handler has returned, nothing committed
        "origin-kept:2",
        "origin-committed:2",  # the effect is committed, nothing is acknowledged
        "fetch-delivered:1",  # acknowledged, which is not recorded
        "origin-committed:3",
    ],
)
async def test_each_result_takes_effect_once_and_each_call_is_made_once(crash_at: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    async with TargetServer() as target:
        assert await run(store, target.url, crash_at) == (-signal.SIGKILL, b"")
        code, said = await run(store, target.url)
        assert code == 0
        assert msgspec.json.decode(said) == {"steps": ["placed", "paid 200", "shipped 200"]}
        assert Counter(request.path for request in target.requests) == {"/pay": 1, "/ship": 1}
        assert await left_in_outbox(store) == 0


@pytest.mark.parametrize("crash_at", ["fetch-dispatched:1", "fetch-answered:1"])
async def test_a_call_that_may_have_been_made_is_told_as_such_once_and_not_repeated(
    crash_at: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    async with TargetServer() as target:
        assert await run(store, target.url, crash_at) == (-signal.SIGKILL, b"")
        code, said = await run(store, target.url)
        assert code == 0
        assert msgspec.json.decode(said) == {"steps": ["placed", "paid FetchWatchdog", "shipped 200"]}
        assert Counter(request.path for request in target.requests)["/pay"] <= 1
