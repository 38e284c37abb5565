"""A Mainspring for the unit tests of programs that use one: no network, no disk, and nothing is ever called.

    fake = await FakeMainspring.start()
    await my_program(fake.async_client())
    assert (await fake.async_client().timers.get("remind-7")).labels == {"team": "blue"}

The clients are the real ones, with the real API and services behind them, on a store in memory; so checks, errors,
generations and paging are the product's own. Timers stay as they were written: there is no engine.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mainspring
from mainspring.api.app import Api, all_routes, build_app
from mainspring.api.asgi import AsgiApp
from mainspring.api.openapi import openapi_document
from mainspring.api.tokens import token_digest
from mainspring.client import AsyncClient, Client
from mainspring.client.transport import AsyncTransport, SyncTransport
from mainspring.clock import Clock, SystemClock
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.testing.in_process import reply_of

URL = "http://fake.invalid"
TOKEN = "fake"  # noqa: S105  (opens nothing but the fake)


class FakeMainspring:
    """All clients of one fake see the same timers."""

    def __init__(self, clock: Clock | None = None) -> None:
        # Put together but never entered, so there is no engine, and the sender sends nothing.
        self._instance = Instance(
            Config(store="memory://", allow_loopback=True), surroundings=Surroundings(clock=clock or SystemClock())
        )
        self._api = Api(
            timers=self._instance.timers,
            jobs=self._instance.jobs,
            fetches=self._instance.fetches,
            keys=self._instance.keys,
            namespaces=self._instance.namespaces,
            delete_namespace=self._instance.delete_namespace,
            reshard_namespace=self._instance.reshard_namespace,
            shards=self._instance.shards,
            instances=self._instance.instances,
            ready=_ready,
            metrics=self._instance.metrics,
            token_digests=(token_digest(TOKEN),),
            instance="fake",
            version=mainspring.__version__,
        )
        self._app = build_app(self._api)

    @classmethod
    async def start(cls, clock: Clock | None = None) -> FakeMainspring:
        """A fake with the namespace `default`."""
        fake = cls(clock)
        await fake._instance.namespaces.open()
        return fake

    @classmethod
    def start_sync(cls, clock: Clock | None = None) -> FakeMainspring:
        return asyncio.run(cls.start(clock))

    async def send(self, call: Call) -> Reply:
        """What the API answers to exactly these bytes."""
        return await reply_of(self._app, call)

    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        return openapi_document(all_routes(self._api), version=mainspring.__version__)

    def async_client(self) -> AsyncClient:
        return AsyncClient(URL, TOKEN, retries=0, transport=_AsyncFake(self._app))

    def client(self) -> Client:
        return Client(URL, TOKEN, retries=0, transport=_SyncFake(self._app))


class _AsyncFake(AsyncTransport):
    def __init__(self, app: AsgiApp) -> None:
        super().__init__()
        self._app = app

    async def open(self) -> None:
        """Nothing to open, so a client need not be opened either."""

    async def send(self, call: Call) -> Reply:
        return await reply_of(self._app, call)


class _SyncFake(SyncTransport):
    def __init__(self, app: AsgiApp) -> None:
        super().__init__()
        self._app = app

    def open(self) -> None:
        """Nothing to open, so a client need not be opened either."""

    def send(self, call: Call) -> Reply:
        return asyncio.run(reply_of(self._app, call))


async def _ready() -> None:
    return
