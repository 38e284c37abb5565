"""The client of a Mainspring server.

async with AsyncClient() as client:
    await client.timers.create("remind-7", callback_url="https://example.com/remind", delay_seconds=300)
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from mainspring.client._async.connection import AsyncConnection
from mainspring.client._async.fetches import AsyncFetches
from mainspring.client._async.jobs import AsyncJobs
from mainspring.client._async.keys import AsyncKeys
from mainspring.client._async.namespaces import AsyncNamespaces
from mainspring.client._async.timers import AsyncTimers
from mainspring.client.health import Health, Readiness
from mainspring.client.reply import Repeat, value_of
from mainspring.client.transport import AsyncTransport
from mainspring.cluster.messages import InstancesView, ShardsView
from mainspring.wire.message import Message


class AsyncClient:
    """Timers, jobs, fetches, idempotency keys, namespaces and the state of one server.

    Use it as a context manager, or between `open` and `close`. `timeout` is for one attempt; up to `retries` more
    follow, but only where repeating is harmless. Raises the errors of `mainspring.errors`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        transport: AsyncTransport | None = None,
    ) -> None:
        """`transport` is for tests without a network."""
        self._connection = AsyncConnection(
            url=url, token=token, timeout=timeout, retries=retries, transport=transport or AsyncTransport()
        )
        self.timers = AsyncTimers(self._connection)
        self.jobs = AsyncJobs(self._connection)
        self.fetches = AsyncFetches(self._connection)
        self.keys = AsyncKeys(self._connection)
        self.namespaces = AsyncNamespaces(self._connection)

    @property
    def url(self) -> str:
        return self._connection.url

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def shards(self) -> ShardsView:
        """Which instance owns which shard. A read, so it is repeated."""
        return await self._connection.post("/v1/shards/list", Message(), ShardsView, repeat=Repeat.READ)

    async def instances(self) -> InstancesView:
        """Which instances are alive. A read, so it is repeated."""
        return await self._connection.post("/v1/instances/list", Message(), InstancesView, repeat=Repeat.READ)

    async def health(self) -> Health:
        """Whether the server's process answers. Never repeated: the first answer counts."""
        return value_of(await self._connection.get("/health", repeat=Repeat.PROBE), Health)

    async def ready(self) -> Readiness:
        """Return if the instance can do its work, else raise Unavailable with the reason. Never repeated."""
        return value_of(await self._connection.get("/ready", repeat=Repeat.PROBE), Readiness)

    async def metrics(self) -> str:
        """The server's metrics in Prometheus text format. A read, so it is repeated."""
        reply = await self._connection.get("/metrics", repeat=Repeat.READ)
        return reply.body.decode("utf-8", "replace")
