"""One running instance: store, engine and services put together. The server and the library form both stand on it.

Started in the order of dependence, stopped in reverse: first the engine drains, the store closes last. A crash of
any background task ends the `async with` block with that error: an instance runs whole or not at all.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from mainspring import telemetry
from mainspring.clock import Clock, SystemClock
from mainspring.config import Config
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.errors import StoreUnavailable, Unavailable
from mainspring.kernel.dispatcher import EngineSettings
from mainspring.kernel.engine import Engine
from mainspring.kernel.ownership import Lease, Ownership
from mainspring.store import Store
from mainspring.stores import store_from_url
from mainspring.timers.courier import Courier
from mainspring.timers.messages import ShardsView, ShardView
from mainspring.timers.namespaces import NamespaceService
from mainspring.timers.service import TimerService

PRUNE_FIRST_SECONDS = 60.0
PRUNE_SECONDS = 3600.0
PRUNE_BATCH = 1000
DAY_MS = 86_400_000

_PROCESS = secrets.token_hex(8)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Instance:
    """Use as `async with Instance(config) as instance`."""

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        allow_handlers: bool = False,
    ) -> None:
        """`allow_handlers` lets timers name functions of this program; the HTTP API never does."""
        self.config = config
        self.clock = clock or SystemClock()
        self.store = store or store_from_url(config.store_url, clock=self.clock)
        self._random = randomness or random.Random(secrets.randbits(128))
        self.guard = Guard(allow=config.allow_targets, allow_loopback=is_loopback(config.host))
        self.sender = Sender(
            guard=self.guard,
            connect_seconds=config.connect_seconds,
            idle_seconds=config.idle_seconds,
            answer_bytes=config.answer_bytes,
            max_idle_per_host=config.host_limit,
        )
        self.namespaces = NamespaceService(
            records=self.store, clock=self.clock, randomness=self._random, created=self._claim_soon
        )
        self.courier = Courier(
            sender=self.sender,
            guard=self.guard,
            namespaces=self.namespaces,
            records=self.store,
            clock=self.clock,
            randomness=self._random,
            host_limit=config.host_limit,
            max_payload=config.max_payload_bytes,
        )
        self.ownership = Ownership(
            store=self.store,
            clock=self.clock,
            lease=_lease(self.clock),
            lease_seconds=config.lease_seconds,
            shard_ids=self.namespaces.shard_ids,
            is_dead=is_dead,
        )
        self.timers = TimerService(
            store=self.store,
            namespaces=self.namespaces,
            clock=self.clock,
            randomness=self._random,
            check_url=self.courier.check_target if allow_handlers else self.guard.check_url,
            wake=self._wake,
            revive=self.courier.revive,
            max_payload=config.max_payload_bytes,
        )
        self.engine: Engine | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self.store.open()
            stack.push_async_callback(self.store.close)
            self.clock.align(await self.store.time())
            await self.namespaces.open()
            await self.courier.open()
            await stack.enter_async_context(self.sender)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self.engine = Engine(
                store=self.store,
                clock=self.clock,
                ownership=self.ownership,
                carrier=self.courier,
                spawn=tasks.create_task,
                settings=_settings(self.config),
            )
            pruning = tasks.create_task(self._prune_loop())
            stack.callback(pruning.cancel)
            await self.engine.start()
            stack.push_async_callback(self.engine.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._stack.__aexit__(*exception)  # type: ignore[arg-type]

    def _wake(self, shard_id: int, due_at: int) -> None:
        if self.engine is not None:
            self.engine.wake(shard_id, due_at)

    def _claim_soon(self) -> None:
        if self.engine is not None:
            self.engine.claim_soon()

    async def ready(self) -> None:
        """Raises `Unavailable` when this instance cannot do its work."""
        await self.store.time()
        await self.store.get_record("instance", self.ownership.instance, now=self.clock.now_ms())
        if not self.ownership.valid():
            raise Unavailable("Expected a valid lease, got one that could not be renewed")

    async def shards(self) -> ShardsView:
        views: list[ShardView] = []
        for namespace in self.namespaces.known:
            for shard in await self.store.shards(namespace.shards):
                views.append(
                    ShardView(
                        shard_id=shard.shard_id, namespace=namespace.name, version=shard.version, owner=shard.owner
                    )
                )
        return ShardsView(instance=self.ownership.instance, shards=tuple(views))

    def metrics(self) -> str:
        engine = self.engine
        if engine is None:
            return telemetry.render_metrics({})
        return telemetry.render_metrics(
            {
                "mainspring_calls_in_flight": ("Attempts in flight.", lambda: engine.dispatcher.in_flight),
                "mainspring_due_queued": ("Due timers in memory.", lambda: engine.dispatcher.queued),
                "mainspring_open_circuits": (
                    "Destinations that are only probed.",
                    lambda: engine.dispatcher.open_circuits,
                ),
                "mainspring_owned_shards": ("Shards owned by this instance.", lambda: engine.owned_shards),
            }
        )

    async def _prune_loop(self) -> None:
        """Remove history that is older than its namespace keeps it, an hour apart."""
        await asyncio.sleep(PRUNE_FIRST_SECONDS)
        while True:
            try:
                await self._prune()
            except StoreUnavailable as error:
                telemetry.warning("history was not pruned", reason=error.detail)
            await asyncio.sleep(PRUNE_SECONDS)

    async def _prune(self) -> None:
        for namespace in self.namespaces.known:
            older_than = self.clock.now_ms() - namespace.history_retention_days * DAY_MS
            for shard_id in set(namespace.shards) & self.ownership.fences.keys():
                pruned = PRUNE_BATCH
                while pruned >= PRUNE_BATCH:
                    pruned = await self.store.prune_history(shard_id, older_than=older_than, limit=PRUNE_BATCH)


def _settings(config: Config) -> EngineSettings:
    return EngineSettings(
        renew_seconds=config.renew_seconds,
        look_seconds=config.look_seconds,
        drain_seconds=config.drain_seconds,
        in_flight_limit=config.in_flight_limit,
        window_limit=config.window_limit,
        circuit_failures=config.circuit_failures,
        circuit_seconds=config.circuit_seconds,
    )


def _lease(clock: Clock) -> Lease:
    name = socket.gethostname().split(".")[0][:40] or "host"
    instance = f"{name}-{os.getpid()}-{secrets.token_hex(3)}"
    return Lease(instance=instance, machine=_machine(), pid=os.getpid(), process=_PROCESS, started_at=clock.now_ms())


def _machine() -> str:
    """This boot of this machine, as far as process ids go; empty where that cannot be told."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def is_dead(lease: Lease) -> bool:
    """Whether an instance was a process of this machine that is gone, so that nobody need wait for its lease."""
    if not lease.machine or lease.machine != _machine():
        return False
    if lease.pid == os.getpid():
        return lease.process != _PROCESS
    try:
        os.kill(lease.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
