"""A full disk and a locked file: refused with 503, nothing acknowledged is lost, and it heals by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import apsw
import pytest

from mainspring.client import AsyncClient
from mainspring.client.transport import AsyncTransport
from mainspring.delivery.call import Call, Reply
from mainspring.errors import StoreUnavailable
from mainspring.testing.target import Answer, TargetServer
from mainspring.testing.torture.process import TOKEN, ServerProcess, serving
from tests.support.patience import until, until_gone
from tests.support.small_disk import small_disk

pytestmark = pytest.mark.slow  # real processes take their time

RECOVERY_SECONDS = 10.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=3) as disk:
        yield disk


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No byte is left on this file system while the block runs."""
    file = disk / "filler"
    try:
        with file.open("wb", buffering=0) as filler:
            for size in (65_536, 4096, 1):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    continue
        yield
    finally:
        file.unlink()


@asynccontextmanager
async def locked(file: Path) -> AsyncIterator[None]:
    """Another process's exclusive lock, as far as the server can tell."""
    connection = apsw.Connection(str(file))
    connection.set_busy_timeout(5000)
    await asyncio.to_thread(connection.execute, "BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def is_ready(server: ServerProcess) -> bool:
    transport = AsyncTransport()
    await transport.open()
    try:
        headers = (("authorization", f"Bearer {TOKEN}"),)
        return (await transport.send(Call("GET", f"{server.url}/ready", headers, b"", 20_000))).status == 200
    finally:
        await transport.close()


async def raw_create(server: ServerProcess) -> Reply:
    """A create as a plain HTTP request."""
    transport = AsyncTransport()
    await transport.open()
    try:
        body = b'{"timerId":"raw","delaySeconds":3600,"callbackUrl":"http://127.0.0.1:9/"}'
        headers = (("content-type", "application/json"), ("authorization", f"Bearer {TOKEN}"))
        return await transport.send(Call("POST", f"{server.url}/v1/timers/create", headers, body, 20_000))
    finally:
        await transport.close()


async def create_until_refused(client: AsyncClient, url: str, acknowledged: set[str]) -> None:
    """Fill what room the database has left in its own file."""
    for n in range(2000):
        try:
            await client.timers.create(f"fill{n}", callback_url=url, delay_seconds=3600, payload="x" * 2000)
        except StoreUnavailable:
            return
        acknowledged.add(f"fill{n}")
    raise AssertionError("Expected a full disk to refuse a create at some time")


async def recovered(client: AsyncClient, url: str) -> float:
    """Seconds until a create is accepted again."""
    started = time.monotonic()

    async def look() -> bool | None:
        try:
            await client.timers.create("recovered", callback_url=url, delay_seconds=3600)
        except StoreUnavailable:
            return None
        return True

    await until(look, seconds=RECOVERY_SECONDS, what="recovery without help")
    return time.monotonic() - started


async def test_a_full_disk_refuses_creates_and_recovers_when_there_is_room_again(
    tmp_path: Path, disk: Path, target: TargetServer
) -> None:
    acknowledged: set[str] = set()
    async with serving(tmp_path, data_dir=str(disk)) as server, server.client() as client:
        for n in range(20):
            await client.timers.create(f"due{n}", callback_url=target.url, delay_seconds=1.5)
            acknowledged.add(f"due{n}")
        with filled(disk):
            await create_until_refused(client, target.url, acknowledged)
            reply = await raw_create(server)
            assert reply.status == 503
            assert reply.headers["content-type"] == "application/problem+json"
            assert b'"code":"store_unavailable"' in reply.body
            await asyncio.sleep(2.0)  # timers come due meanwhile
            assert (await client.health()).status
        await recovered(client, target.url)
        await target.wait_for(20, seconds=RECOVERY_SECONDS)
        for n in range(20):
            await until_gone(client, f"due{n}")
        kept = {view.timer_id async for view in client.timers.iterate(page_size=1000)}
        assert kept >= {timer_id for timer_id in acknowledged if timer_id.startswith("fill")}
    assert set(target.deliveries.values()) == {1}


async def test_a_server_that_cannot_write_is_not_ready_though_its_lease_holds(tmp_path: Path, disk: Path) -> None:
    slow = {"lease_seconds": "120", "renew_seconds": "0.5"}

    async def refuses() -> bool | None:
        return None if await is_ready(server) else True

    async def recovers() -> bool | None:
        return await is_ready(server) or None

    async with serving(tmp_path, data_dir=str(disk), **slow) as server, server.client() as client:
        assert await is_ready(server)
        with filled(disk):
            await create_until_refused(client, "http://127.0.0.1:9/", set())
            await until(refuses, seconds=20, what="a server that is not ready")
        await until(recovers, seconds=20, what="a server that is ready")


async def test_what_was_acknowledged_before_a_full_disk_survives_a_kill_during_it(
    tmp_path: Path, disk: Path, target: TargetServer
) -> None:
    acknowledged: set[str] = set()
    async with serving(tmp_path, data_dir=str(disk)) as server, server.client() as client:
        with filled(disk):
            await create_until_refused(client, target.url, acknowledged)
            await server.kill()
    async with serving(tmp_path, data_dir=str(disk)) as server, server.client() as client:
        kept = {view.timer_id async for view in client.timers.iterate(page_size=1000)}
    assert kept >= acknowledged


async def test_a_locked_file_refuses_creates_and_recovers_when_it_is_free_again(
    tmp_path: Path, target: TargetServer
) -> None:
    async with serving(tmp_path) as server, server.client() as client:
        for n in range(20):
            await client.timers.create(f"due{n}", callback_url=target.url, delay_seconds=0.5)
        async with locked(tmp_path / "mainspring.db"):
            reply = await raw_create(server)
            assert reply.status == 503
            assert b'"code":"store_unavailable"' in reply.body
            assert (await client.timers.get("due0")).timer_id == "due0"  # reading goes on
            await asyncio.sleep(0.5)
        assert await recovered(client, target.url) < RECOVERY_SECONDS
        await target.wait_for(20, seconds=RECOVERY_SECONDS)
        for n in range(20):
            await until_gone(client, f"due{n}")
    assert set(target.deliveries.values()) == {1}


async def test_calls_that_end_while_the_file_is_locked_beyond_the_lease_are_not_made_again(
    tmp_path: Path, target: TargetServer
) -> None:
    """The lease runs out because nobody can renew it, but nobody else is there to take the shards."""
    target.script("/slow", Answer(delay_seconds=0.5))
    async with (
        serving(tmp_path, lease_seconds="2", renew_seconds="0.5") as server,
        server.client(timeout=20) as client,
    ):
        for n in range(20):
            await client.timers.create(f"t{n}", callback_url=f"{target.url}/slow", delay_seconds=0.1)
        await target.wait_for(20)
        async with locked(tmp_path / "mainspring.db"):
            await asyncio.sleep(4.5)
        await recovered(client, target.url)
        for n in range(20):
            await until_gone(client, f"t{n}")
        outcomes = {(a.attempt, a.outcome) for n in range(20) for a in (await client.timers.history(f"t{n}")).attempts}
    assert set(target.deliveries.values()) == {1}, outcomes
