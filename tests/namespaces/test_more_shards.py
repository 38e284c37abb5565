"""A namespace of a real cluster gets more shards while the server that was asked is killed; then it is deleted."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from mainspring.client import AsyncClient
from mainspring.errors import MainspringError, NotFound
from mainspring.namespaces.messages import DeletionView
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import ServerProcess, serving
from tests.servers.fixtures import server_params
from tests.support.patience import until

pytestmark = pytest.mark.slow  # real processes take their time

DUE_SECONDS = 40.0
"""After everything else, also on a slow machine: whatever is called and created again is rightly called twice."""


async def create(client: AsyncClient, ids: list[str], target: TargetServer, delay_seconds: float) -> None:
    for id in ids:
        await client.timers.create(
            id, namespace="busy", callback_url=f"{target.url}/?id={id}", delay_seconds=delay_seconds
        )


async def killed_while_asked(server: ServerProcess) -> None:
    """It dies some seconds after it was asked for more shards."""
    async with server.client() as client:
        asking = asyncio.create_task(client.namespaces.reshard("busy", shard_count=64))
        await asyncio.sleep(3)
        await server.kill()
        with suppress(MainspringError):
            await asking


# It waits for more than a minute, and what it tries is the same for every database: one that is shared is enough.
@pytest.mark.parametrize("store_url", ["sqlite", *server_params("postgresql")], indirect=True)
async def test_nothing_is_lost_or_called_twice_when_a_namespace_gets_more_shards_and_nothing_is_left_of_a_deleted_one(
    tmp_path: Path, store_url: str, target: TargetServer
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(tmp_path / "1", store=store_url))
        second = await stack.enter_async_context(serving(tmp_path / "2", store=store_url))
        client = await stack.enter_async_context(second.client())
        await client.namespaces.create("busy", shard_count=4)
        before = [f"before-{number}" for number in range(50)]
        await create(client, before, target, DUE_SECONDS)
        await killed_while_asked(first)
        during: list[str] = []

        async def go_on() -> None:
            while True:
                during.append(f"during-{len(during)}")
                await create(client, [during[-1], during[-1], before[len(during) % 50]], target, DUE_SECONDS)
                await asyncio.sleep(0.05)

        going_on = asyncio.create_task(go_on())
        view = await client.namespaces.reshard("busy", shard_count=64)
        assert [one.shard_count for one in view.earlier] == [4]
        assert view.earlier[0].timers >= 50
        await asyncio.sleep(2)
        going_on.cancel()
        with suppress(asyncio.CancelledError):
            await going_on
        await until(lambda: _none_left(client), seconds=120, what="no timers")
        shards = (await client.namespaces.get("busy")).first_shard
        assert sum(shard.shard_id >= shards for shard in (await client.shards()).shards) == 64
        called = Counter({id: count for id, count in target.counts.items() if not id.startswith("msg_")})
        assert called - Counter(during[-1:]) == Counter(before + during) - Counter(during[-1:])

        await create(client, ["left"], target, 3600)
        steps: list[DeletionView] = []
        done = await client.namespaces.delete("busy", force=True, progress=steps.append)
        assert (done.deleted, done.timers) == (True, 1)
        assert steps[0].closing_until is not None
        with pytest.raises(NotFound):
            await create(client, ["refused"], target, 1)


async def _none_left(client: AsyncClient) -> bool | None:
    return None if (await client.timers.list(namespace="busy", limit=1)).timers else True
