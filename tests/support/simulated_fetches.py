"""Fetches in simulated time: a whole engine on a memory store, and a network that does as it is told."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.secrets import Secrets
from mainspring.failure_lines import FailureLines
from mainspring.fetches.assembly import FetchesAssembly
from mainspring.fetches.record import NAMESPACE
from mainspring.fetches.service import FetchService
from mainspring.kernel.carrier import Carriers
from mainspring.kernel.engine import Engine
from mainspring.kernel.ownership import Lease, Ownership
from mainspring.kernel.settings import EngineSettings
from mainspring.namespaces.service import NamespaceService
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import FaultyStore, SimulatedClock, SimulatedLoop


def answer(status: int = 200, body: bytes = b"{}") -> Reply:
    return Reply(status, {}, body, False, "", "", True, 0)


class Network:
    """Counts what reaches it. `behave` says how long a call takes and what comes of it."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, int] = defaultdict(int)
        """By URL."""
        self.results: defaultdict[str, list[str]] = defaultdict(list)
        """The states that origins were told and acknowledged, by reqId."""
        self.most: Counter[str] = Counter()
        """Calls at a time, by host."""
        self._now: Counter[str] = Counter()
        self.offer_seconds = 0.0
        """How long an origin takes to answer."""
        self.behave: Callable[[Call], tuple[float, Reply]] = lambda _: (0.0, answer())

    async def send(self, call: Call) -> Reply:
        self.calls[call.url] += 1
        seconds, reply = self.behave(call)
        async with self.crowding(call.url):
            await asyncio.sleep(seconds)
        return reply

    @asynccontextmanager
    async def crowding(self, url: str) -> AsyncIterator[None]:
        host = urlsplit(url).netloc
        self._now[host] += 1
        self.most[host] = max(self.most[host], self._now[host])
        try:
            yield
        finally:
            self._now[host] -= 1


class Post:
    """The origins: they take everything."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def send(self, call: Call) -> Reply:
        told = msgspec.json.decode(call.body)
        async with self._network.crowding(call.url):
            await asyncio.sleep(self._network.offer_seconds)
        self._network.results[told["reqId"]].append(told["state"])
        return answer()


class World:
    """One instance and all that is around it."""

    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int,
        *,
        latency_seconds: float,
        fault_rate: float,
        fetch_limit: int,
        host_limit: int,
        retention_days: int,
        memory_bytes: int,
    ) -> None:
        dice = random.Random(seed)
        self.clock = clock = SimulatedClock(loop)
        self.network = Network()
        store: Any = FaultyStore(MemoryStore(clock), dice, fault_rate=fault_rate, latency_seconds=latency_seconds)
        self.store = store
        namespaces = NamespaceService(records=store, clock=clock, randomness=dice, created=self._claim_soon)
        self.namespaces = namespaces
        ownership = Ownership(
            store=store,
            clock=clock,
            lease=Lease(instance="one"),
            lease_seconds=60.0,
            shard_ids=namespaces.shard_ids,
            randomness=dice,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.fetching = FetchesAssembly(
            config=Config(
                fetch_limit=fetch_limit,
                host_limit=host_limit,
                fetch_retention_days=retention_days,
                fetch_memory_bytes=memory_bytes,
            ),
            store=store,
            namespaces=namespaces,
            ownership=ownership,
            guard=Guard(allow_loopback=True),
            secrets=Secrets(),
            calls=self.network,
            callbacks=Post(self.network),
            clock=clock,
            randomness=dice,
            spawn=self._spawn,
            wake=self._wake,
            pump=self._pump,
            is_crowded=lambda: self.engine.dispatcher.queued > 0,
            is_dead=lambda _: False,
            address_of=lambda _: "",
            secret=lambda: "",
            failures=FailureLines(clock.monotonic),
        )
        self.engine = Engine(
            store=store,
            clock=clock,
            ownership=ownership,
            carrier=Carriers(self.fetching.carrier, {NAMESPACE: self.fetching.carrier}),
            spawn=self._spawn,
            settings=EngineSettings(renew_seconds=20.0, window_limit=100_000),
        )

    @property
    def fetches(self) -> FetchService:
        return self.fetching.service

    def watch(self) -> asyncio.Task[None]:
        """Have the instance look after fetches that nobody makes."""
        return self._spawn(self.fetching.watcher.watch())

    def _claim_soon(self) -> None:
        self.engine.claim_soon()

    def _wake(self, shard_id: int, due_at: int) -> None:
        self.engine.wake(shard_id, due_at)

    def _pump(self, *lanes: str) -> None:
        self.engine.dispatcher.pump(*lanes)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def world(
    loop: SimulatedLoop,
    seed: int = 0,
    *,
    latency_seconds: float = 0.0,
    fault_rate: float = 0.0,
    fetch_limit: int = 100_000,
    host_limit: int = 100_000,
    retention_days: int = 7,
    memory_bytes: int = 50_331_648,
) -> AsyncIterator[World]:
    made = World(
        loop,
        seed,
        latency_seconds=latency_seconds,
        fault_rate=0.0,
        fetch_limit=fetch_limit,
        host_limit=host_limit,
        retention_days=retention_days,
        memory_bytes=memory_bytes,
    )
    await made.namespaces.open()
    await made.namespaces.system(NAMESPACE)
    await made.engine.start()
    made.store.fault_rate = fault_rate
    try:
        yield made
    finally:
        await made.end()
