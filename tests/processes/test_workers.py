"""`serve --workers`: several instances behind one port, one supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path

import apsw
import pytest

from mainspring.client import AsyncClient
from mainspring.cluster.messages import InstanceView
from mainspring.errors import InvalidInput
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import TOKEN, ServerProcess, serving
from tests.support.patience import until

pytestmark = pytest.mark.slow  # real processes take their time


def pid_of(view: InstanceView) -> int:
    return int(view.instance.split("-")[-2])


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def instances(client: AsyncClient, count: int, without: int = 0) -> list[InstanceView]:
    async def look() -> list[InstanceView] | None:
        views = list((await client.instances()).instances)
        pids = {pid_of(view) for view in views}
        is_spread = len(views) == count and without not in pids and sum(view.owned_shards for view in views) == 16
        return views if is_spread else None

    return await until(look, seconds=15, what=f"{count} instances that own everything")


async def test_workers_share_the_port_and_the_work(tmp_path: Path, target: TargetServer) -> None:
    async with serving(tmp_path, workers="3", look_seconds="30") as server, server.client() as client:
        await instances(client, 3)
        answered = set()
        for _ in range(40):
            async with server.client() as other:  # a new connection each time
                answered.add((await other.instances()).instance)
        assert len(answered) == 3
        await asyncio.gather(
            *(client.timers.create(f"t{n}", callback_url=target.url, delay_seconds=0) for n in range(60))
        )
        await target.wait_for(60, seconds=3)  # which is by wake-ups: the next look is far away
        assert server.log.read_text().count("is ready at") == 1
        assert await server.stop() == 0
    assert set(target.deliveries.values()) == {1}


async def test_workers_call_this_machine_as_the_one_setting_says(tmp_path: Path, target: TargetServer) -> None:
    async with serving(tmp_path, workers="2", allow_loopback="false") as server, server.client() as client:
        for _ in range(5):
            with pytest.raises(InvalidInput, match="loopback"):
                await client.timers.create("t", callback_url=target.url, delay_seconds=0)


async def test_a_killed_worker_is_replaced_and_nothing_is_missed(tmp_path: Path, target: TargetServer) -> None:
    async with serving(tmp_path, workers="2") as server, AsyncClient(server.url, TOKEN, retries=5) as client:
        views = await instances(client, 2)
        for n in range(60):
            await client.timers.create(f"t{n}", callback_url=target.url, delay_seconds=n / 20)
        victim = pid_of(views[0])
        os.kill(victim, signal.SIGKILL)
        await instances(client, 2, without=victim)
        await target.wait_for(60, seconds=10)


async def test_a_worker_that_is_refused_after_it_was_ready_is_started_again_and_the_others_go_on(
    tmp_path: Path, target: TargetServer
) -> None:
    async with serving(tmp_path, workers="2") as server, AsyncClient(server.url, TOKEN, retries=5) as client:
        views = await instances(client, 2)
        path = str(tmp_path / "mainspring.db")
        _execute(path, "INSERT INTO migrations VALUES (99, 'later')")  # what a start refuses
        os.kill(pid_of(views[0]), signal.SIGKILL)

        async def refused() -> bool | None:
            return True if 2 in _exit_codes(server) else None

        await until(refused, seconds=15, what="a worker that ended with exit code 2")
        assert server.exit_code is None
        await instances(client, 1)
        await client.timers.create("meanwhile", callback_url=target.url, delay_seconds=0)
        await target.wait_for(1, seconds=10)
        _execute(path, "DELETE FROM migrations WHERE number = 99")
        await instances(client, 2, without=pid_of(views[0]))
        assert await server.stop() == 0


def _exit_codes(server: ServerProcess) -> list[int]:
    """How workers have ended so far."""
    lines = server.log.read_text().splitlines()
    return [int(json.loads(line)["exit_code"]) for line in lines if "a worker exited" in line]


def _execute(path: str, statement: str) -> None:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    connection.execute(statement)
    connection.close()


async def test_workers_end_with_their_supervisor_however_it_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, workers="2") as server:
        async with server.client() as client:
            pids = [pid_of(view) for view in await instances(client, 2)]
        await server.kill()

        async def look() -> bool | None:
            return True if not any(map(is_running, pids)) else None

        await until(look, seconds=10, what="an end of the workers")


def samples(text: str, name: str) -> dict[str, float]:
    """By worker, added up over all other labels."""
    found: dict[str, float] = {}
    for worker, number in re.findall(rf'^{name}\{{worker="(\d+)"[^}}]*\}} (\S+)$', text, re.MULTILINE):
        found[worker] = found.get(worker, 0.0) + float(number)
    return found


async def scraped(server: ServerProcess) -> str:
    async with server.client() as client:  # a new connection, which any of the workers may get
        return await client.metrics()


async def test_a_scrape_of_any_worker_shows_all_of_them_and_no_counter_goes_back(
    tmp_path: Path, target: TargetServer
) -> None:
    settings = {"workers": "2", "access_log": "true", "log_level": "warning"}
    async with serving(tmp_path, **settings) as server, AsyncClient(server.url, TOKEN, retries=5) as client:
        views = await instances(client, 2)
        for n in range(30):
            async with server.client() as other:
                await other.timers.create(f"t{n}", callback_url=f"{target.url}/status/500", delay_seconds=0)
        await target.wait_for(30, seconds=10)
        before: dict[str, float] = {}
        for _ in range(20):
            text = await scraped(server)
            assert "mainspring_workers_shown 2" in text
            assert text.count("# TYPE mainspring_timer_writes_total counter") == 1
            writes = samples(text, "mainspring_timer_writes_total")
            assert set(writes) == {"0", "1"}
            assert sum(writes.values()) == 30
            assert sum(samples(text, "mainspring_owned_shards").values()) == 16
            requests = samples(text, "mainspring_http_requests_total")
            assert all(requests[worker] >= count for worker, count in before.items())
            before = requests
        assert before["0"] > 0
        assert before["1"] > 0
        log = server.log.read_text()
        assert {json.loads(line)["timer_id"] for line in log.splitlines() if "an attempt failed" in line} == {
            f"t{n}" for n in range(30)
        }
        assert log.count('"POST /v1/timers/create 200"') == 30
        assert TOKEN not in log
        os.kill(pid_of(views[0]), signal.SIGSTOP)  # it keeps its share of connections, but the other answers for itself
        try:
            shown = await _shown(server)
        finally:
            os.kill(pid_of(views[0]), signal.SIGCONT)
        assert shown == "mainspring_workers_shown 1"


async def _shown(server: ServerProcess) -> str:
    """By the first of many scrapes that is answered: each may get to the worker that does not answer."""
    scrapes = [asyncio.create_task(scraped(server)) for _ in range(16)]
    async with asyncio.timeout(12):  # the supervisor replaces a worker that is silent for 15 s
        text = await next(asyncio.as_completed(scrapes))
    for scrape in scrapes:
        scrape.cancel()
    await asyncio.gather(*scrapes, return_exceptions=True)
    return "\n".join(re.findall("^mainspring_workers_shown.*$", text, re.MULTILINE))


async def test_a_port_that_is_taken_is_refused_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ServerProcess(tmp_path, workers="2", port=str(taken.getsockname()[1]))
        assert await server.ended(seconds=10) == 2
        assert "is already in use" in server.tail()


async def test_a_configuration_that_no_worker_can_use_ends_the_whole_with_its_reason(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, workers="2", store="nonsense://")
    assert await server.ended(seconds=20) == 2
    assert re.search(r"Expected .*nonsense", server.tail())


async def test_workers_on_a_store_in_memory_are_refused_because_they_could_not_share_it(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, workers="2", store="memory://")
    assert await server.ended(seconds=10) == 2
    assert "Expected a store that 2 workers can share, got memory://" in server.tail()
