"""One running instance: store, engine and services put together. The server and the library form both stand on it.

Parts start in the order in which they depend on each other and stop in reverse: the engine drains first, the store
closes last. If a background task crashes, the `async with` block ends with its error: an instance runs whole or not
at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from mainspring import background, telemetry
from mainspring.clock import Clock, follow
from mainspring.cluster.messages import InstancesView, ShardsView
from mainspring.cluster.surroundings import Surroundings
from mainspring.cluster.views import instances_view, shards_view
from mainspring.cluster.wakeups import Wake, Wakeups
from mainspring.cluster_secret import read_cluster_secret
from mainspring.config import Config
from mainspring.delivery.egress import egress_of
from mainspring.delivery.guard import Guard
from mainspring.delivery.secrets import Secrets
from mainspring.errors import StoreUnavailable, Unavailable
from mainspring.failure_lines import FailureLines
from mainspring.fetches.assembly import FetchesAssembly, call_sender
from mainspring.fetches.local_origins import ResultReceiver
from mainspring.fetches.record import NAMESPACE as FETCHES
from mainspring.idempotency.service import KeyService
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.jobs.assembly import JobsAssembly
from mainspring.jobs.reconciler import LOCK_NAME
from mainspring.kernel.carrier import Carriers
from mainspring.kernel.engine import Engine
from mainspring.kernel.ownership import Lease, Ownership
from mainspring.kernel.settings import EngineSettings
from mainspring.locks import LOCKS
from mainspring.namespaces.deletion import NamespaceDeletion
from mainspring.namespaces.reshard import NamespaceReshard
from mainspring.namespaces.service import NamespaceService
from mainspring.store import NoticesWriters, Store
from mainspring.stores import store_from_url, timer_store_from_url
from mainspring.timers.assembly import TimersAssembly
from mainspring.watched_clock import WatchedClock

PRUNE_FIRST_SECONDS = 60.0
PRUNE_SECONDS = 3600.0
PRUNE_BATCH = 1000
DAY_MS = 86_400_000
PAGE_SIZE = 500


class Instance:
    """Use as `async with Instance(config) as instance`."""

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        surroundings: Surroundings | None = None,
        allow_handlers: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> None:
        """`allow_handlers` lets timers name functions of this program; the HTTP API never does. `page_size` is how many
        due rows are read at once: it is not a setting, but a simulation has few rows and wants many pages."""
        self.config = config
        self._page_size = page_size
        self._pruned: dict[int, int] = {}
        """The shards whose history has been pruned, and up to where: nothing is looked through twice."""
        self._surroundings = surroundings = surroundings or Surroundings()
        identity = surroundings.identity
        self.clock: Clock = WatchedClock(surroundings.clock)
        self.store = store or timer_store_from_url(config.store_url, clock=self.clock)
        self.randomness = surroundings.randomness
        self.guard = Guard(allow=config.allow_targets, allow_loopback=bool(config.allow_loopback))
        self.secrets = Secrets(config.secret_names, redact_urls=config.redact_urls)
        self.sender = surroundings.senders(
            guard=self.guard,
            connect_seconds=config.connect_seconds,
            idle_seconds=config.idle_seconds,
            answer_bytes=config.answer_bytes,
            max_idle_per_host=config.host_limit,
            egress=egress_of(config),
        )
        self.namespaces = NamespaceService(
            records=self.store,
            clock=self.clock,
            randomness=self.randomness,
            created=self._claim_soon,
            shard_limit=config.shard_limit,
            system_shards=config.system_shards,
        )
        self.delete_namespace = NamespaceDeletion(store=self.store, namespaces=self.namespaces, clock=self.clock).step
        self.reshard_namespace = NamespaceReshard(store=self.store, namespaces=self.namespaces, clock=self.clock).step
        self.ownership = Ownership(
            store=self.store,
            clock=self.clock,
            lease=identity.lease(self.clock),
            lease_seconds=config.lease_seconds,
            shard_ids=self._shard_ids,
            randomness=self.randomness,
            is_dead=identity.is_dead,
        )
        self._failures = failures = FailureLines(self.clock.monotonic)
        self.timers_assembly = TimersAssembly(
            config=config,
            store=self.store,
            namespaces=self.namespaces,
            sender=self.sender,
            guard=self.guard,
            secrets=self.secrets,
            clock=self.clock,
            randomness=self.randomness,
            ownership=self.ownership,
            wake=self._wake,
            allow_handlers=allow_handlers,
            failures=failures,
        )
        self.timers = self.timers_assembly.service
        self._registry = store_from_url(config.registry, clock=self.clock) if config.registry else self.store
        self.jobs_assembly = JobsAssembly(
            config=config,
            store=self.store,
            registry=self._registry,
            namespaces=self.namespaces,
            sender=self.sender,
            guard=self.guard,
            secrets=self.secrets,
            clock=self.clock,
            randomness=self.randomness,
            wake=self._wake,
            ownership=self.ownership,
            allow_handlers=allow_handlers,
            failures=failures,
        )
        self.jobs = self.jobs_assembly.service
        self._call_sender = call_sender(surroundings.senders, config, self.guard)
        self.fetches_assembly = FetchesAssembly(
            config=config,
            store=self.store,
            namespaces=self.namespaces,
            ownership=self.ownership,
            guard=self.guard,
            secrets=self.secrets,
            calls=self._call_sender,
            callbacks=self.sender,
            clock=self.clock,
            randomness=self.randomness,
            spawn=self.spawn,
            wake=self._wake,
            pump=self._pump,
            is_crowded=self._is_crowded,
            is_dead=identity.is_dead,
            address_of=self._address_of,
            secret=lambda: self.cluster_secret,
            failures=failures,
            senders=surroundings.senders,
        )
        self.fetches = self.fetches_assembly.service
        self.keys = KeyService(RecordsStore(self.store, clock=self.clock))
        self.cut_off = self.fetches_assembly.executor.cut_off
        self.left_results = self.fetches_assembly.left
        self.carriers = Carriers(
            self.timers_assembly.carrier, {FETCHES: self.fetches_assembly.carrier, **self.jobs_assembly.carriers}
        )
        self.engine: Engine | None = None
        self.cluster_secret = ""
        """The secret by which instances of this cluster recognise each other; read from the store at the start."""
        self._wakeups: Wakeups | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self.store.open()
            stack.push_async_callback(self.store.close)
            if self._registry is not self.store:
                await self._registry.open()
                stack.push_async_callback(self._registry.close)
            await follow(self.clock, self.store.time, is_aligned=False)
            await self.namespaces.open()
            await self.timers_assembly.carrier.refresh()
            await stack.enter_async_context(self.sender)
            await stack.enter_async_context(self._call_sender)
            await stack.enter_async_context(self.fetches_assembly.pools)
            self.cluster_secret = await read_cluster_secret(self.store, self.clock, self.randomness)
            self._wakeups = await stack.enter_async_context(
                Wakeups(self.cluster_secret, senders=self._surroundings.senders)
            )
            stack.callback(self._announce)  # after the engine has given everything back
            self._tasks = tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self.engine = Engine(
                store=self.store,
                clock=self.clock,
                ownership=self.ownership,
                carrier=self.carriers,
                spawn=tasks.create_task,
                settings=_settings(self.config, self._page_size),
                foreign_writes=self.store.foreign_writes if isinstance(self.store, NoticesWriters) else None,
            )
            pruning = tasks.create_task(self._prune_loop())
            stack.callback(pruning.cancel)
            writing = tasks.create_task(self.jobs_assembly.last_runs.run())
            stack.push_async_callback(self.jobs_assembly.last_runs.stop)
            stack.callback(writing.cancel)
            watching = tasks.create_task(self.fetches_assembly.watcher.watch())
            stack.callback(watching.cancel)
            await self.engine.start()
            stack.push_async_callback(self._stop, self.engine)
            reconciling = tasks.create_task(self.jobs_assembly.reconciler.run())  # it needs the lease of the engine
            stack.callback(reconciling.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._stack.__aexit__(*exception)  # type: ignore[arg-type]

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """The store alone: it is read and written, but nothing runs here. Running instances find what is due."""
        await self.store.open()
        self.timers_assembly.carrier.is_at_rest = True
        try:
            await follow(self.clock, self.store.time, is_aligned=False)
            await self.namespaces.refresh()
            yield
        finally:
            self.timers_assembly.carrier.is_at_rest = False
            await self.store.close()

    @property
    def calls_in_flight(self) -> int:
        attempts = self.engine.dispatcher.in_flight if self.engine is not None else 0
        return attempts + self.fetches_assembly.executor.in_flight

    def receive_results(self, receiver: ResultReceiver) -> None:
        """Send the results for origins inside this program to them."""
        self.fetches_assembly.inside.receiver = receiver

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._tasks is not None, "Expected an instance that is running"
        return background.start(self._tasks, coroutine)

    def _pump(self, *lanes: str) -> None:
        if self.engine is not None:
            self.engine.dispatcher.pump(*lanes)

    def _is_crowded(self) -> bool:
        """Whether due rows are waiting for a slot, in memory or, for want of room, in the store."""
        dispatcher = self.engine.dispatcher if self.engine is not None else None
        return dispatcher is not None and (dispatcher.queued > 0 or dispatcher.window.left_any)

    async def _stop(self, engine: Engine) -> None:
        """Timers and fetches end their calls, before others can think that nobody makes them. Calls of fetches may be
        allowed more time; meanwhile others look after all rows."""
        executor = self.fetches_assembly.executor

        async def drain() -> None:
            await engine.drain()
            if executor.is_busy and self.config.fetch_drain_seconds > self.config.drain_seconds:
                await engine.withdraw()
                self._announce()

        await asyncio.gather(drain(), executor.stop(self.config.longest_drain_seconds))
        await engine.stop()
        self._failures.close()

    # --- other instances ------------------------------------------------------------------------------

    async def advertise(self, *, address: str, local_address: str = "") -> None:
        """Tell the others that this instance is here, and where. `local_address` is for those on this machine.

        Waits for the renewal that publishes it, but not for long: the others also find out by themselves.
        """
        self.ownership.advertise(address=address, local_address=local_address)
        self._claim_soon()
        for _ in range(100):
            if self.ownership.is_published:
                break
            await asyncio.sleep(0.01)
        self._announce()

    def receive_wake(self, wake: Wake, *, shared: bool) -> None:
        """Another instance says that something has changed. Behind a shared address it may be meant for a neighbour."""
        if self.engine is None:
            return
        for shard_id, due_at in wake.shards:
            if self.engine.owns(shard_id):
                self.engine.wake(shard_id, due_at)
            elif shared:
                self._tell(shard_id, due_at, neighbours_only=True)
        if wake.members:
            self.engine.claim_soon()
            if shared:
                self._announce(neighbours_only=True)

    def _wake(self, shard_id: int, due_at: int) -> None:
        """A row was committed here. Its owner is told if it would otherwise look too late."""
        if self.engine is None:
            return
        if self.engine.owns(shard_id):
            self.engine.wake(shard_id, due_at)
        elif due_at <= self.clock.now_ms() + self.config.look_seconds * 1000:
            self._tell(shard_id, due_at)

    def _tell(self, shard_id: int, due_at: int, *, neighbours_only: bool = False) -> None:
        owner = self.ownership.owner_of(shard_id)
        if owner is not None and self._wakeups is not None:
            address = self._address_of(owner, neighbours_only=neighbours_only)
            if address:
                self._wakeups.tell(address, shard_id, due_at)

    def _announce(self, *, neighbours_only: bool = False) -> None:
        """Have the others check who the members are."""
        addresses = [self._address_of(m, neighbours_only=neighbours_only) for m in self.ownership.members]
        if self._wakeups is not None:
            for address in dict.fromkeys(filter(None, addresses)):
                self._wakeups.announce(address)

    def _address_of(self, lease: Lease, *, neighbours_only: bool = False) -> str:
        if lease.instance == self.ownership.instance:
            return ""
        if lease.local_address and lease.machine and lease.machine == self._surroundings.identity.machine:
            return lease.local_address
        return "" if neighbours_only else lease.address

    async def _shard_ids(self) -> Sequence[int]:
        """All shards there are; also picks up what else others may have changed, and what was left out of the log."""
        self._failures.look()
        await self.timers_assembly.carrier.refresh()
        return await self.namespaces.shard_ids()

    def _claim_soon(self) -> None:
        if self.engine is not None:
            self.engine.claim_soon()

    async def instances(self) -> InstancesView:
        return await instances_view(
            self.store, await self.shards(), now=self.clock.now_ms(), is_dead=self._surroundings.identity.is_dead
        )

    async def ready(self) -> None:
        """Raises `Unavailable` when this instance cannot do its work, or a part of it: jobs without their registry."""
        await self.store.time()
        await self.store.get_record("instance", self.ownership.instance, now=self.clock.now_ms())
        if not self.ownership.valid() or not self.ownership.is_renewing:
            raise Unavailable("The lease of this instance could not be renewed")
        if self._registry is not self.store:
            await self._check_registry()

    async def _check_registry(self) -> None:
        try:
            await self._registry.get_record(LOCKS, LOCK_NAME, now=self.clock.now_ms())
        except StoreUnavailable as error:
            detail = "The registry of jobs is unavailable: no job runs until it is back. Timers and fetches do"
            raise Unavailable(detail) from error

    async def shards(self) -> ShardsView:
        return await shards_view(self.store, self.namespaces.known, instance=self.ownership.instance)

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
                "mainspring_fetches_in_flight": (
                    "Calls of fetches in flight.",
                    lambda: self.fetches_assembly.executor.in_flight,
                ),
                "mainspring_owned_shards": ("Shards owned by this instance.", lambda: engine.owned_shards),
            }
        )

    async def _prune_loop(self) -> None:
        """Once an hour, remove history that is older than its namespace keeps it, day by day (in UTC): stores that keep
        the entries of a day together would otherwise look through those of a day again every hour."""
        await asyncio.sleep(PRUNE_FIRST_SECONDS)
        await background.repeat(self._prune, seconds=PRUNE_SECONDS, complaint="history was not pruned")

    async def _prune(self) -> None:
        for namespace in self.namespaces.known:
            older_than = (self.clock.now_ms() // DAY_MS - namespace.history_retention_days) * DAY_MS
            for shard_id in [shard for shard in namespace.shards if shard in self.ownership.fences]:
                if self._pruned.get(shard_id) == older_than:
                    continue
                try:
                    await self._prune_shard(shard_id, older_than)
                    self._pruned[shard_id] = older_than
                except StoreUnavailable as error:
                    telemetry.warning("history was not pruned", reason=error.detail)
                    return
                except Exception:  # noqa: BLE001 - one shard with strange entries is not the end of the instance
                    telemetry.exception("the history of a shard was not pruned")

    async def _prune_shard(self, shard_id: int, older_than: int) -> None:
        pruned = PRUNE_BATCH
        while pruned >= PRUNE_BATCH:
            pruned = await self.store.prune_history(shard_id, older_than=older_than, limit=PRUNE_BATCH)


def _settings(config: Config, page_size: int) -> EngineSettings:
    return EngineSettings(
        renew_seconds=config.renew_seconds,
        look_seconds=config.look_seconds,
        drain_seconds=config.drain_seconds,
        in_flight_limit=config.in_flight_limit,
        window_limit=config.window_limit,
        window_bytes=config.window_bytes,
        circuit_failures=config.circuit_failures,
        circuit_seconds=config.circuit_seconds,
        page_size=page_size,
    )
