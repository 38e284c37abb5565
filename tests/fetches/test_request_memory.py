"""Requests of fetches: those for which there is no room wait in the store, and those that have left are let go of."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from mainspring.cluster.instance import Instance
from mainspring.fetches.executor import LARGE_AT_ONCE
from mainspring.fetches.memory import (
    START_COPIES,
    RequestMemory,
)
from mainspring.fetches.messages import CreateFetch, FetchRef, FetchView, OutboundRequest
from mainspring.fetches.record import Fetch, bare, decode, encode
from mainspring.fetches.registry import FetchRegistry
from mainspring.kernel.shares import Tier
from mainspring.testing.target import TargetServer
from tests.fetches.small_memory import running
from tests.support.fetch_requests import asking, ended, until_stats

HUGE = 8_000_000
"""More than the system takes of a request for a peer that does not read."""


@asynccontextmanager
async def deaf_target() -> AsyncIterator[str]:
    """Accepts connections, and reads nothing."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def posting(url: str, size: int) -> CreateFetch:
    return asking(url, "POST", request={"body": "x" * size}, timeout_seconds=20)


async def states(instance: Instance, views: list[FetchView]) -> Counter[str]:
    return Counter([(await instance.fetches.get(FetchRef(req_id=view.req_id))).state for view in views])


async def test_a_request_for_which_there_is_no_room_waits_in_the_store(tmp_path: Path) -> None:
    async with running(tmp_path, fetch_body_bytes=HUGE) as instance:
        async with deaf_target() as url, TargetServer() as target:
            views = [await instance.fetches.create(posting(url, HUGE)) for _ in range(4)]
            requests = instance.fetches_assembly.requests
            await until_stats(instance.fetches, lambda stats: stats.running == 1)
            await asyncio.sleep(0.3)
            assert await states(instance, views) == {"running": 1, "pending": 3}, "one that is larger goes alone"
            assert requests.taken == HUGE
            small = await instance.fetches.create(posting(target.url, 10))
            assert (await ended(instance.fetches, small.req_id)).state == "succeeded", "nobody else is held up"
        for view in views:
            await ended(instance.fetches, view.req_id)
        async with asyncio.timeout(5):
            while requests.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_request_that_has_left_is_in_memory_no_more(tmp_path: Path, target: TargetServer) -> None:
    async with running(tmp_path) as instance:
        views = [await instance.fetches.create(posting(f"{target.url}/hang", 200_000)) for _ in range(30)]
        await target.wait_for(30)
        requests = instance.fetches_assembly.requests
        assert await states(instance, views) == {"running": 30}
        assert requests.most > 200_000
        assert requests.taken == 0
        assert all(run.request is None for run in instance.fetches_assembly.executor._running.values())
        assert all(run.fetch.request.body is UNSET for run in instance.fetches_assembly.executor._running.values())


def test_what_is_read_of_a_record_keeps_none_of_the_rest() -> None:
    request = OutboundRequest(url="http://a", body="x" * 200_000)
    fetch = Fetch(
        req_id="r", request=request, timeout_ms=1, created_at=1, delivery_ms=1, context=msgspec.Raw(b'{"a":1}')
    )
    value = encode(fetch)
    references = sys.getrefcount(value)
    read = replace(decode(value), request=bare(request))
    assert bytes(read.context) == b'{"a":1}'
    assert sys.getrefcount(value) == references


async def test_of_calls_with_large_requests_that_end_together_a_few_are_recorded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, at_work, most = FetchRegistry.end, 0, 0

    async def counted(*args: Any, **fields: Any) -> Any:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.001)
        try:
            return await end(*args, **fields)
        finally:
            at_work -= 1

    monkeypatch.setattr(FetchRegistry, "end", counted)
    async with running(tmp_path) as instance:
        async with TargetServer() as target:
            views = [await instance.fetches.create(posting(f"{target.url}/hang", 200_000)) for _ in range(30)]
            await target.wait_for(30)
        while await states(instance, views) != {"unknown": 30}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert 1 < most <= LARGE_AT_ONCE


async def test_who_asked_for_room_in_vain_is_told_when_there_is_some() -> None:
    told: list[str] = []
    memory = RequestMemory(16 * START_COPIES, freed=told.extend)
    assert memory.room("lane", "a", 1, Tier.TRUSTED) == 4
    for _ in range(5):
        memory.hold("lane", "a", 1, Tier.TRUSTED)
    assert memory.room("lane", "a", 1, Tier.TRUSTED) == 0, "a site takes no more than it leaves"
    assert memory.room("other", "b", 1, Tier.TRUSTED) == 2
    assert memory.is_short
    memory.let_go("lane")
    await asyncio.sleep(0)
    assert told == ["lane"]
    assert memory.room("lane", "a", 1, Tier.TRUSTED) == 0
