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
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.fetches.messages import FetchRef, FetchStats
from mainspring.testing.target import TargetServer
from tests.support.fetch_requests import asking, ended, until_members

pytestmark = pytest.mark.slow  # real processes take their time

CRASHES = {
    # point: what the target answers, calls that reached it, state afterwards, offers to the origin
    crashpoint.FETCH_RECORDED: ("/call", {1}, "succeeded", 1),
    crashpoint.ATTEMPT_BEGUN: ("/call", {1}, "succeeded", 1),
    crashpoint.FETCH_DISPATCHED: ("/call", {0}, "unknown", 1),
    crashpoint.ATTEMPT_FINISHED: ("/hang", {0, 1}, "unknown", 1),
    crashpoint.FETCH_ANSWERED: ("/call", {1}, "unknown", 1),
    crashpoint.FETCH_ENDED: ("/call", {1}, "succeeded", 1),
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


OTHERS = (
    crashpoint.ATTEMPT_SENT,
    crashpoint.SHARD_CLAIMED,
    crashpoint.SHARD_RELEASED,
    *(f"{point}:{count}" for count in range(10, 18) for point in (crashpoint.BEFORE_COMMIT, crashpoint.AFTER_COMMIT)),
)
"""Points of all that is stored. The commits are those from the start of the instance to the last of the fetch."""


def test_every_crash_point_on_the_way_of_a_fetch_is_tried() -> None:
    tried = CRASHES.keys() | {point.partition(":")[0] for point in OTHERS}
    of_timers = {crashpoint.CREATE_STORED}
    assert {*crashpoint.NAMES, *crashpoint.FETCH_NAMES} - of_timers == tried


@pytest.mark.slow
async def test_a_kill_between_any_two_commits_makes_no_second_call_and_loses_no_fetch(
    tmp_path: Path, target: TargetServer
) -> None:
    async def killed(number: int, point: str) -> None:
        store, path = f"sqlite:///{tmp_path / f'{number}.db'}", f"/call/{number}"
        asked = ("f1", target.url + path, f"{target.url}/result/{number}")
        assert (await _run(store, *asked, crash_at=point))[0] == -signal.SIGKILL, f"{point} was not reached"
        code, said = await _run(store, *asked)
        assert (code, said) in ((0, "succeeded delivered"), (0, "unknown delivered")), point
        calls = sum(request.path == path for request in target.requests)
        assert calls == 1 or (calls == 0 and said.startswith("unknown")), point

    for start in range(0, len(OTHERS), 3):
        batch = enumerate(OTHERS[start : start + 3], start)
        await asyncio.gather(*(killed(number, point) for number, point in batch))


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
    async with Instance(
        Config(allow_loopback=True, store=store, data_dir=str(tmp_path), drain_seconds=0.1)
    ) as survivor:
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
