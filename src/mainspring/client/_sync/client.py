# Generated from _async/client.py by tools/generate_sync.py; change that one.
"""The client of a Mainspring server.

with Client() as client:
    client.timers.create("remind-7", callback_url="https://example.com/remind", delay_seconds=300)
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from mainspring.client._sync.connection import Connection
from mainspring.client._sync.fetches import Fetches
from mainspring.client._sync.jobs import Jobs
from mainspring.client._sync.keys import Keys
from mainspring.client._sync.namespaces import Namespaces
from mainspring.client._sync.timers import Timers
from mainspring.client.health import Health, Readiness
from mainspring.client.reply import Repeat, value_of
from mainspring.client.transport import SyncTransport
from mainspring.cluster.messages import InstancesView, ShardsView
from mainspring.wire.message import Message


class Client:
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
        transport: SyncTransport | None = None,
    ) -> None:
        """`transport` is for tests without a network."""
        self._connection = Connection(
            url=url, token=token, timeout=timeout, retries=retries, transport=transport or SyncTransport()
        )
        self.timers = Timers(self._connection)
        self.jobs = Jobs(self._connection)
        self.fetches = Fetches(self._connection)
        self.keys = Keys(self._connection)
        self.namespaces = Namespaces(self._connection)

    @property
    def url(self) -> str:
        return self._connection.url

    def open(self) -> None:
        self._connection.open()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def shards(self) -> ShardsView:
        """Which instance owns which shard. A read, so it is repeated."""
        return self._connection.post("/v1/shards/list", Message(), ShardsView, repeat=Repeat.READ)

    def instances(self) -> InstancesView:
        """Which instances are alive. A read, so it is repeated."""
        return self._connection.post("/v1/instances/list", Message(), InstancesView, repeat=Repeat.READ)

    def health(self) -> Health:
        """Whether the server's process answers. Never repeated: the first answer counts."""
        return value_of(self._connection.get("/health", repeat=Repeat.PROBE), Health)

    def ready(self) -> Readiness:
        """Return if the instance can do its work, else raise Unavailable with the reason. Never repeated."""
        return value_of(self._connection.get("/ready", repeat=Repeat.PROBE), Readiness)

    def metrics(self) -> str:
        """The server's metrics in Prometheus text format. A read, so it is repeated."""
        reply = self._connection.get("/metrics", repeat=Repeat.READ)
        return reply.body.decode("utf-8", "replace")
