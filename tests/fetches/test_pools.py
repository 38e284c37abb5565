"""Executors that are processes of their own: what they do, and what becomes of their calls when they go."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from mainspring import crashpoint
from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.delivery.call import Call
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.errors import RateLimited, StoreUnavailable
from mainspring.fetches.arguments import create_request
from mainspring.fetches.messages import FetchView
from mainspring.fetches.pools import EXECUTORS, FRESH_SECONDS, PATH, Execute, ExecutorLease, Pools
from mainspring.fetches.program import Fetches
from mainspring.fetches.record import new_fetch
from mainspring.library import Mainspring
from mainspring.model import Record
from mainspring.origins import FetchError, Origin, ResponseSync
from mainspring.processes.executor import RemoteExecutor
from mainspring.stores.memory import MemoryStore
from mainspring.testing.target import Answer, TargetServer
from tests.support.executors import LEASE_SECONDS, executor, executor_process

pytestmark = pytest.mark.slow  # real processes take their time


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        allow_loopback=True,
        store=f"sqlite:///{tmp_path / 'mainspring.db'}",
        data_dir=str(tmp_path),
        port=0,
        drain_seconds=5.0,
        lease_seconds=LEASE_SECONDS,
        renew_seconds=0.4,
    )


@pytest.fixture
async def instance(config: Config) -> AsyncIterator[Instance]:
    async with Instance(config) as running:
        yield running


@pytest.fixture
def fetches(instance: Instance) -> Fetches:
    return Fetches(instance.fetches)


async def ended(instance: Instance, req_id: str, seconds: float) -> FetchView:
    view = await instance.fetches.wait(req_id, seconds)
    assert view.result is not None, view
    return view


async def test_a_fetch_of_a_pool_is_made_by_its_executor_which_brings_the_result_to_the_origin(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async with executor(config) as remote:
        url = f"{target.url}/echo?id=a"
        await fetches.create(url, req_id="a", method="POST", body=b"\xff", executor="far", result_url=target.url + "/o")
        view = await ended(instance, "a", 5)
        assert (view.state, view.executor) == ("succeeded", remote.name)
        await target.wait_for(2)
        assert [request.path for request in target.requests] == ["/echo?id=a", "/o"]
        assert [view.executor for view in (await fetches.stats()).executors] == [
            instance.ownership.instance,
            remote.name,
        ]
    delivered = await fetches.get("a")
    assert (delivered.delivery.state, delivered.delivery.attempts) == ("delivered", 1)
    assert target.counts["a"] == 2  # the call, and the result under the same id


async def test_an_offer_that_failed_is_repeated_by_the_owner_of_the_row(
    fetches: Fetches, config: Config, target: TargetServer
) -> None:
    target.script("/o", Answer(status=503), Answer())
    async with executor(config):
        await fetches.create(target.url, req_id="a", executor="far", result_url=target.url + "/o")
        await target.wait_for(3)
    async with asyncio.timeout(5):
        while (view := await fetches.get("a")).delivery.state != "delivered":  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)
    assert view.delivery.attempts == 2


class Asking(Origin):
    """Lives in a program, where no executor of a pool reaches it."""

    def ask(self, url: str) -> None:
        self.svc.proxy_fetch(url, self.ctn().take(), executor="far")

    def take(self, result: ResponseSync | FetchError) -> None:
        self.state["status"] = result.status if isinstance(result, ResponseSync) else str(result)


async def test_the_result_for_an_origin_inside_a_program_is_left_to_the_program(
    config: Config, target: TargetServer
) -> None:
    async with Mainspring(config.store, allow_loopback=True, origins=[Asking]) as ms, executor(config) as remote:
        asking = ms.origin(Asking, "a")
        await asking.call(Asking.ask, target.url)
        [req_id] = [found.req_id async for found in ms.fetches.iterate()]
        async with asyncio.timeout(10):
            while (fetch := await ms.fetches.get(req_id)).delivery.state != "delivered":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        assert (await asking.snapshot(), fetch.executor) == ({"status": 200}, remote.name)
        assert fetch.delivery.attempts == 1


async def test_a_killed_executor_is_noticed_and_its_call_is_unknown_and_never_made_again(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async with executor_process(config) as process, executor(config, "other"):
        await fetches.create(target.url + "/hang?id=a", req_id="a", method="POST", executor="far")
        await target.wait_for(1)
        process.kill()
        view = await ended(instance, "a", LEASE_SECONDS + 2)
        assert (view.state, view.result is not None and view.result.error is not None) == ("unknown", True)
        async with executor(config):  # another of the pool has nothing to do
            assert (await fetches.run(target.url + "/b?id=b", req_id="b", executor="far")).state == "succeeded"
    assert target.counts == {"a": 1, "b": 1}


CRASHES = {
    # point: calls that reached the target, state afterwards, offers to the origin
    crashpoint.FETCH_DISPATCHED: (0, "unknown", 1),
    crashpoint.FETCH_ANSWERED: (1, "unknown", 1),
    crashpoint.FETCH_ENDED: (1, "succeeded", 1),
    crashpoint.FETCH_DELIVERED: (1, "succeeded", 2),
}


async def test_an_executor_that_dies_anywhere_makes_no_second_call_and_loses_no_result(
    fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async def crash(point: str) -> None:
        async with executor_process(config, point, crash_at=point) as process:
            origin = f"{target.url}/to/{point}"
            await fetches.create(f"{target.url}/of/{point}", req_id=point, executor=point, result_url=origin)
            async with asyncio.timeout(15):
                assert await process.wait() == -signal.SIGKILL, "the point was not reached"
                while (await fetches.get(point)).delivery.state != "delivered":  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as crashes:
        for point in CRASHES:
            crashes.create_task(crash(point))
    paths = Counter(request.path for request in target.requests)
    found = {
        point: (paths[f"/of/{point}"], (await fetches.get(point)).state, paths[f"/to/{point}"]) for point in CRASHES
    }
    assert found == CRASHES


async def test_a_frozen_executor_loses_its_lease_and_what_it_brings_afterwards_is_late(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async with executor_process(config) as process:
        await fetches.create(target.url + "/delay/0.2?id=a", req_id="a", executor="far")
        await target.wait_for(1)
        os.kill(process.pid, signal.SIGSTOP)
        assert (await ended(instance, "a", LEASE_SECONDS + 2)).state == "unknown"
        os.kill(process.pid, signal.SIGCONT)
        async with asyncio.timeout(5):
            while (view := await fetches.get("a")).late_result is None:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.02)
    assert (view.state, view.late_result.state) == ("unknown", "succeeded")
    assert target.counts == {"a": 1}


async def test_a_stopped_executor_ends_its_calls_first(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async with executor_process(config) as process:
        await fetches.create(target.url + "/delay/0.7", req_id="a", executor="far")
        await target.wait_for(1)
        process.terminate()
        assert (await ended(instance, "a", 5)).state == "succeeded"
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    assert await instance.store.scan_records(EXECUTORS, now=instance.clock.now_ms()) == []


async def test_a_fetch_waits_for_an_executor_and_fails_with_nothing_sent_when_none_comes(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    await fetches.create(target.url, req_id="vain", executor="far", timeout_seconds=0.5)
    await fetches.create(target.url, req_id="patient", executor="far", timeout_seconds=20)
    view = await ended(instance, "vain", 5)
    assert view.result is not None
    assert view.result.error is not None
    assert (view.state, view.result.error.kind, view.result.error.definite) == ("failed", "overloaded", True)
    assert not target.requests
    async with executor(config):
        assert (await ended(instance, "patient", 5)).state == "succeeded"


async def test_a_full_executor_lets_fetches_wait_and_makes_them_all(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async with executor(config, fetch_limit=2) as remote:
        for number in range(20):
            await fetches.create(f"{target.url}/delay/0.05?id={number}", req_id=str(number), executor="far")
        most = 0
        for number in range(20):
            most = max(most, remote.in_flight)
            assert (await ended(instance, str(number), 10)).state == "succeeded"
    assert most <= 2
    assert set(target.counts.values()) == {1}
    assert len(target.counts) == 20


async def test_a_fetch_that_is_handed_over_several_times_in_one_instant_is_called_once(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    async with executor(config, "near") as remote:
        for req_id in ("a", "b", "c"):  # each has several chances to be taken twice within one millisecond
            await fetches.create(f"{target.url}/delay/0.05?id={req_id}", req_id=req_id, executor="far")
            await asyncio.gather(*(remote.execute(Execute(req_id=req_id)) for _ in range(20)))
            assert (await ended(instance, req_id, 5)).state == "succeeded"
    assert target.counts == {"a": 1, "b": 1, "c": 1}


async def test_a_fetch_that_somebody_else_has_started_does_not_count_as_one_that_waits(
    config: Config, target: TargetServer
) -> None:
    async with (
        Instance(msgspec.structs.replace(config, fetch_pending_limit=1)) as instance,
        executor(config, "near") as remote,
    ):
        fetches = Fetches(instance.fetches)
        await fetches.run(target.url)  # then the instance owns the shards of fetches, and counts
        await fetches.create(target.url, req_id="a", executor="far")
        with pytest.raises(RateLimited):
            await fetches.create(target.url, req_id="b", executor="far")
        await remote.execute(Execute(req_id="a"))
        await ended(instance, "a", 5)
        assert (await fetches.create(target.url, req_id="b", executor="far")).state == "pending"


async def test_an_executor_that_is_not_there_any_more_is_passed_over(
    instance: Instance, fetches: Fetches, config: Config, target: TargetServer
) -> None:
    now = instance.clock.now_ms()
    for name, address in (("far/gone", "http://127.0.0.1:9"), ("far/replaced", target.url)):
        lease = ExecutorLease(instance=name, machine="elsewhere", address=address, pool="far", limit=9)
        assert await instance.store.put_record(
            EXECUTORS, name, msgspec.json.encode(lease), expect=0, now=now, expires_at=now + 60_000
        )
    async with executor(config) as remote:
        for number in range(3):
            await fetches.create(target.url, req_id=str(number), executor="far")
            view = await ended(instance, str(number), 5)
            assert (view.state, view.executor) == ("succeeded", remote.name)


async def test_an_executor_that_does_not_answer_is_not_asked_again_before_it_has_renewed_its_lease(
    target: TargetServer,
) -> None:
    target.script(PATH, Answer(behaviour="reset"))
    clock = SystemClock()
    store = MemoryStore(clock)
    lease = msgspec.json.encode(ExecutorLease(instance="far/frozen", address=target.url, pool="far", limit=9))

    async def renew(version: int) -> None:
        await store.put_record(EXECUTORS, "far/frozen", lease, expect=version, now=clock.now_ms())

    pools = Pools(records=store, clock=clock, randomness=Random(1), secret=lambda: "", is_dead=lambda _: False)
    async with pools:
        await renew(0)
        asked = []
        for n in range(4):
            if n == 3:
                await renew(1)
            await pools.hand_over("far", f"f{n}", host="t.example:80")
            asked.append(len(target.requests))
            await asyncio.sleep(FRESH_SECONDS * 1.1)  # then the leases are read again
    assert asked == [1, 1, 1, 2]


async def test_fetches_that_wait_for_a_full_pool_longer_than_they_may_end_with_nothing_sent(
    config: Config, instance: Instance, fetches: Fetches, target: TargetServer
) -> None:
    async with executor(config, fetch_limit=1):
        await fetches.create(target.url + "/hang", req_id="busy", executor="far")
        await target.wait_for(1)
        long_ago = instance.clock.now_ms() - 60_000
        ids = [f"w{n}" for n in range(100)]
        for req_id in ids:
            asked = create_request(target.url, req_id=req_id, executor="far", timeout_seconds=30)
            await instance.fetches_assembly.registry.add(new_fetch(asked, req_id=req_id, now=long_ago))
        for req_id in ids:
            view = await ended(instance, req_id, 10)
            assert view.result is not None
            assert view.result.error is not None
            assert (view.state, view.result.error.kind, view.result.error.definite) == ("failed", "overloaded", True)
    assert len(target.requests) == 1


class _Refusing(MemoryStore):
    """Does not write the first lease of an executor."""

    refused = 0

    async def put_record(self, collection: str, key: str, value: bytes, **fields: Any) -> Record | None:
        if collection == EXECUTORS and not self.refused:
            self.refused += 1
            raise StoreUnavailable("Expected a store, got none for a moment")
        return await super().put_record(collection, key, value, **fields)


async def test_an_executor_that_cannot_write_its_first_lease_writes_the_next(config: Config) -> None:
    store = _Refusing(SystemClock())
    async with RemoteExecutor(config, "far", store=store) as remote:
        await remote.advertise("http://127.0.0.1:1")
        await asyncio.sleep(2 * config.renew_seconds)
        await remote.ready()


async def test_only_processes_of_the_cluster_may_hand_over_calls(config: Config, instance: Instance) -> None:
    async with executor(config), Sender(guard=Guard(allow_loopback=True)) as sender:
        [record] = await instance.store.scan_records(EXECUTORS, now=instance.clock.now_ms())
        address = msgspec.json.decode(record.value, type=ExecutorLease).address
        for token, status in (("wrong", 401), (instance.cluster_secret, 200)):
            headers = (("content-type", "application/json"), ("authorization", f"Bearer {token}"))
            reply = await sender.send(Call("POST", address + PATH, headers, b'{"reqId":"none"}', 5000))
            assert reply.status == status
        assert (await sender.send(Call("GET", address + "/health", (), b"", 5000))).status == 200
