"""One executor of a pool, as a process of its own: it makes the calls of fetches that instances hand to it.

    instance ── POST, names a fetch ──▶ executor: writes that it runs it, answers, and only then makes the call
                                            ├──▶ the target
                                            ├──▶ the origin gets the result, straight from here
                                            └──▶ the store: result and delivery; the owner of the row is told

It needs the instances' store and nothing else from them. It is alive while its lease is renewed; when that ends,
instances end its calls as unknown. When stopped, it takes no more calls, ends those under way (bounded), and leaves.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Self

import msgspec

import mainspring
from mainspring import background, telemetry
from mainspring.api.app import build_executor_app
from mainspring.api.listener import listening
from mainspring.api.tokens import token_digest
from mainspring.clock import Clock, follow
from mainspring.cluster.surroundings import Surroundings
from mainspring.cluster.wakeups import Wakeups
from mainspring.cluster_secret import read_cluster_secret
from mainspring.config import Config
from mainspring.delivery.egress import egress_of
from mainspring.delivery.guard import Guard
from mainspring.errors import ConfigError, RateLimited, StoreUnavailable, Unavailable
from mainspring.failure_lines import FailureLines
from mainspring.fetches.activity import Activity
from mainspring.fetches.assembly import call_sender, host_of, memory_of, request_memory_of
from mainspring.fetches.executor import Executor
from mainspring.fetches.failures import FetchFailures
from mainspring.fetches.places import Places
from mainspring.fetches.pools import EXECUTORS, WAIT_SECONDS, Execute, ExecuteReply, ExecutorLease
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.results import Results
from mainspring.kernel.ownership import INSTANCES, read_lease
from mainspring.namespaces.service import NamespaceService
from mainspring.processes.startup import (
    abandon,
    advertised,
    announce,
    base_url,
    hosts_of,
    limits_of,
    read_token,
    run_to_end,
    started,
    within_descriptors,
)
from mainspring.store import Store, first_version
from mainspring.stores import timer_store_from_url
from mainspring.unreadable import read_record
from mainspring.watched_clock import WatchedClock

WAITING_LIMIT: Final = 1000
"""Fetches that wait for a place here; more are refused at once."""
SOON_MS: Final = 60_000
"""Owners find rows that are due later than this in time, without being told."""
STOP_SECONDS: Final = 10.0
"""How much longer than the draining a stop may take."""


def run(config: Config, pool: str) -> int:
    """Make calls until told to stop. Returns the exit code."""
    return run_to_end(config, _serve(config, pool))


async def _serve(config: Config, pool: str) -> None:
    config = within_descriptors(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        remote = await started(lambda: RemoteExecutor(config, pool), config, stack, stop)
        if remote is None:
            return
        async with reachable(remote) as port:
            shown = base_url(config.host, port)
            headline = f"Mainspring {mainspring.__version__}: executor {remote.name} is ready at {shown}"
            announce(config, headline, store=config.shown_store_url)
            await stop.wait()
            telemetry.info("stopping", calls_in_flight=remote.in_flight)
            loop.call_later(config.longest_drain_seconds + STOP_SECONDS, abandon)
            await remote.drain()
    telemetry.info("stopped")


@asynccontextmanager
async def reachable(remote: RemoteExecutor) -> AsyncIterator[int]:
    """Listens, and tells the instances where; yields the port."""
    config = remote.config
    app = build_executor_app(
        remote.execute,
        remote.cut_off,
        ready=remote.ready,
        metrics=remote.metrics,
        name=remote.name,
        version=mainspring.__version__,
        token_digests=(token_digest(read_token(config)[0]),) if config.token or config.token_file else (),
        cluster_digest=token_digest(remote.cluster_secret),
    )
    async with listening(
        app,
        host=config.host,
        port=config.port,
        limits=limits_of(config),
        hosts=hosts_of(config),
        access_log=config.access_log,
    ) as listener:
        await remote.advertise(advertised(config, listener.port))
        yield listener.port


class RemoteExecutor:
    """Use as `async with`; `advertise` when it can be reached, `drain` before it is left."""

    def __init__(
        self, config: Config, pool: str, *, store: Store | None = None, surroundings: Surroundings | None = None
    ) -> None:
        self.config = config
        self.pool = pool
        self._surroundings = surroundings = surroundings or Surroundings()
        self._clock: Clock = WatchedClock(surroundings.clock)
        self._random = surroundings.randomness
        self._store = store or timer_store_from_url(config.store_url, clock=self._clock)
        guard = Guard(allow=config.allow_targets, allow_loopback=bool(config.allow_loopback))
        self._calls = call_sender(surroundings.senders, config, guard)
        self._callbacks = surroundings.senders(
            guard=guard,
            connect_seconds=config.connect_seconds,
            answer_bytes=config.answer_bytes,
            egress=egress_of(config),
        )
        self._namespaces = NamespaceService(
            records=self._store,
            clock=self._clock,
            randomness=self._random,
            created=lambda: None,
            system_shards=config.system_shards,
        )
        self._process = surroundings.identity.lease(self._clock)
        self.name = f"{pool}/{self._process.instance}"
        self._failures = FailureLines(self._clock.monotonic)
        telling = FetchFailures(self._failures, partial(host_of, guard))
        recent = Activity(telling.tell_end)
        registry = FetchRegistry(
            records=self._store,
            timers=self._store,
            namespaces=self._namespaces,
            clock=self._clock,
            wake=self._wake,
            randomness=self._random,
            noted=recent.noted,
            not_pending=recent.not_pending,
            retention_ms=config.fetch_retention_ms,
        )
        results = Results(
            inside=None,
            sender=self._callbacks,
            registry=registry,
            namespaces=self._namespaces,
            clock=self._clock,
            randomness=self._random,
            memory=memory_of(config),
            host_of=partial(host_of, guard),
            origins=Places(config.fetch_limit, host_limit=config.host_limit, clock=self._clock),
            failures=telling,
        )
        self._executor = Executor(
            name=self.name,
            registry=registry,
            results=results,
            sender=self._calls,
            clock=self._clock,
            randomness=self._random,
            spawn=self._spawn,
            limit=config.fetch_limit,
            host_limit=config.host_limit,
            host_of=partial(host_of, guard),
            freed=self._free,
            memory=memory_of(config),
            requests=request_memory_of(config, self._free),
        )
        self.cut_off = self._executor.cut_off
        self.cluster_secret = ""
        self._address = ""
        self._lease_version = 0
        self._draining = False
        self._renewing: asyncio.Task[None] | None = None
        self._waiting = 0
        self._place = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._wakeups: Wakeups | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._store.open()
            stack.push_async_callback(self._store.close)
            await follow(self._clock, self._store.time, is_aligned=False)
            await self._namespaces.open()
            await stack.enter_async_context(self._calls)
            await stack.enter_async_context(self._callbacks)
            self.cluster_secret = await read_cluster_secret(self._store, self._clock, self._random)
            self._wakeups = await stack.enter_async_context(
                Wakeups(self.cluster_secret, senders=self._surroundings.senders)
            )
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.push_async_callback(self._leave)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._stack.__aexit__(*exception)  # type: ignore[arg-type]

    @property
    def in_flight(self) -> int:
        return self._executor.in_flight

    def metrics(self) -> str:
        return telemetry.render_metrics(
            {"mainspring_fetches_in_flight": ("Calls of fetches in flight.", lambda: self.in_flight)}
        )

    async def ready(self) -> None:
        """Raises `Unavailable` when no instance would hand it a call."""
        record = await self._store.get_record(EXECUTORS, self.name, now=self._clock.now_ms())
        if record is None or self._draining:
            raise Unavailable("This executor has no lease, or is stopping")

    # --- the calls ------------------------------------------------------------------------------------

    async def execute(self, request: Execute) -> ExecuteReply:
        """Take a fetch. Returns once that is written; the call is made afterwards."""
        if self._draining:
            raise Unavailable("This executor is stopping")
        if self._waiting >= WAITING_LIMIT:
            raise self._full()
        deadline = self._clock.monotonic() + WAIT_SECONDS
        places = self._executor.places
        self._waiting += 1
        try:
            if not await self._comes_true(lambda: places.free > 0, deadline):
                raise self._full()
            fetch = await self._executor.take(request.req_id)
            while fetch is not None and fetch.state == "pending":
                has_room, fetch = self._executor.room_for(fetch), None  # it may be large, and waits in the store
                if not await self._comes_true(has_room, deadline):
                    return ExecuteReply(room=places.free, is_busy=True)
                fetch = await self._executor.take(request.req_id)
        finally:
            self._waiting -= 1
        return ExecuteReply(room=places.free)

    async def _comes_true(self, is_so: Callable[[], bool], deadline: float) -> bool:
        """Whether a condition holds, or comes to hold before the deadline when a place becomes free."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                while not is_so():
                    self._place.clear()
                    await self._place.wait()
        except TimeoutError:
            return False
        return True

    def _full(self) -> RateLimited:
        return RateLimited(f"Expected fewer than {self._executor.limit} calls in flight, got that many; try later")

    def _free(self, hosts: Iterable[str]) -> None:
        self._place.set()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._tasks is not None, "Expected an executor that is running"
        return background.start(self._tasks, coroutine)

    # --- the lease ------------------------------------------------------------------------------------

    async def advertise(self, address: str) -> None:
        """Tell the instances that this executor is here, and where; retried later if the store is not there."""
        if not address:
            raise ConfigError("Expected advertise_url, got none: this executor listens everywhere")
        self._address = address
        await self._try_to_renew()
        self._renewing = self._spawn(self._keep_lease())

    async def drain(self) -> None:
        """Take nothing more, and see the calls under way to their end."""
        self._draining = True
        await self._try_to_renew()
        await self._executor.stop(self.config.longest_drain_seconds)

    async def _leave(self) -> None:
        """Give the lease back, so that nobody waits for its end. Calls that are left end with this process."""
        await self._executor.stop(0)
        self._failures.close()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        with background.guarded("the lease was not given back and has to run out"):
            # As it is now: a renewal that was cut off may have been written after all.
            now = self._clock.now_ms()
            present = await self._store.get_record(EXECUTORS, self.name, now=now)
            if present is not None:
                await self._store.delete_record(EXECUTORS, self.name, expect=present.version, now=now)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self.config.renew_seconds)
            self._failures.look()
            await self._try_to_renew()

    async def _try_to_renew(self) -> None:
        with background.guarded("the lease was not renewed"):
            await self._renew()

    async def _renew(self) -> None:
        """Nobody else writes this record: an unexpected version comes from an earlier renewal, or from none."""
        await follow(self._clock, self._store.time, is_aligned=True)
        now = self._clock.now_ms()
        process = self._process
        lease = ExecutorLease(
            instance=self.name,
            machine=process.machine,
            pid=process.pid,
            process=process.process,
            started_at=process.started_at,
            address=self._address,
            left=self._draining,
            pool=self.pool,
            limit=self._executor.limit,
            in_flight=self._executor.in_flight,
        )
        value = msgspec.json.encode(lease)
        expires_at = now + round(self.config.lease_seconds * 1000)
        for _ in range(2):
            record = await self._store.put_record(
                EXECUTORS,
                self.name,
                value,
                expect=self._lease_version,
                now=now,
                expires_at=expires_at,
                first=first_version(self._random),
            )
            if record is not None:
                self._lease_version = record.version
                break
            present = await self._store.get_record(EXECUTORS, self.name, now=now)
            self._lease_version = present.version if present is not None else 0
        with suppress(StoreUnavailable):  # what is already known will do until the next renewal
            await self._namespaces.refresh()

    # --- the owners of rows ---------------------------------------------------------------------------

    def _wake(self, shard_id: int, due_at: int) -> None:
        """A row was moved here. Its owner would find it only when it looks."""
        if due_at <= self._clock.now_ms() + SOON_MS:
            self._spawn(self._tell(shard_id, due_at))

    async def _tell(self, shard_id: int, due_at: int) -> None:
        try:
            [shard] = await self._store.shards([shard_id])
            if shard is None:
                return
            record = await self._store.get_record(INSTANCES, shard.owner, now=self._clock.now_ms())
        except StoreUnavailable:
            return  # the owner finds it when it looks, a second later
        if record is not None and self._wakeups is not None:
            lease = read_record(INSTANCES, record, read_lease)
            if lease is None:
                return
            is_neighbour = lease.machine and lease.machine == self._process.machine
            address = lease.local_address if is_neighbour and lease.local_address else lease.address
            if address:
                self._wakeups.tell(address, shard_id, due_at)
