"""Two server processes on one file: shards are shared, and one goes on when the other dies, freezes or leaves.

The lease is short here (2 s, renewed every 0.4 s), so that what waits for it does not wait long.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainspring.client import AsyncClient, Delivery, Result, State
from mainspring.cluster.messages import ShardsView
from mainspring.testing.target import Answer, TargetServer
from mainspring.testing.torture.process import ServerProcess, serving
from tests.support.patience import until, until_gone

pytestmark = pytest.mark.slow  # real processes take their time

LEASE_SECONDS = 2.0
RENEW_SECONDS = 0.4
SETTINGS = {
    "lease_seconds": str(LEASE_SECONDS),
    "renew_seconds": str(RENEW_SECONDS),
    "look_seconds": "0.2",
    "drain_seconds": "5",
}


class Pair:
    """Two servers and a client of each; `a` is the one that things happen to."""

    def __init__(self, a: ServerProcess, b: ServerProcess, ask_a: AsyncClient, ask_b: AsyncClient) -> None:
        self.a, self.b, self.ask_a, self.ask_b = a, b, ask_a, ask_b

    async def until_shared(self) -> ShardsView:
        """Wait until every shard has an owner and both own some."""

        async def look() -> ShardsView | None:
            view = await self.ask_b.shards()
            owners = {shard.owner for shard in view.shards}
            return view if len(owners) == 2 and "" not in owners else None

        return await until(look, seconds=15, what="two owners")

    async def until_b_owns_all(self, *, seconds: float) -> ShardsView:
        async def look() -> ShardsView | None:
            view = await self.ask_b.shards()
            return view if {shard.owner for shard in view.shards} == {view.instance} else None

        return await until(look, seconds=seconds, what="one owner of all shards")

    async def create_many(self, count: int, url: str, *, spread_seconds: float) -> None:
        """Timers `t0` and so on, through either server in turn, due evenly over a time; every third at most once."""
        for n in range(count):
            client = self.ask_a if n % 2 else self.ask_b
            await client.timers.create(
                f"t{n}",
                callback_url=url,
                delay_seconds=spread_seconds * n / count,
                delivery=Delivery.AT_MOST_ONCE if n % 3 == 0 else Delivery.AT_LEAST_ONCE,
            )


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(serving(tmp_path, **SETTINGS))
        b = await stack.enter_async_context(serving(tmp_path, **SETTINGS))
        ask_a = await stack.enter_async_context(a.client())
        ask_b = await stack.enter_async_context(b.client())
        both = Pair(a, b, ask_a, ask_b)
        await both.until_shared()
        yield both


def timers_of(target: TargetServer) -> dict[str, set[str]]:
    """The delivery ids under which each timer arrived."""
    found: dict[str, set[str]] = {}
    for request in target.requests:
        timer_id = request.body.partition(b'"timerId":"')[2].partition(b'"')[0].decode()
        found.setdefault(timer_id, set()).add(request.headers["webhook-id"])
    return found


@pytest.mark.slow
async def test_timers_created_through_either_server_fire_once_and_ownership_stays_calm(
    pair: Pair, target: TargetServer
) -> None:
    before = await pair.until_shared()
    await pair.create_many(200, target.url, spread_seconds=2.0)
    await target.wait_for(200)
    await asyncio.sleep(3.0)  # many renewals, so that flapping would show
    assert (await pair.ask_a.shards()).shards == before.shards
    assert set(timers_of(target)) == {f"t{n}" for n in range(200)}
    assert set(target.deliveries.values()) == {1}


async def test_a_killed_server_is_replaced_at_the_next_tick(pair: Pair, target: TargetServer) -> None:
    await pair.create_many(150, target.url, spread_seconds=3.0)
    await target.wait_for(20)
    await pair.a.kill()
    killed = time.monotonic()
    await pair.until_b_owns_all(seconds=RENEW_SECONDS + 1.0)
    assert time.monotonic() - killed < LEASE_SECONDS
    await _all_accounted_for(pair.ask_b, target, 150)


@pytest.mark.slow
async def test_a_frozen_server_is_replaced_after_its_lease_and_does_no_harm_when_it_wakes(
    pair: Pair, target: TargetServer
) -> None:
    await pair.create_many(150, target.url, spread_seconds=6.0)
    await target.wait_for(20)
    pair.a.send(signal.SIGSTOP)
    frozen = time.monotonic()
    taken = await pair.until_b_owns_all(seconds=LEASE_SECONDS + 2)
    assert time.monotonic() - frozen > LEASE_SECONDS - RENEW_SECONDS - 0.5
    await asyncio.sleep(LEASE_SECONDS)
    pair.a.send(signal.SIGCONT)
    shared = await pair.until_shared()
    assert all(
        now.version == then.version + (now.owner != then.owner)
        for now, then in zip(shared.shards, taken.shards, strict=True)
    )
    await _all_accounted_for(pair.ask_b, target, 150)


async def _all_accounted_for(client: AsyncClient, target: TargetServer, count: int) -> None:
    """At-least-once timers arrived, repeats are recognisable; at-most-once ones arrived once or are parked."""
    await until(lambda: _nothing_pending(client), seconds=20, what="an end of every timer")
    parked = {view.timer_id async for view in client.timers.iterate(states=[State.PARKED])}
    arrived = timers_of(target)
    for n in range(count):
        timer_id = f"t{n}"
        ids = arrived.get(timer_id, set())
        assert len(ids) <= 1, f"{timer_id} arrived under {ids}"
        arrivals = sum(target.deliveries[delivery_id] for delivery_id in ids)
        if n % 3 == 0:
            assert arrivals == 1 or (timer_id in parked and arrivals == 0), f"{timer_id}: {arrivals} arrivals"
        else:
            assert arrivals >= 1, f"{timer_id} never arrived"
            assert timer_id not in parked


async def _nothing_pending(client: AsyncClient) -> bool | None:
    pending = await client.timers.list(states=[State.SCHEDULED, State.RUNNING, State.RETRYING], limit=1)
    return True if not pending.timers else None


async def test_a_zombie_records_nothing_over_what_its_successor_has_recorded(pair: Pair, target: TargetServer) -> None:
    target.script("/slow", Answer(delay_seconds=1.0))
    for n in range(12):
        await pair.ask_b.timers.create(
            f"z{n}", callback_url=f"{target.url}/slow", delay_seconds=0.3, delivery=Delivery.AT_MOST_ONCE
        )
    await target.wait_for(12)
    pair.a.send(signal.SIGSTOP)  # its calls are answered while it sleeps
    await pair.until_b_owns_all(seconds=LEASE_SECONDS + 2)
    await until(lambda: _nothing_pending(pair.ask_b), seconds=5, what="an end of every timer")
    parked = [view async for view in pair.ask_b.timers.iterate(states=[State.PARKED])]
    assert parked, "expected some of the timers to be those of the frozen server"
    pair.a.send(signal.SIGCONT)
    await pair.until_shared()
    for before in parked:
        assert before.last_outcome is not None
        assert before.last_outcome.outcome is Result.UNKNOWN
        assert await pair.ask_a.timers.get(before.timer_id) == before
        assert len((await pair.ask_a.timers.history(before.timer_id)).attempts) == 1
    assert set(target.deliveries.values()) == {1}


async def test_a_server_that_leaves_hands_over_without_doubling_anything(pair: Pair, target: TargetServer) -> None:
    target.script("/slow", Answer(delay_seconds=0.3))
    await pair.create_many(150, f"{target.url}/slow", spread_seconds=3.0)
    await target.wait_for(30)
    assert await pair.a.stop() == 0
    await pair.until_b_owns_all(seconds=RENEW_SECONDS + 1.0)
    await target.wait_for(150)
    await until_gone(pair.ask_b, "t149")
    assert set(timers_of(target)) == {f"t{n}" for n in range(150)}
    assert set(target.deliveries.values()) == {1}


async def test_a_server_that_joins_takes_its_share_without_doubling_anything(
    tmp_path: Path, target: TargetServer
) -> None:
    target.script("/slow", Answer(delay_seconds=0.3))
    async with serving(tmp_path, **SETTINGS) as first, first.client() as ask:
        for n in range(150):
            await ask.timers.create(f"t{n}", callback_url=f"{target.url}/slow", delay_seconds=3.0 * n / 150)
        await target.wait_for(10)
        async with serving(tmp_path, **SETTINGS) as second, second.client() as ask_second:
            await Pair(first, second, ask, ask_second).until_shared()
            await target.wait_for(150)
            await until_gone(ask_second, "t149")
    assert set(target.deliveries.values()) == {1}


async def test_what_a_newcomer_writes_is_seen_by_an_owner_that_was_alone(pair: Pair, target: TargetServer) -> None:
    for n in range(50):
        await pair.ask_b.timers.create(f"t{n}", callback_url=target.url, delay_seconds=0.5)
    await target.wait_for(50, seconds=3)
    assert set(target.deliveries.values()) == {1}


@pytest.mark.parametrize("leaves", ["in order", "by a kill"])
async def test_what_a_visitor_wrote_is_seen_although_it_left_between_two_renewals(
    tmp_path: Path, target: TargetServer, leaves: str
) -> None:
    slow = {"lease_seconds": "4", "renew_seconds": "2", "look_seconds": "0.2"}
    async with serving(tmp_path, **slow) as owner, owner.client() as ask:
        async with serving(tmp_path, **slow) as visitor, visitor.client() as ask_visitor:
            await ask_visitor.timers.create("t", callback_url=target.url, delay_seconds=0.5)
            await (visitor.stop() if leaves == "in order" else visitor.kill())
        await target.wait_for(1)
        await until_gone(ask, "t")
    assert set(target.deliveries.values()) == {1}
