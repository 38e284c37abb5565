"""Mainspring inside a program: the same engine, with functions of the program as targets.

    async with Mainspring("sqlite:///app.db") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None: ...

        await ms.timers.create("t1", delay_seconds=5, handler="remind", payload={"to": "ann"})

A handler is treated like a receiver: when it returns, the timer is done; when it raises or takes too long, it is
retried by its policy; a returned dict is an answer with `ok`, `nextExecuteAt` and `payload`. What cannot be written as
JSON is left out, and never makes a handler that has returned run again. Timers outlive the program: register the
handlers of earlier runs before the block is entered, or at its start.

`@ms.job("0 9 * * *", timezone="Europe/Berlin")` runs a function on a calendar: see `mainspring.jobs.program`.
With `connection=`, a timer is created in a transaction of the program: see `mainspring.transactional`.
`ms.fetch(url)` is a call made at most once, whose result outlives the program that requested it.
`ms.origin(kind, id)` is an object with durable state that receives the results of fetches: see `mainspring.origins`.
`ms.lock(name)` is a lock that programs on one store share; `open_lock` is for those that run no engine.
`ms.records(name, type)` keeps documents of the program, each with a version: see `mainspring.records`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast
from urllib.parse import parse_qsl, urlsplit

from mainspring.clock import Clock, SystemClock
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings, Unpredictable
from mainspring.config import Config, load_config
from mainspring.delivery.sender import MakesSenders, Sender
from mainspring.errors import InvalidInput, Unavailable
from mainspring.fetches.arguments import FetchFields
from mainspring.fetches.messages import FetchResult
from mainspring.fetches.program import Fetches
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.jobs.arguments import FunctionFields
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.program import Jobs
from mainspring.keywords import refuse_unknown
from mainspring.locks import TTL_SECONDS, Lock
from mainspring.namespaces.deletion import NamespaceDeletion
from mainspring.namespaces.program import Namespaces
from mainspring.namespaces.reshard import NamespaceReshard
from mainspring.origins.origin import Origin
from mainspring.origins.runtime import OriginRef, Origins
from mainspring.origins.services import ServiceFactory, Services
from mainspring.records import Records
from mainspring.timers.handlers import awaited
from mainspring.timers.messages import (
    CreateTimer,
    TimerView,
)
from mainspring.timers.program import DueTimer, Timers, due_timer
from mainspring.transactional.dialects import SQLITE, Dialect
from mainspring.transactional.statements import Creation
from mainspring.transactional.writer import create_waiting, table_prefix
from mainspring.wire.instants import to_instant

F = TypeVar("F", bound=Callable[[DueTimer], object])
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
        randomness: Random | None = None,
        senders: MakesSenders = Sender,
        origins: Iterable[type[Origin]] = (),
        services: Mapping[str, ServiceFactory] | None = None,
        **settings: Any,
    ) -> None:
        """`origins`: those that earlier runs of the program may have left waiting for results; `services` are for them.

        `clock` and `randomness` default to the machine's; a test that passes its own can repeat a run exactly.
        `senders` makes what calls URLs: a test may answer in their place.
        """
        refuse_unknown(settings, Config.__struct_fields__)
        config = load_config({**settings, "store": store or None})
        surroundings = Surroundings(
            clock=clock or SystemClock(), randomness=randomness or Unpredictable(), senders=senders
        )
        self._instance = instance = Instance(config, surroundings=surroundings, allow_handlers=True)
        self._is_running = False
        self._store = self._while_running(instance.store)
        namespaces = self._while_running(instance.namespaces)
        self._origins = Origins(
            records=self._store,
            clock=instance.clock,
            fetches=instance.fetches,
            left=instance.left_results,
            is_alone=lambda: instance.ownership.alone,
            services=Services(services),
            kinds=origins,
        )
        instance.receive_results(self._origins)
        self._stack = AsyncExitStack()
        self.fetches = Fetches(self._while_running(instance.fetches))
        handlers = instance.jobs_assembly.run_carrier.handlers
        self.jobs = Jobs(self._while_running(instance.jobs), handlers, instance.spawn)
        creation = _creation(instance)

        async def create_in_transaction(connection: object, request: CreateTimer) -> TimerView:
            self._check_running()
            return await create_waiting(creation, connection, request)

        timers = self._while_running(instance.timers)
        self.timers = Timers(timers, namespaces, create_in_transaction=create_in_transaction)
        self.namespaces = Namespaces(
            namespaces,
            delete=NamespaceDeletion(store=self._store, namespaces=namespaces, clock=instance.clock).step,
            reshard=NamespaceReshard(store=self._store, namespaces=namespaces, clock=instance.clock).step,
        )

    def handler(self, name: str, *, replace: bool = False) -> Callable[[F], F]:
        """Register a function as a target. A coroutine function is awaited, any other runs in a thread.

        A name that is taken is refused, unless `replace` says that the function takes the place of the other.
        """
        if not isinstance(name, str) or not name:
            raise InvalidInput(f'Expected the name of the handler, as in @ms.handler("remind"), got {_shown(name)}')
        handlers = self._instance.timers_assembly.carrier.handlers

        def register(function: F) -> F:
            handler = awaited(function)
            if name in handlers and not replace:
                raise InvalidInput(f"Handler {name!r} already has a function")
            handlers[name] = lambda timer: handler(due_timer(timer))
            return function

        return register

    def job(self, schedule: str, *, name: str | None = None, **fields: Unpack[FunctionFields]) -> Callable[[J], J]:
        """Run a function on a calendar, as a job of the same name.

        The registry is updated to match when the block is entered, or at once if it already has been. A coroutine
        function is awaited, any other runs in a thread; it is called with a `DueJob`.
        """
        if not isinstance(schedule, str):
            raise InvalidInput(f'Expected a schedule, as in @ms.job("0 9 * * *"), got {_shown(schedule)}')

        def register(function: J) -> J:
            return self.jobs.declare(function, schedule, name=name, **fields)

        return register

    async def fetch(self, url: str, **fields: Unpack[FetchFields]) -> FetchResult:
        """Make a call at most once, and return its result: see `mainspring.fetches.program`.

        result = await ms.fetch("https://example.com/pay", method="POST", json={"amount": 12}, req_id="payment-42")
        response = result.raise_for_error()
        """
        return await self.fetches.run(url, **fields)

    def origin(self, kind: type[O], origin_id: str) -> OriginRef[O]:
        """An origin by its id: see `mainspring.origins`. Use it inside the block."""
        return self._origins.ref(kind, origin_id)

    def lock(self, name: str, *, ttl_seconds: float = TTL_SECONDS) -> Lock:
        """A lock in this store: see `mainspring.locks`. Use it inside the block."""
        instance = self._instance
        return Lock(self._store, instance.clock, name, ttl_seconds=ttl_seconds, owner=instance.ownership.instance)

    def now(self) -> datetime:
        """The store's time, on which all programs that share it agree, whatever their own clocks say."""
        return to_instant(self._instance.clock.now_ms())

    @property
    def idempotency_store(self) -> RecordsStore:
        """A store for `mainspring.idempotency` that keeps claims next to the timers: for processors and middleware of
        this program, inside the block."""
        return RecordsStore(self._store, clock=self._instance.clock)

    def records(self, name: str, kind: type[T]) -> Records[T]:
        """A collection of documents of this program: see `mainspring.records`. Use it inside the block."""
        instance = self._instance
        return Records(self._store, instance.clock, instance.randomness, name, kind)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._running())
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
        """What the program raised is raised as is; a failure of the engine, alone or with it, in a group."""
        try:
            return await self._stack.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1 and group.exceptions[0] is error:
                return False
            raise

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[Self]:
        """Use instead of `async with ms`: timers and documents can be read and written, but no timer, job or fetch runs
        here. For tools that work alongside the programs that do run them."""
        async with self._instance.at_rest():
            with self._running():
                yield self

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    def _while_running(self, thing: T) -> T:
        return cast(T, _WhileRunning(thing, self._check_running))

    def _check_running(self) -> None:
        if not self._is_running:
            raise Unavailable(
                "Mainspring is not running: use `async with Mainspring(...) as ms` and ask inside the block"
            )


class _WhileRunning:
    """A service or a store that can be used only inside the block: outside, nobody would run what it accepts."""

    def __init__(self, thing: object, check: Callable[[], None]) -> None:
        self._thing = thing
        self._check = check

    def __getattr__(self, name: str) -> Any:
        self._check()
        return getattr(self._thing, name)


def _shown(value: object) -> str:
    """What a decorator got instead of text: a function if its parentheses were left out."""
    return "a function" if callable(value) else repr(value)[:100]


def _creation(instance: Instance) -> Creation:
    """How timers come into this instance's database on connections that are not its own."""
    url = urlsplit(instance.config.store_url)
    options = dict(parse_qsl(url.query)) if url.scheme in ("postgresql", "mysql") else {}

    def accept(dialect: Dialect, driver: str) -> None:
        if dialect.name.lower() != url.scheme:
            raise InvalidInput(f"Expected a connection to the {url.scheme} store, got one to {dialect.name}")
        if dialect is SQLITE and driver != "apsw":
            raise InvalidInput(
                f"Expected an apsw connection, got one of {driver}, which loads a second SQLite into this process: "
                "the two would not see each other's locks on the file and would overwrite each other's commits"
            )

    return Creation(
        tables=table_prefix(prefix=options.get("prefix", "mainspring_"), schema=options.get("schema", "")),
        check_url=instance.timers_assembly.carrier.check_target,
        max_payload=instance.config.max_payload_bytes,
        secrets=instance.secrets,
        accept=accept,
        clock=instance.clock,
    )
