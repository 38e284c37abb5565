"""No host, no origin and no cancelled call takes what others need: places are shared, and given back at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring.client import AsyncClient
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.fetches.messages import FetchRef
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from mainspring.testing.target import TargetServer
from tests.support.executors import executor
from tests.support.fetch_requests import asking, ended
from tests.support.running_server import running_server
from tests.support.simulated_fetches import World, answer, world

SILENCE = Reply(None, {}, b"", False, "timeout", "It did not answer", True, 0)


@pytest.fixture
async def other() -> AsyncIterator[TargetServer]:
    async with TargetServer() as server:
        yield server


@asynccontextmanager
async def running(tmp_path: Path, **settings: Any) -> AsyncIterator[Instance]:
    config = Config(allow_loopback=True, store="memory://", data_dir=str(tmp_path), drain_seconds=0.1, **settings)
    async with Instance(config) as instance:
        yield instance


# --- hosts ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_host_that_hangs_does_not_keep_a_server_from_calling_another(
    tmp_path: Path, target: TargetServer, other: TargetServer
) -> None:
    flags = ("--allow-loopback", "--fetch-limit", "4", "--host-limit", "1", "--drain-seconds", "0.1")
    with running_server(tmp_path, "memory://", *flags) as server:
        async with AsyncClient(server.url, server.token) as client:
            for n in range(4):
                await client.fetches.create(target.url + "/hang", req_id=f"slow{n}", timeout_seconds=5)
            await target.wait_for(1)
            await client.fetches.create(other.url + "/", req_id="fast", timeout_seconds=5)
            view = await client.fetches.wait("fast", 2.0)
    assert view.state == "succeeded"
    assert len(target.requests) == 1, "the limit per host is one"


@pytest.mark.parametrize("limit", [2, 4, 50])
async def test_a_host_alone_leaves_places_to_others(
    tmp_path: Path, target: TargetServer, other: TargetServer, limit: int
) -> None:
    async with running(tmp_path, fetch_limit=limit) as instance:
        for n in range(limit):
            await instance.fetches.create(asking(target.url + "/hang", req_id=f"slow{n}"))
        await target.wait_for(max(1, limit // 5))
        await instance.fetches.create(asking(other.url + "/", req_id="fast"))
        assert (await ended(instance.fetches, "fast", seconds=1.0)).state == "succeeded"
        assert len(target.requests) < limit


async def _create(here: World, host: str, count: int, **fields: Any) -> list[str]:
    urls = [f"http://{host}/{n}" for n in range(count)]
    return [(await here.fetches.create(asking(url, **fields))).req_id for url in urls]


def _behaving(**seconds: float) -> Callable[[Call], tuple[float, Reply]]:
    """How long the hosts take, by the first letters of their names; who takes for ever does not answer."""

    def behave(call: Call) -> tuple[float, Reply]:
        takes = next(value for name, value in seconds.items() if call.url.startswith(f"http://{name}"))
        return takes, answer() if takes < 100 else SILENCE

    return behave


def test_no_host_has_more_calls_under_way_than_its_limit_and_all_are_made() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.004, fetch_limit=20, host_limit=3) as here:
            here.network.behave = lambda _: (0.5, answer())
            for host in ("a.example", "b.example"):
                await _create(here, host, 30)
            await asyncio.sleep(8)
            assert len(here.network.calls) == 60
            assert here.network.most == {"a.example": 3, "b.example": 3}

    run_simulated(main)


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_hosts_that_wait_for_the_same_places_get_them_in_turn(limit: int) -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.001, fetch_limit=limit) as here:
            here.network.behave = lambda _: (1.0, answer())
            hosts = [f"h{n}.example" for n in range(2 * limit + 1)]
            for host in hosts:
                await _create(here, host, 50, timeout_seconds=600.0)
            await asyncio.sleep(4 * len(hosts))
            calls = [sum(url.startswith(f"http://{host}/") for url in here.network.calls) for host in hosts]
            assert min(calls) >= 2 * limit, calls
            assert max(calls) <= 6 * limit, calls

    run_simulated(main)


def test_what_waits_for_a_place_is_not_begun_before_there_is_one() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.004, fetch_limit=2) as here:
            here.network.behave = lambda _: (0.2, answer())
            take, taken = here.fetching.executor.take, []

            async def counted(req_id: str, **how: Any) -> Any:
                taken.append(req_id)
                return await take(req_id, **how)

            here.fetching.executor.take = counted  # type: ignore[method-assign]
            for n in range(50):
                await _create(here, f"h{n}.example", 2)
            await asyncio.sleep(20)
            assert len(here.network.calls) == 100
            assert len(taken) == 100, "each row was begun once"

    run_simulated(main)


def test_hosts_that_never_answer_leave_places_to_those_that_do() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.004, fetch_limit=8) as here:
            here.network.behave = _behaving(good=0.1, dead=10_000.0)
            await _create(here, "good.example", 1)
            await asyncio.sleep(1)
            for n in range(40):
                await _create(here, f"dead{n}.example", 2, timeout_seconds=1800.0)
            await asyncio.sleep(1)
            for n in range(20):
                [req_id] = await _create(here, "good.example", 1, req_id=f"good{n}")
                assert (await here.fetches.wait(req_id, 0.5)).state == "succeeded"

    run_simulated(main)


def test_a_host_that_is_new_gets_a_place_though_those_that_answer_never_run_out() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.004, fetch_limit=8) as here:
            here.network.behave = _behaving(busy=0.5, new=0.1)
            for n in range(20):
                await _create(here, f"busy{n}.example", 100, timeout_seconds=600.0)
            await asyncio.sleep(5)
            [req_id] = await _create(here, "new.example", 1)
            assert (await here.fetches.wait(req_id, 3.0)).state == "succeeded"

    run_simulated(main)


# --- cancelled calls --------------------------------------------------------------------------------------------------


async def test_a_cancelled_fetch_gives_its_place_back_at_once(tmp_path: Path, target: TargetServer) -> None:
    async with running(tmp_path, fetch_limit=1) as instance:
        await instance.fetches.create(asking(target.url + "/hang", req_id="first"))
        await target.wait_for(1)
        await instance.fetches.create(asking(target.url + "/next", req_id="next"))
        cancelled = await instance.fetches.cancel(FetchRef(req_id="first"))
        assert cancelled.result is not None
        assert cancelled.result.error is not None
        assert (cancelled.state, cancelled.result.error.definite) == ("cancelled", False)
        assert (await ended(instance.fetches, "next", seconds=1.0)).state == "succeeded"
        await target.wait_for_open(0)
        assert (await instance.fetches.get(FetchRef(req_id="first"))).late_result is None


@pytest.mark.slow
async def test_a_fetch_that_is_cancelled_elsewhere_gives_its_place_back(tmp_path: Path, target: TargetServer) -> None:
    store = f"sqlite:///{tmp_path / 'mainspring.db'}"
    config = Config(allow_loopback=True, store=store, data_dir=str(tmp_path), port=0, drain_seconds=0.1)
    async with Instance(config) as instance, executor(config, fetch_limit=1) as remote:
        await instance.fetches.create(asking(target.url + "/hang", req_id="first", executor="far"))
        await target.wait_for(1)
        assert remote.in_flight == 1
        await instance.fetches.cancel(FetchRef(req_id="first"))
        await target.wait_for_open(0, seconds=2.0)
        await instance.fetches.create(asking(target.url + "/next", req_id="next", executor="far"))
        assert (await ended(instance.fetches, "next", seconds=2.0)).state == "succeeded"


@pytest.mark.slow
async def test_one_server_cuts_off_what_was_cancelled_at_another(tmp_path: Path, target: TargetServer) -> None:
    store = f"sqlite:///{tmp_path / 'mainspring.db'}"
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    flags = ("--allow-loopback", "--drain-seconds", "0.1", "--renew-seconds", "0.3")
    with running_server(one, store, *flags) as first, running_server(two, store, *flags) as second:
        async with AsyncClient(first.url, first.token) as here, AsyncClient(second.url, second.token) as there:
            ids = [f"f{n}" for n in range(12)]
            for req_id in ids:
                await here.fetches.create(target.url + "/hang", req_id=req_id)
            await target.wait_for(len(ids))
            for client in (here, there):
                for req_id in ids[client is here :: 2]:
                    await client.fetches.cancel(req_id)
            await target.wait_for_open(0, seconds=3.0)


# --- origins ----------------------------------------------------------------------------------------------------------


async def test_an_origin_that_hangs_holds_no_place_of_a_call(tmp_path: Path, target: TargetServer) -> None:
    async with running(tmp_path, fetch_limit=1) as instance:
        for n in range(3):
            asked = asking(f"{target.url}/{n}", result_url=target.url + "/hang", req_id=f"r{n}")
            await instance.fetches.create(asked)
        for n in range(3):
            assert (await ended(instance.fetches, f"r{n}", seconds=2.0)).state == "succeeded"


def test_one_origin_gets_no_more_results_at_a_time_than_a_host_may_have_calls_twice() -> None:
    """Once from the executor, once from the engine."""

    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.004, host_limit=3) as here:
            here.network.offer_seconds = 2.0
            ids = [
                req_id
                for n in range(30)
                for req_id in await _create(here, f"h{n}.example", 1, result_url="http://origin.example/")
            ]
            await asyncio.sleep(60)
            assert {tuple(here.network.results[req_id]) for req_id in ids} == {("succeeded",)}
            assert here.network.most["origin.example"] <= 6

    run_simulated(main)


def test_results_that_nobody_takes_keep_no_watchdog_waiting() -> None:
    """However they are found: here by rows that still wait for the watchdog, as after a crash."""

    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, latency_seconds=0.004) as here:
            here.network.offer_seconds = 100_000.0
            here.network.behave = lambda call: (100_000.0 if "silent" in call.url else 0.0, answer())
            for n in range(300):
                await _create(here, "h.example", 1, result_url=f"http://origin{n}.example/", timeout_seconds=1.0)
            await asyncio.sleep(60)
            [silent] = await _create(here, "silent.example", 1, timeout_seconds=1.0)
            await asyncio.sleep(20)
            assert (await here.fetches.get(FetchRef(req_id=silent))).state == "unknown"

    run_simulated(main)


# --- executors of a pool ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_host_that_hangs_does_not_keep_an_executor_from_calling_another(
    tmp_path: Path, target: TargetServer, other: TargetServer
) -> None:
    store = f"sqlite:///{tmp_path / 'mainspring.db'}"
    config = Config(allow_loopback=True, store=store, data_dir=str(tmp_path), port=0, drain_seconds=0.1)
    async with Instance(config) as instance, executor(config, fetch_limit=4, host_limit=2):
        for n in range(30):
            asked = asking(target.url + "/hang", req_id=f"slow{n}", executor="far", timeout_seconds=30.0)
            await instance.fetches.create(asked)
        await target.wait_for(2)
        for n in range(5):
            await instance.fetches.create(asking(other.url + "/", req_id=f"fast{n}", executor="far"))
            assert (await ended(instance.fetches, f"fast{n}", seconds=2.0)).state == "succeeded"
        assert len(target.requests) == 2
        await target.drop_connections()
        await target.wait_for(4)
