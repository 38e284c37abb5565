"""A server in its own process, attacked by peers without a token: the others hardly notice, and memory stays."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mainspring import descriptors
from mainspring.api.peers import RESERVE
from mainspring.config import Config
from mainspring.descriptors import KEPT, WANTED
from mainspring.processes.startup import hosts_of, limits_of, within_descriptors
from mainspring.testing.attacks.alone import run
from mainspring.testing.attacks.attack import Victim
from mainspring.testing.attacks.catalogue import ATTACKS
from mainspring.testing.attacks.witness import create, health, resident_bytes, witness
from tests.support.exchanges import exchange
from tests.support.running_server import Running, running_server

SECONDS = 2.5
LONGEST_WAIT = 2.0
"""More than the 500 ms that `make attack` allows, so that a busy machine breaks nothing."""
MOST_MEMORY = 60_000_000
"""Less than the 150 MB that are promised, as these attacks are smaller."""


FLAGS = ("--max-connections", "128", "--request-seconds", "2", "--allow-host", "allowed.example")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With the embedded store: its threads feel it first when the loop is busy."""
    directory: Path = tmp_path_factory.mktemp("attacked")
    with running_server(directory, "", *FLAGS) as running:
        yield running


SIZES = {"endless-trailers": 4, "one-byte-chunks": 20, "unread-pipelines": 100, "idle-crowd": 300}
"""Attacks of peers without a token, and with how many connections."""


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.slow
async def test_an_attack_costs_others_little_time_and_the_server_little_memory(server: Running, name: str) -> None:
    victim = Victim(server.port, server.token)
    async with asyncio.timeout(60):
        await witness(victim, create(victim), seconds=0.3)
        before = resident_bytes(server.process_id)
        taken, healthy, served = await asyncio.gather(
            run(ATTACKS[name], victim, seconds=SECONDS, size=SIZES[name]),
            witness(victim, health(victim), seconds=SECONDS),
            witness(victim, create(victim), seconds=SECONDS),
        )
    grown = resident_bytes(server.process_id) - before
    assert taken > 0
    assert (healthy.refused, served.refused) == (0, 0)
    assert max(healthy.p99, served.p99) < LONGEST_WAIT
    assert grown < MOST_MEMORY


async def test_a_loopback_server_refuses_to_be_asked_under_another_name(server: Running) -> None:
    ask = b"GET /health HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n"
    assert b" 421 " in (await exchange(server.port, ask % b"rebound.example")).partition(b"\r\n")[0]
    assert b" 200 " in (await exchange(server.port, ask % b"allowed.example:80")).partition(b"\r\n")[0]


def test_a_server_takes_as_many_descriptors_as_it_may_have(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running_server(tmp_path, "memory://") as running:
            limits = Path(f"/proc/{running.process_id}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(line.split()[3]) == (WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED))


@contextmanager
def few_descriptors(number: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("number", [128, 256, 1024, 4096])
def test_where_there_are_few_descriptors_peers_get_half_of_them(number: int) -> None:
    with few_descriptors(number):
        peers = limits_of(Config()).connections + RESERVE
    kept = min(KEPT, number // 4)
    assert peers == (number - kept) // 2


@pytest.mark.parametrize("number", [128, 256, 1024, 4096])
def test_where_there_are_few_descriptors_calls_leave_enough_for_peers_and_the_store(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with few_descriptors(number):
        peers = limits_of(Config()).connections + RESERVE
        bounded = within_descriptors(Config())
        idle = 2 * descriptors.for_idle()
    calls = bounded.in_flight_limit + 2 * bounded.fetch_limit
    assert min(bounded.in_flight_limit, bounded.fetch_limit) >= number // 64
    assert peers + calls + idle <= number - min(KEPT, number // 4)
    assert "fewer calls are made at once than configured" in caplog.text


def test_where_there_are_enough_descriptors_nothing_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with few_descriptors(16_384):
        assert within_descriptors(Config()) == Config()
        assert limits_of(Config()).connections == Config().max_connections
    assert "descriptors" not in caplog.text


@pytest.mark.slow
async def test_receivers_that_hang_leave_descriptors_for_peers_and_the_store(tmp_path: Path) -> None:
    """Calls to each host are few; there are many hosts."""
    number = 160
    writers: list[asyncio.StreamWriter] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    hanging = await asyncio.start_server(hang, "0.0.0.0", 0)
    port = hanging.sockets[0].getsockname()[1]
    with running_server(tmp_path, "", "--drain-seconds", "1", descriptors=number) as running:
        victim = Victim(running.port, running.token)
        async with asyncio.timeout(60):
            for host in range(200):
                url = f"http://127.1.1.{host + 1}:{port}/"
                timer = {"timerId": f"t{host}", "delaySeconds": 0, "callbackUrl": url}
                assert await answered(victim, "timers/create", timer) == 200
                fetch = {"request": {"method": "GET", "url": url}, "timeoutSeconds": 60}
                assert await answered(victim, "fetches/create", fetch) == 200
            for _ in range(50):
                assert len(os.listdir(f"/proc/{running.process_id}/fd")) < number - 20
                assert await answered(victim, "timers/list", {"limit": 1}) == 200
                await asyncio.sleep(0.05)
    hanging.close()
    for writer in writers:
        writer.close()


async def answered(victim: Victim, path: str, body: object) -> int:
    """The status of an answer, on a connection of its own."""
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {victim.token}\r\n"
        f"connection: close\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    answer = await exchange(victim.port, head.encode() + text)
    return int(answer[9:12] or 0)


def test_only_a_loopback_server_asks_for_a_name() -> None:
    assert hosts_of(Config(host="0.0.0.0")) is None
    own = hosts_of(Config(advertise_url="http://box:8700", allow_hosts=("Timers.internal",)))
    assert own == frozenset({"127.0.0.1", "box", "timers.internal"})
