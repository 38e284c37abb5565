"""The fetches of one instance, put together: registry, executor, carrier, watcher and service."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial

from mainspring.clock import Clock
from mainspring.config import Config
from mainspring.delivery.call import Sends
from mainspring.delivery.egress import egress_of
from mainspring.delivery.guard import Guard
from mainspring.delivery.secrets import Secrets
from mainspring.delivery.sender import MakesSenders, OpenSender, Sender
from mainspring.errors import InvalidInput, StoreUnavailable, UnsafeTarget
from mainspring.failure_lines import FailureLines
from mainspring.fetches.activity import Activity
from mainspring.fetches.carrier import FetchCarrier, lane_of
from mainspring.fetches.executor import Executor, Spawn
from mainspring.fetches.failures import FetchFailures
from mainspring.fetches.left_results import LeftResults
from mainspring.fetches.local_origins import LocalOrigins, is_inside, name_in
from mainspring.fetches.memory import REQUEST_SIZES, FetchMemory, RequestMemory
from mainspring.fetches.places import Places
from mainspring.fetches.pools import EXECUTORS, Pools, pool_of
from mainspring.fetches.record import IN_PROCESS, NAMESPACE, Fetch
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.results import Results
from mainspring.fetches.service import FetchService
from mainspring.fetches.sweeper import Sweeper
from mainspring.fetches.watcher import Watcher
from mainspring.kernel.ownership import INSTANCES, Lease, Ownership, read_lease
from mainspring.namespaces.service import NamespaceService
from mainspring.store import Store
from mainspring.unreadable import read_record


def call_sender(senders: MakesSenders, config: Config, guard: Guard) -> OpenSender:
    """The sender of the calls. It keeps no connections: none is used twice."""
    return senders(
        guard=guard,
        connect_seconds=config.connect_seconds,
        answer_bytes=config.fetch_answer_bytes,
        max_idle_per_host=0,
        egress=egress_of(config),
    )


def memory_of(config: Config) -> FetchMemory:
    """What answers may take here: a third is for those being read, another for those being brought to their
    origins, so that slow targets hold up no result."""
    return FetchMemory(config.fetch_memory_bytes // 3)


def request_memory_of(config: Config, freed: Callable[[Iterable[str]], None]) -> RequestMemory:
    """The last third. `freed` is called with the lanes that have room again."""
    return RequestMemory(config.fetch_memory_bytes // 3, freed=freed)


def host_of(guard: Guard, url: str) -> str:
    """What shares places: the host and port of a URL, or the name of an origin inside a program; otherwise nothing."""
    if is_inside(url):
        return name_in(url)
    try:
        return guard.check_url(url).destination
    except (InvalidInput, UnsafeTarget):  # the guard was stricter than when it was accepted; whoever sends will say so
        return ""


class FetchesAssembly:
    """`pools` is entered, `watcher.watch` is a task, `executor.stop` comes before the instance gives its lease back."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        namespaces: NamespaceService,
        ownership: Ownership,
        guard: Guard,
        secrets: Secrets,
        calls: Sends,
        callbacks: Sends,
        clock: Clock,
        randomness: random.Random,
        spawn: Spawn,
        wake: Callable[[int, int], None],
        pump: Callable[..., None],
        is_crowded: Callable[[], bool],
        is_dead: Callable[[Lease], bool],
        address_of: Callable[[Lease], str],
        secret: Callable[[], str],
        failures: FailureLines,
        senders: MakesSenders = Sender,
    ) -> None:
        """`calls` sends what users ask for, `callbacks` what origins get. `wake` tells the engine about a row, `pump`
        that lanes of these names have room again; `is_crowded`: rows wait in the engine;
        `is_dead` knows of processes that are gone although their lease is not, `address_of` where others are reached;
        by `secret` this cluster's processes recognise each other; `senders` makes what speaks to executors."""
        self._store = store
        self._namespaces = namespaces
        self._ownership = ownership
        self._clock = clock
        self._is_dead = is_dead
        self._address_of = address_of
        self._spawn = spawn
        names_host = partial(host_of, guard)
        telling = FetchFailures(failures, names_host)
        self._activity = activity = Activity(telling.tell_end)
        self.registry = registry = FetchRegistry(
            records=store,
            timers=store,
            namespaces=namespaces,
            clock=clock,
            wake=wake,
            randomness=randomness,
            noted=self._noted,
            not_pending=activity.not_pending,
            retention_ms=config.fetch_retention_ms,
        )
        self.inside = LocalOrigins(check_url=guard.check_url, handler_ms=round(config.origin_seconds * 1000))
        self.memory = memory = memory_of(config)
        results = Results(
            sender=callbacks,
            inside=self.inside,
            registry=registry,
            namespaces=namespaces,
            clock=clock,
            randomness=randomness,
            memory=memory_of(config),
            host_of=names_host,
            origins=Places(config.fetch_limit, host_limit=config.host_limit, clock=clock),
            failures=telling,
        )
        self.requests = request_memory_of(config, lambda lanes: pump(*lanes))
        self.executor = Executor(
            name=ownership.instance,
            registry=registry,
            results=results,
            sender=calls,
            clock=clock,
            randomness=randomness,
            spawn=spawn,
            limit=config.fetch_limit,
            host_limit=config.host_limit,
            host_of=names_host,
            freed=lambda hosts: pump(
                *(lane_of(IN_PROCESS, host, size=size) for host in hosts for size in REQUEST_SIZES)
            ),
            memory=memory,
            requests=self.requests,
        )
        self.pools = Pools(
            records=store, clock=clock, randomness=randomness, secret=secret, is_dead=is_dead, senders=senders
        )
        overdue = Sweeper(
            timers=store,
            registry=registry,
            clock=clock,
            owned=self._owned,
            is_full=lambda: not self.executor.places.free or self.requests.is_short or is_crowded(),
        )
        self.carrier = FetchCarrier(
            registry=registry,
            executor=self.executor,
            requests=self.requests,
            pools=self.pools,
            results=results,
            host_of=names_host,
            clock=clock,
            lives=self._lives,
            waited=overdue.waited,
            host_limit=config.host_limit,
        )
        self.left = LeftResults(timers=store, registry=registry, namespaces=namespaces, results=results, clock=clock)
        self.watcher = Watcher(
            timers=store,
            registry=registry,
            members=lambda: (*(member.instance for member in ownership.members), *ownership.finishing),
            executor_gone=self.pools.executor_gone,
            owned=self._owned,
            lives=self._lives,
            clock=clock,
            overdue=overdue,
        )
        self.service = FetchService(
            timers=store,
            registry=registry,
            activity=activity,
            executor=self.executor,
            pools=self.pools,
            namespaces=namespaces,
            clock=clock,
            randomness=randomness,
            check_url=guard.check_url,
            check_result_url=self.inside.check_url,
            owns=lambda shard_id: shard_id in ownership.fences,
            body_bytes=config.fetch_body_bytes,
            context_bytes=config.max_payload_bytes,
            pending_limit=config.fetch_pending_limit,
            secrets=secrets,
        )

    def _noted(self, fetch: Fetch) -> None:
        self._activity.noted(fetch)
        if fetch.state != "cancelled" or not fetch.mark:
            return
        if fetch.executor == self._ownership.instance:
            self.executor.cut_off(fetch.mark)
        else:
            self._spawn(self._have_cut_off(fetch))

    async def _have_cut_off(self, fetch: Fetch) -> None:
        collection = EXECUTORS if pool_of(fetch.executor) else INSTANCES
        try:
            record = await self._store.get_record(collection, fetch.executor, now=self._clock.now_ms())
        except StoreUnavailable:
            return  # the call goes on, and its result comes late
        lease = None if record is None else read_record(collection, record, read_lease)
        address = "" if lease is None else self._address_of(lease)
        if address:
            await self.pools.cut_off(address, fetch.mark)

    async def _lives(self, executor: str) -> bool:
        """As its lease says. The store is asked: what this instance knows about the others may be a moment old."""
        if executor == self._ownership.instance:
            return True
        if pool_of(executor):
            return await self.pools.lives(executor)
        record = await self._store.get_record(INSTANCES, executor, now=self._clock.now_ms())
        if record is None:
            return False
        lease = read_record(INSTANCES, record, read_lease)
        if lease is None:
            return True  # it cannot be read, but it is renewed
        return (lease.finishing or not lease.left) and not self._is_dead(lease)

    def _owned(self) -> set[int]:
        """The shards of fetches that this instance owns."""
        shards = {shard for known in self._namespaces.known if known.name == NAMESPACE for shard in known.shards}
        return shards & self._ownership.fences.keys()
