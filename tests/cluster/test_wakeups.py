"""A create on an instance that does not own the shard reaches the owner at once, and only members are listened to."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import apsw
import pytest

from mainspring.client import AsyncClient
from mainspring.client.transport import AsyncTransport
from mainspring.delivery.call import Call, Reply
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import TOKEN, ServerProcess, serving
from tests.support.patience import until

pytestmark = pytest.mark.slow  # real processes take their time

SLOW_LOOK = {"look_seconds": "30"}
"""So slow that only a wake-up can be the reason for a punctual call."""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[ServerProcess, ServerProcess]]:
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(serving(tmp_path, **SLOW_LOOK))
        b = await stack.enter_async_context(serving(tmp_path, **SLOW_LOOK))
        async with a.client() as ask:
            await until(lambda: _shared(ask), seconds=10, what="two owners")
        yield a, b


async def _shared(ask: AsyncClient) -> bool | None:
    views = (await ask.instances()).instances
    return True if len(views) == 2 and all(view.owned_shards for view in views) else None


async def send(server: ServerProcess, token: str, body: bytes) -> Reply:
    headers = (("content-type", "application/json"), ("authorization", f"Bearer {token}"))
    transport = AsyncTransport()
    await transport.open()
    try:
        return await transport.send(Call("POST", server.url + "/internal/wake", headers, body, 5000))
    finally:
        await transport.close()


def cluster_secret(directory: Path) -> str:
    connection = apsw.Connection(str(directory / "mainspring.db"))
    try:
        value: bytes = connection.execute("SELECT value FROM records WHERE collection = 'cluster'").get
        return value.decode()
    finally:
        connection.close()


async def test_timers_created_where_their_shard_is_not_owned_fire_without_waiting_for_a_look(
    pair: tuple[ServerProcess, ServerProcess], target: TargetServer
) -> None:
    async with pair[0].client() as ask:
        await asyncio.gather(
            *(ask.timers.create(f"t{n}", callback_url=target.url, delay_seconds=0) for n in range(100))
        )
        await target.wait_for(100, seconds=3)
    assert set(target.deliveries.values()) == {1}


async def test_only_the_secret_of_the_cluster_is_listened_to(
    pair: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    server = pair[0]
    for token in (TOKEN, "", "x" * 43):
        assert (await send(server, token, b"{}")).status == 401
    secret = cluster_secret(tmp_path)
    assert (await send(server, secret, b'{"shards":[[0,1],[999999,1]],"members":true}')).status == 200
    for body in (b"", b"[]", b'{"shards":[[0]]}', b'{"shards":[[0,100000000000000000000]]}', b'{"x":1}'):
        assert (await send(server, secret, body)).status == 400
    async with AsyncClient(server.url, secret, retries=0) as client:
        with pytest.raises(Exception, match="token"):
            await client.timers.list()


async def test_the_route_is_not_described(pair: tuple[ServerProcess, ServerProcess]) -> None:
    transport = AsyncTransport()
    await transport.open()
    reply = await transport.send(Call("GET", pair[0].url + "/openapi.json", (), b"", 5000))
    await transport.close()
    assert reply.status == 200
    assert b"/v1/instances/list" in reply.body
    assert b"internal/wake" not in reply.body


async def test_a_frozen_owner_holds_up_no_create(
    pair: tuple[ServerProcess, ServerProcess], target: TargetServer
) -> None:
    pair[1].send(signal.SIGSTOP)
    try:
        async with pair[0].client(timeout=2) as ask:
            for n in range(50):
                await ask.timers.create(f"t{n}", callback_url=target.url, delay_seconds=0)
    finally:
        pair[1].send(signal.SIGCONT)
    await target.wait_for(50, seconds=20)


async def test_a_server_that_leaves_and_one_that_comes_are_noticed_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as a, a.client() as ask, serving(tmp_path) as b:
        await until(lambda: _shared(ask), seconds=1.5, what="a share for the newcomer")
        await b.stop()
        await until(lambda: _owns_all(ask), seconds=1.5, what="one owner of everything")


async def _owns_all(ask: AsyncClient) -> bool | None:
    view = await ask.shards()
    return True if {shard.owner for shard in view.shards} == {view.instance} else None
