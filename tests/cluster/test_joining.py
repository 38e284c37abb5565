"""An instance that joins has its share within the promised time, and from then on nobody's ownership changes."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainspring.client import AsyncClient
from mainspring.kernel.ownership import placement
from mainspring.testing.torture.process import ServerProcess, serving
from mainspring.timers.messages import ShardView
from tests.faults.waiting import until

SHARE_SECONDS = 5.0
CALM_SECONDS = 10.0
"""Several renewals of everybody."""


async def until_spread(clients: list[AsyncClient], *, seconds: float) -> tuple[ShardView, ...]:
    """Wait until each shard is with the one of these instances to which it belongs."""
    instances = [(await client.shards()).instance for client in clients]

    async def look() -> tuple[ShardView, ...] | None:
        shards = (await clients[0].shards()).shards
        share = placement([shard.shard_id for shard in shards], instances)
        return shards if {shard.shard_id: shard.owner for shard in shards} == share else None

    return await until(look, seconds=seconds, what=f"{len(instances)} instances with their shares")


@pytest.mark.slow
async def test_a_third_instance_has_its_share_within_five_seconds_and_then_ownership_stays(
    tmp_path: Path, store_url: str
) -> None:
    async with AsyncExitStack() as stack:

        async def start(name: str) -> AsyncClient:
            server: ServerProcess = await stack.enter_async_context(serving(tmp_path / name, store=store_url))
            return await stack.enter_async_context(server.client())

        clients = [await start("first"), await start("second")]
        before = await until_spread(clients, seconds=15)

        clients.append(await start("third"))
        after = await until_spread(clients, seconds=SHARE_SECONDS)
        assert all(now == then or now.version > then.version for now, then in zip(after, before, strict=True)), (
            "a shard changed hands without a claim"
        )

        end = time.monotonic() + CALM_SECONDS
        while time.monotonic() < end:
            for client in clients:
                assert (await client.shards()).shards == after
            await asyncio.sleep(0.25)
