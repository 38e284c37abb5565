"""An instance that joins has its share within the promised time, and in a calm minute nobody's ownership changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainspring.client import AsyncClient
from mainspring.cluster.messages import ShardView
from mainspring.kernel.placement import Placement
from mainspring.testing.torture.process import ServerProcess, serving
from tests.servers.mongodb import MongoDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.support.patience import until

SHARE_SECONDS = 5.0
SPREAD_SECONDS = 15.0
CALM_SECONDS = 60.0

Changes = dict[int, tuple[int, set[str]]]


async def until_spread(clients: Sequence[AsyncClient], *, seconds: float) -> tuple[ShardView, ...]:
    """Wait until each shard is with the one of these instances to which it belongs."""
    instances = [(await client.shards()).instance for client in clients]

    async def look() -> tuple[ShardView, ...] | None:
        shards = (await clients[0].shards()).shards
        placement = Placement()
        await placement.follow([shard.shard_id for shard in shards], instances)
        return shards if {shard.shard_id: shard.owner for shard in shards} == placement.owners else None

    return await until(look, seconds=seconds, what=f"{len(instances)} instances with their shares")


class Cluster:
    """Servers on one store, all with the usual lease."""

    def __init__(self, directory: Path, store_url: str, stack: AsyncExitStack) -> None:
        self._directory = directory
        self._store_url = store_url
        self._stack = stack
        self.servers: list[ServerProcess] = []
        self.clients: list[AsyncClient] = []

    async def start(self) -> None:
        """One more server."""
        directory = self._directory / str(len(self.servers))
        server = await self._stack.enter_async_context(serving(directory, store=self._store_url))
        self.servers.append(server)
        self.clients.append(await self._stack.enter_async_context(server.client()))

    async def changes(self, since: Sequence[ShardView], *, seconds: float) -> Changes:
        """The shards that change hands in this time: how often they are claimed, and all their owners.

        Each claim raises a version, so those that happen between two looks are counted as well.
        """
        before = {shard.shard_id: shard for shard in since}
        owners = {shard_id: {shard.owner} for shard_id, shard in before.items()}
        claims = dict.fromkeys(before, 0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(0.5)
            for shard in (await self.clients[0].shards()).shards:
                owners[shard.shard_id].add(shard.owner)
                claims[shard.shard_id] = shard.version - before[shard.shard_id].version
        return {
            number: (claims[number], owners[number])
            for number in before
            if claims[number] or owners[number] != {before[number].owner}
        }


@pytest.mark.slow
async def test_a_third_instance_has_its_share_within_five_seconds(tmp_path: Path, store_url: str) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path, store_url, stack)
        await cluster.start()
        await cluster.start()
        before = await until_spread(cluster.clients, seconds=SPREAD_SECONDS)
        await cluster.start()
        after = await until_spread(cluster.clients, seconds=SHARE_SECONDS)
        assert all(now == then or now.version > then.version for now, then in zip(after, before, strict=True)), (
            "a shard changed hands without a claim"
        )


@pytest.mark.slow
async def test_no_shard_changes_hands_in_a_calm_minute(
    tmp_path: Path, postgresql: PostgreSQL, mysql: MySQL, mongodb: MongoDB
) -> None:
    """Clusters of three, side by side: they are idle, and so the minute has to pass only once."""
    places = {"sqlite": f"sqlite:///{tmp_path}/shared.db"}
    places |= {server.name: server.fresh() for server in (postgresql, mysql, mongodb)}
    async with AsyncExitStack() as stack:
        clusters = {name: Cluster(tmp_path / name, url, stack) for name, url in places.items()}
        for cluster in clusters.values():
            for _ in range(3):
                await cluster.start()
        spread = {name: await until_spread(each.clients, seconds=SPREAD_SECONDS) for name, each in clusters.items()}

        async def changes(*, seconds: float) -> dict[str, Changes]:
            async with asyncio.TaskGroup() as tasks:
                counts = [tasks.create_task(clusters[name].changes(spread[name], seconds=seconds)) for name in clusters]
            return dict(zip(clusters, [count.result() for count in counts], strict=True))

        assert await changes(seconds=CALM_SECONDS) == {name: {} for name in clusters}

        # The same count sees the shards of one that leaves.
        leaving = {name: (await cluster.clients[2].shards()).instance for name, cluster in clusters.items()}
        async with asyncio.TaskGroup() as tasks:
            for cluster in clusters.values():
                tasks.create_task(cluster.servers[2].stop())
        for name, found in (await changes(seconds=2)).items():
            assert found
            assert all(claims >= 1 and leaving[name] in owners for claims, owners in found.values())
