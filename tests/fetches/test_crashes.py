"""Killed at any named point, a program that starts again ends every fetch, and never makes a call twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from mainspring import crashpoint
from mainspring.config import Config
from mainspring.fetches.messages import FetchRef, FetchStats
from mainspring.instance import Instance
from mainspring.testing.target import TargetServer
from tests.fetches.asking import asking, ended, until_members

CRASHES = {
    # point: what the target answers, calls that reached it, state afterwards, offers to the origin
    crashpoint.FETCH_RECORDED: ("/call", {1}, "succeeded", 1),
    crashpoint.ATTEMPT_BEGUN: ("/call", {1}, "succeeded", 1),
    crashpoint.FETCH_DISPATCHED: ("/call", {0}, "unknown", 1),
    crashpoint.ATTEMPT_FINISHED: ("/hang", {0, 1}, "unknown", 1),
    crashpoint.FETCH_ANSWERED: ("/call", {1}, "unknown", 1),
    crashpoint.FETCH_SETTLED: ("/call", {1}, "succeeded", 1),
    crashpoint.FETCH_DELIVERED: ("/call", {1}, "succeeded", 2),
}


async def _run(*arguments: str, crash_at: str = "") -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    if crash_at:
        environment[crashpoint.VARIABLE] = crash_at
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.fetches.program", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode().strip()


def test_every_crash_point_of_fetches_is_tried() -> None:
    assert set(crashpoint.FETCH_NAMES) <= CRASHES.keys()


@pytest.mark.parametrize("point", CRASHES)
async def test_a_kill_makes_no_second_call_and_loses_no_fetch(point: str, tmp_path: Path, target: TargetServer) -> None:
    path, calls, state, offers = CRASHES[point]
    store, asked = f"sqlite:///{tmp_path / 'mainspring.db'}", (target.url + path, target.url + "/result")
    code, _ = await _run(store, "f1", *asked, crash_at=point)
    assert code == -signal.SIGKILL, "the point was not reached"
    restarted = time.monotonic()
    # Who got no answer asks again; everybody else has nothing to do.
    again = asked if point == crashpoint.FETCH_RECORDED else ()
    code, said = await _run(store, "f1", *again)
    assert (code, said) == (0, f"{state} delivered")
    assert time.monotonic() - restarted < 10, "nobody waits for a watchdog, which would take 40 s"
    paths = Counter(request.path for request in target.requests)
    assert paths[path] in calls
    assert paths["/result"] == offers
    told = [request for request in target.requests if request.path == "/result"]
    assert {request.headers["webhook-id"] for request in told} == {"f1"}
    assert {msgspec.json.decode(request.body)["state"] for request in told} == {state}


async def test_calls_of_a_dead_instance_are_unknown_at_once_and_those_of_others_go_on(
    tmp_path: Path, target: TargetServer
) -> None:
    store = f"sqlite:///{tmp_path / 'mainspring.db'}"
    ids = [f"k{n}" for n in range(24)]
    async with Instance(Config(store=store, data_dir=str(tmp_path), drain_seconds=0.1)) as survivor:
        other = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.fetches.program", store, "first", target.url + "/hang", target.url + "/result"),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await until_members(survivor, 2)
            for req_id in ids:
                await survivor.fetches.create(asking(target.url + "/hang", "POST", req_id=req_id))
            await target.wait_for(len(ids) + 1)
        finally:
            other.kill()
            await other.wait()
        views = {req_id: await survivor.fetches.get(FetchRef(req_id=req_id)) for req_id in ids}
        of_the_dead = [req_id for req_id, view in views.items() if view.executor != survivor.ownership.instance]
        assert 0 < len(of_the_dead) < len(ids), "both had calls to make"
        for req_id in of_the_dead:
            view = await ended(survivor.fetches, req_id, seconds=10)
            assert view.result is not None
            assert view.result.error is not None
            assert (view.state, view.result.error.kind) == ("unknown", "watchdog")
            assert view.executor in view.result.error.message
        stats = await survivor.fetches.stats(FetchStats())
        assert stats.running >= len(ids) - len(of_the_dead)
    assert sum(request.path == "/hang" for request in target.requests) == len(ids) + 1
