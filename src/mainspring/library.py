"""Mainspring inside a program: the same engine, with functions of the program as targets.

    async with Mainspring("sqlite:///app.db") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None: ...

        await ms.timers.create("app", "t1", in_seconds=5, handler="remind", payload={"to": "ann"})

A handler is treated like a receiver: when it returns, the timer is done; when it raises or takes too long, it is
retried by the policy; a returned dict is an answer with `ok`, `nextExecuteAt` and `payload`. Timers outlive the
program: register the handlers of earlier runs before the block is entered, or at its start.

`@ms.job("0 9 * * *", timezone="Europe/Berlin")` has a function launched by a calendar: see `mainspring.jobs.program`.
With `connection=`, a timer is created in a transaction of the program: see `mainspring.transactional`.
`ms.fetch(url)` is a call that is made at most once, and whose result outlives the program that asked for it.
`ms.origin(kind, id)` is an object with durable state that gets the results of fetches: see `mainspring.origins`.
`ms.lock(name)` is a lock that programs on one store share; `open_lock` is for those that run no engine.
`ms.records(name, type)` keeps documents of the program, each with a version: see `mainspring.records`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mainspring.clock import Clock, SystemClock, follow
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import load_config
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.fetches.arguments import FetchFields
from mainspring.fetches.messages import FetchResult
from mainspring.fetches.program import Fetches
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.jobs.arguments import FunctionFields
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.program import Jobs
from mainspring.locks import TTL_SECONDS, Lock
from mainspring.model import Delivery, RetryPolicy, Timer
from mainspring.namespaces.messages import CreateNamespace
from mainspring.namespaces.service import NamespaceService
from mainspring.origins.origin import Origin
from mainspring.origins.runtime import OriginRef, Origins
from mainspring.origins.services import ServiceFactory, Services
from mainspring.records import Records
from mainspring.stores import store_from_url
from mainspring.timers.arguments import checked, create_request, payload_of
from mainspring.timers.messages import (
    AttemptView,
    DeletedView,
    ListHistory,
    ListTimers,
    TimerRef,
    TimerView,
    UpdateTimer,
)
from mainspring.timers.service import TimerService
from mainspring.transactional.dialects import SQLITE, Dialect
from mainspring.transactional.statements import Creation
from mainspring.transactional.writer import create_waiting, table_prefix
from mainspring.wire.instants import to_instant


class DueTimer(Struct, frozen=True, kw_only=True):
    """A timer as its handler sees it. All repeats of one delivery carry the same `delivery_id`."""

    namespace: str
    timer_id: str
    execute_at: datetime
    attempt: int
    generation: int
    delivery_id: str
    payload: Any


HandlerFunction = Callable[[DueTimer], Awaitable[Any]]
F = TypeVar("F", bound=HandlerFunction)
O = TypeVar("O", bound=Origin)  # noqa: E741 - an origin
T = TypeVar("T")
J = TypeVar("J", bound=Callable[[DueJob], object])


class Mainspring:
    """One instance inside this program. Settings are those of `Config`, read like the server's."""

    def __init__(
        self,
        store: str = "",
        *,
        clock: Clock | None = None,
        origins: Iterable[type[Origin]] = (),
        services: Mapping[str, ServiceFactory] | None = None,
        **settings: Any,
    ) -> None:
        """`origins` that earlier runs of the program may have left waiting for results; `services` are for them."""
        config = load_config({**settings, "store": store or None})
        self._instance = instance = Instance(
            config, surroundings=Surroundings(clock=clock or SystemClock()), allow_handlers=True
        )
        self._origins = Origins(
            records=instance.store,
            clock=instance.clock,
            fetches=instance.fetches,
            left=instance.left_results,
            is_alone=lambda: instance.ownership.alone,
            services=Services(services),
            kinds=origins,
        )
        instance.receive_results(self._origins)
        self._stack = AsyncExitStack()
        self.fetches = Fetches(self._instance.fetches)
        self.jobs = Jobs(self._instance.jobs, self._instance.scheduling.launcher.handlers, self._instance.spawn)
        self.timers = Timers(self._instance.timers, self._instance.namespaces, _creation(self._instance))

    def handler(self, name: str) -> Callable[[F], F]:
        """Register a coroutine function as a target."""

        def register(function: F) -> F:
            async def call(timer: Timer) -> object:
                return await function(_due(timer))

            self._instance.courier.handlers[name] = call
            return function

        return register

    def job(self, schedule: str, *, name: str | None = None, **fields: Unpack[FunctionFields]) -> Callable[[J], J]:
        """Have a function launched by a calendar, as a job with its name.

        The registry is made equal to this when the block is entered, or at once inside of it. A coroutine function is
        awaited, another one runs in a thread; it is called with a `DueJob`.
        """

        def register(function: J) -> J:
            return self.jobs.declare(function, schedule, name=name, **fields)

        return register

    async def create_namespace(self, name: str) -> None:
        """Make a namespace, if there is none of that name."""
        with suppress(Conflict):
            await self._instance.namespaces.create(CreateNamespace(name=name))

    async def fetch(self, url: str, **fields: Unpack[FetchFields]) -> FetchResult:
        """A call that is made at most once, and its result: `mainspring.fetches.program` says more.

        result = await ms.fetch("https://example.com/pay", method="POST", json={"amount": 12}, req_id="payment-42")
        response = result.raise_for_error()
        """
        return await self.fetches.run(url, **fields)

    def origin(self, kind: type[O], origin_id: str) -> OriginRef[O]:
        """An origin by its id: see `mainspring.origins`. To be used inside the block."""
        return self._origins.ref(kind, origin_id)

    def lock(self, name: str, *, ttl_seconds: float = TTL_SECONDS) -> Lock:
        """A lock in this store: see `mainspring.locks`. To be used inside the block."""
        instance = self._instance
        return Lock(instance.store, instance.clock, name, ttl_seconds=ttl_seconds, owner=instance.ownership.instance)

    def now(self) -> datetime:
        """The time of the store, which all programs on it agree upon, whatever their machines' clocks say."""
        return to_instant(self._instance.clock.now_ms())

    @property
    def idempotency_store(self) -> RecordsStore:
        """Where `mainspring.idempotency` keeps its claims beside the timers: for processors and middleware of this
        program, inside the block."""
        return RecordsStore(self._instance.store, clock=self._instance.clock)

    def records(self, name: str, kind: type[T]) -> Records[T]:
        """A collection of documents of this program: see `mainspring.records`. To be used inside the block."""
        instance = self._instance
        return Records(instance.store, instance.clock, instance.randomness, name, kind)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.callback(self._origins.close)  # after the instance has drained: results still come until then
            await stack.enter_async_context(self._instance)
            await self.jobs.open()
            for task in (self._origins.sweep(), self._origins.collect()):
                stack.callback(self._instance.spawn(task).cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """What the program raised comes out as itself; a failure of the engine, alone or beside it, in a group."""
        try:
            return await self._stack.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1 and group.exceptions[0] is error:
                return False
            raise

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[Self]:
        """Instead of `async with` itself: timers and documents can be read and written, and nothing runs here, no
        timer, job or fetch. For a tool beside the programs that do run."""
        async with self._instance.at_rest():
            yield self


@asynccontextmanager
async def open_lock(store: str, name: str, *, ttl_seconds: float = TTL_SECONDS, owner: str = "") -> AsyncIterator[Lock]:
    """A lock in the database that a store URL names, for programs that run no engine. Redis will do, too."""
    clock = SystemClock()
    records = store_from_url(store, clock=clock)
    await records.open()
    try:
        await follow(clock, records.time, is_aligned=False)
        yield Lock(records, clock, name, ttl_seconds=ttl_seconds, owner=owner)
    finally:
        await records.close()


class Timers:
    """The timers of this program. A namespace that does not exist yet is made by the first create."""

    def __init__(self, service: TimerService, namespaces: NamespaceService, creation: Creation) -> None:
        self._service = service
        self._namespaces = namespaces
        self._creation = creation

    async def create(
        self,
        namespace: str,
        timer_id: str,
        *,
        at: datetime | None = None,
        in_seconds: float | None = None,
        handler: str | None = None,
        url: str | None = None,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        retry_policy: RetryPolicy | None = None,
        timeout_seconds: float = 30.0,
        delivery: Delivery = Delivery.AT_LEAST_ONCE,
        connection: object = None,
    ) -> TimerView:
        """Ask for a call of a handler or a URL, at a moment or after some seconds. Returns once it is stored.

        With `connection`, an open connection or session of the program to the same database, the timer is written in
        the transaction of that one: it commits or rolls back with it. The namespace must then exist.
        """
        request = create_request(
            namespace,
            timer_id,
            at=at,
            in_seconds=in_seconds,
            handler=handler,
            url=url,
            payload=payload,
            headers=headers,
            labels=labels,
            retry_policy=retry_policy,
            timeout_seconds=timeout_seconds,
            delivery=delivery,
        )
        if connection is not None:
            return await create_waiting(self._creation, connection, request)
        try:
            return await self._service.create(request)
        except NotFound:
            with suppress(Conflict):  # made by somebody else meanwhile
                await self._namespaces.create(CreateNamespace(name=namespace))
            return await self._service.create(request)

    async def get(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.get(TimerRef(namespace=namespace, timer_id=timer_id))

    async def delete(self, namespace: str, timer_id: str) -> DeletedView:
        """Remove a timer. The answer's state is `running` if a call of it was in flight."""
        return await self._service.delete(TimerRef(namespace=namespace, timer_id=timer_id))

    async def reschedule(
        self,
        namespace: str,
        timer_id: str,
        *,
        at: datetime | None = None,
        in_seconds: float | None = None,
        payload: Any | UnsetType = UNSET,
    ) -> TimerView:
        """Give a timer a new time, and a new payload if one is named; all else stays."""
        request = UpdateTimer(
            namespace=namespace,
            timer_id=timer_id,
            execute_at=UNSET if at is None else at,
            delay_seconds=UNSET if in_seconds is None else float(in_seconds),
            payload=UNSET if payload is UNSET else payload_of(payload),
        )
        return await self._service.update(checked(request))

    async def run_now(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.run_now(TimerRef(namespace=namespace, timer_id=timer_id))

    async def park(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.park(TimerRef(namespace=namespace, timer_id=timer_id))

    async def resume(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.resume(TimerRef(namespace=namespace, timer_id=timer_id))

    async def list(self, namespace: str, *, labels: Mapping[str, str] | None = None) -> AsyncIterator[TimerView]:
        """All timers of a namespace, in the order in which they are due."""
        cursor: str | UnsetType | None = UNSET
        while cursor is not None:
            page = await self._service.list(ListTimers(namespace=namespace, labels=dict(labels or {}), cursor=cursor))
            for timer in page.timers:
                yield timer
            cursor = page.next_cursor

    async def history(self, namespace: str, timer_id: str, *, limit: int = 100) -> tuple[AttemptView, ...]:
        """The newest attempts of a timer, also of one that is done."""
        page = await self._service.history(ListHistory(namespace=namespace, timer_id=timer_id, limit=limit))
        return page.attempts


def _creation(instance: Instance) -> Creation:
    """How timers come into this instance's database on connections that are not its own."""
    url = urlsplit(instance.config.store_url)
    options = dict(parse_qsl(url.query)) if url.scheme in ("postgresql", "mysql") else {}

    def accept(dialect: Dialect, driver: str) -> None:
        if dialect.name.lower() != url.scheme:
            raise InvalidInput(f"Expected a connection to the store, which is {url.scheme}, got one to {dialect.name}")
        if dialect is SQLITE and driver != "apsw":
            raise InvalidInput(
                f"Expected a connection of apsw, got one of {driver}: it brings a second SQLite into this process, and "
                "two of them do not see each other's locks on a file and overwrite each other's commits"
            )

    return Creation(
        tables=table_prefix(prefix=options.get("prefix", "mainspring_"), schema=options.get("schema", "")),
        check_url=instance.courier.check_target,
        max_payload=instance.config.max_payload_bytes,
        secrets=instance.secrets,
        accept=accept,
        clock=instance.clock,
    )


def _due(timer: Timer) -> DueTimer:
    return DueTimer(
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        execute_at=to_instant(timer.detail.execute_at),
        attempt=timer.attempts,
        generation=timer.generation,
        delivery_id=timer.detail.delivery_id,
        payload=None if timer.payload is None else msgspec.json.decode(timer.payload),
    )
