"""SIGTERM: calls in flight end, or are recorded as unknown; shards are given back; the next start goes on at once."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import apsw
import pytest

from mainspring.client import Delivery, Result, State
from mainspring.testing.target import Answer, TargetServer
from mainspring.testing.torture.process import ServerProcess, serving
from tests.support.patience import until_gone, until_state

pytestmark = pytest.mark.slow  # real processes take their time


async def test_a_stop_waits_for_the_calls_in_flight(tmp_path: Path, target: TargetServer) -> None:
    target.script("/slow", Answer(delay_seconds=2.0))
    async with serving(tmp_path) as server, server.client() as client:
        await client.timers.create("t", callback_url=f"{target.url}/slow", delay_seconds=0)
        await target.wait_for(1)
        started = time.monotonic()
        assert await server.stop() == 0
        assert time.monotonic() - started > 1.5
    async with serving(tmp_path) as server, server.client() as client:
        await until_gone(client, "t", seconds=1)
        [attempt] = (await client.timers.history("t")).attempts
        assert (attempt.outcome, attempt.next, attempt.status) == (Result.SUCCEEDED, "done", 200)
    assert len(target.requests) == 1


async def test_a_stop_with_nothing_to_do_is_quick_and_leaves_no_owner_behind(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.client() as client:
        before = await client.shards()
        assert {shard.owner for shard in before.shards} == {before.instance}
        started = time.monotonic()
        assert await server.stop() == 0
        assert time.monotonic() - started < 3
    connection = apsw.Connection(str(tmp_path / "mainspring.db"))
    assert {owner for (owner,) in connection.execute("SELECT owner FROM shards")} == {""}
    connection.close()
    async with serving(tmp_path) as server, server.client() as client:
        after = await client.shards()
    assert {shard.owner for shard in after.shards} == {after.instance}
    assert [s.version for s in after.shards] == [s.version + 1 for s in before.shards]


async def test_after_a_kill_the_next_start_on_the_machine_does_not_wait_for_the_lease(tmp_path: Path) -> None:
    async with serving(tmp_path, lease_seconds="3600") as server, server.client() as client:
        before = await client.shards()
        await server.kill()
    async with serving(tmp_path) as server, server.client() as client:
        after = await client.shards()
    assert {shard.owner for shard in after.shards} == {after.instance}
    assert after.instance != before.instance


async def test_a_call_that_outlasts_the_stop_is_unknown_and_repeated_with_the_same_id(
    tmp_path: Path, target: TargetServer
) -> None:
    target.script("/hang", Answer(behaviour="hang"), Answer())
    async with serving(tmp_path, drain_seconds="0.5") as server, server.client() as client:
        await client.timers.create("t", callback_url=f"{target.url}/hang", delay_seconds=0)
        await target.wait_for(1)
        assert await server.stop(seconds=10) == 0
    async with serving(tmp_path) as server, server.client() as client:
        await target.wait_for(2)
        await until_gone(client, "t")
        last, first = (await client.timers.history("t")).attempts
    assert (first.attempt, first.outcome, first.next) == (1, Result.UNKNOWN, "retry")
    assert (last.attempt, last.outcome, last.next) == (2, Result.SUCCEEDED, "done")
    assert list(target.deliveries.values()) == [2]
    assert [request.headers["mainspring-attempt"] for request in target.requests] == ["1", "2"]


async def test_an_at_most_once_call_that_outlasts_the_stop_is_parked_as_unknown(
    tmp_path: Path, target: TargetServer
) -> None:
    target.script("/hang", Answer(behaviour="hang"), Answer())
    async with serving(tmp_path, drain_seconds="0.5") as server, server.client() as client:
        await client.timers.create(
            "t", callback_url=f"{target.url}/hang", delay_seconds=0, delivery=Delivery.AT_MOST_ONCE
        )
        await target.wait_for(1)
        assert await server.stop(seconds=10) == 0
    async with serving(tmp_path) as server, server.client() as client:
        view = await until_state(client, "t", State.PARKED)
        assert view.last_outcome is not None
        assert view.last_outcome.outcome is Result.UNKNOWN
        assert "may have" in view.last_outcome.detail
        await client.timers.create("after", callback_url=f"{target.url}/", delay_seconds=0)
        await until_gone(client, "after")
    assert len(target.requests) == 2


async def test_what_came_due_while_nothing_ran_fires_at_the_next_start(tmp_path: Path, target: TargetServer) -> None:
    async with serving(tmp_path) as server, server.client() as client:
        for number in range(20):
            await client.timers.create(f"t{number}", callback_url=target.url, delay_seconds=0.5)
        await server.stop()
    await asyncio.sleep(0.6)
    assert not target.requests
    async with serving(tmp_path):
        ready = time.monotonic()
        await target.wait_for(20)
        assert time.monotonic() - ready < 1
    assert set(target.deliveries.values()) == {1}


async def test_requests_that_are_being_answered_at_a_stop_get_their_answer(
    tmp_path: Path, target: TargetServer
) -> None:
    async with serving(tmp_path) as server, server.client() as client:
        await client.health()  # a connection that is open at the stop
        creates = [
            asyncio.create_task(client.timers.create(f"t{n}", callback_url=target.url, delay_seconds=3600))
            for n in range(200)
        ]
        await asyncio.sleep(0.01)
        server.send(signal.SIGTERM)
        results = await asyncio.gather(*creates, return_exceptions=True)
        assert await server.ended() == 0
    acknowledged = {n for n, result in enumerate(results) if not isinstance(result, BaseException)}
    async with serving(tmp_path) as server, server.client() as client:
        kept = {view.timer_id async for view in client.timers.iterate(page_size=1000)}
    assert {f"t{n}" for n in acknowledged} <= kept


async def test_a_second_process_on_a_busy_port_says_so_and_harms_nothing(tmp_path: Path, target: TargetServer) -> None:
    async with serving(tmp_path) as server, server.client() as client:
        second = ServerProcess(tmp_path, port=str(server.port))
        assert await second.ended() == 2
        assert "is already in use" in second.tail()
        await client.timers.create("t", callback_url=target.url, delay_seconds=0)
        await target.wait_for(1)
        await until_gone(client, "t")
