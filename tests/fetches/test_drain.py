"""A stop waits for the calls of fetches as long as the operator allows, and keeps nothing else from others."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.fetches.messages import FetchRef
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.messages import CreateTimer
from tests.support.fetch_requests import asking, ended, until_members


def config(folder: Path, **settings: Any) -> Config:
    store = f"sqlite:///{folder / 'mainspring.db'}"
    return Config(allow_loopback=True, store=store, data_dir=str(folder), drain_seconds=0.1, **settings)


async def test_calls_under_way_are_seen_to_their_end(tmp_path: Path, target: TargetServer) -> None:
    async with Instance(config(tmp_path, fetch_drain_seconds=20.0)) as instance:
        await instance.fetches.create(asking(target.url + "/delay/0.6", "POST", req_id="a"))
        await target.wait_for(1)
    async with Instance(config(tmp_path)) as instance:
        assert (await instance.fetches.get(FetchRef(req_id="a"))).state == "succeeded"


async def test_no_longer_than_is_allowed(tmp_path: Path, target: TargetServer) -> None:
    async with Instance(config(tmp_path, fetch_drain_seconds=0.4)) as instance:
        await instance.fetches.create(asking(target.url + "/hang", "POST", req_id="a"))
        await target.wait_for(1)
        begun = time.monotonic()
    assert 0.4 <= time.monotonic() - begun < 5
    async with Instance(config(tmp_path)) as instance:
        assert (await instance.fetches.get(FetchRef(req_id="a"))).state == "unknown"


@pytest.mark.slow
async def test_meanwhile_others_have_the_shards_and_leave_the_call_alone(tmp_path: Path, target: TargetServer) -> None:
    settings = config(tmp_path, fetch_drain_seconds=30.0, lease_seconds=1.0, renew_seconds=0.2)
    async with Instance(settings) as two:
        await two.fetches.create(asking(target.url + "/", req_id="first"))  # then there are shards of fetches
        await ended(two.fetches, "first")
        one = Instance(settings)
        await one.__aenter__()
        await until_members(two, 2)
        target.script("/slow", Answer(status=201, delay_seconds=4.0))
        for number in range(20):
            await one.fetches.create(asking(target.url + "/slow", "POST", req_id=f"f{number}"))
        await target.wait_for(21)
        leaving = asyncio.create_task(one.__aexit__(None, None, None))
        await until_members(two, 1, seconds=3)  # although the other is still there
        timers = [CreateTimer(timer_id=f"t{n}", delay_seconds=0, callback_url=target.url + "/hook") for n in range(20)]
        for timer in timers:
            await two.timers.create(timer)
        await target.wait_for(41, seconds=3)
        assert not leaving.done()
        views = [await ended(two.fetches, f"f{number}") for number in range(20)]
        await leaving
    assert {view.state for view in views} == {"succeeded"}
    assert sum(request.path == "/slow" for request in target.requests) == 20
