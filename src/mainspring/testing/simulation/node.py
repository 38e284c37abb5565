"""One process of the run: a production instance with its API, in simulated surroundings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from mainspring.api.app import build_app, build_executor_app
from mainspring.api.asgi import AsgiApp
from mainspring.api.tokens import token_digest
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import ProcessIdentity, Surroundings
from mainspring.config import Config
from mainspring.delivery.call import Call
from mainspring.errors import StoreUnavailable
from mainspring.kernel.ownership import Lease
from mainspring.processes.executor import STOP_SECONDS as EXECUTOR_STOP_SECONDS
from mainspring.processes.executor import RemoteExecutor
from mainspring.processes.server import STOP_SECONDS, api_of
from mainspring.store import Store
from mainspring.testing.simulation.clock import SimulatedClock
from mainspring.testing.simulation.database import OPERATION, Database
from mainspring.testing.simulation.desks import Answer
from mainspring.testing.simulation.draws import Dice, Draws
from mainspring.testing.simulation.loop import Process, SimulatedLoop, context_of
from mainspring.testing.simulation.plan import World
from mainspring.testing.simulation.store import DistantStore, NoticingStore, SimulatedStore
from mainspring.testing.simulation.wire import PEERS, Respond, Wire

TOKEN: Final = "simulated-token-of-every-instance"  # noqa: S105  (opens nothing but a simulation)
RETRY_SECONDS: Final = 0.5
POOL: Final = "pool"
"""The one pool of executors."""
Started = TypeVar("Started", Instance, RemoteExecutor)


class Died(BaseException):
    """Unwinds the callback in which a process dies at a crash point. Nothing in the process runs after that."""


class Inhabitant:
    """A number of the plan has one process at a time; each has a name of its own."""

    instance: Instance | None = None
    """The product's, if it is one."""

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.name = name
        self.process = Process(name)
        self.context = context_of(self.process)
        self._clocks: list[SimulatedClock] = []

    @property
    def is_alive(self) -> bool:
        return self.process.alive

    def step_wall(self, by_ms: int) -> None:
        """The wall clock of its machine was moved."""
        for clock in self._clocks:
            clock.step_wall(by_ms)

    def start(self) -> None:
        """Begin to live."""
        raise NotImplementedError

    def stop(self) -> None:
        """End in good order."""
        raise NotImplementedError


class Node(Inhabitant):
    """One that is an instance of the product."""

    def __init__(
        self,
        index: int,
        name: str,
        *,
        loop: SimulatedLoop,
        world: World,
        draws: Draws,
        skew_ms: int,
        database: Database,
        wire: Wire,
        is_dead: Callable[[Lease], bool],
        ended: Callable[[Inhabitant, BaseException | None], None],
    ) -> None:
        """`skew_ms` is how wrong the wall clock is; `ended` is told when the process ends by itself, and why."""
        super().__init__(index, name)
        self._loop = loop
        self._world = world
        self._wire = wire
        self._ended = ended
        self._app: AsgiApp | None = None
        self._stop: asyncio.Event | None = None
        store: type[SimulatedStore] = NoticingStore if world.notices else DistantStore
        self._store: Store = store(database, self)
        clock = SimulatedClock(loop, skew_ms=world.starts_ms + skew_ms)
        self._clocks.append(clock)
        self._surroundings = Surroundings(
            clock=clock,
            randomness=Dice(draws, name),
            identity=ProcessIdentity(
                name=name,
                machine="machine" if world.one_machine else f"machine of {name}",
                pid=index + 1,
                process=name,
                is_dead=is_dead,
            ),
            senders=wire.senders(name),
        )

    @property
    def listens(self) -> bool:
        return self.process.alive and self._app is not None

    def start(self) -> None:
        self.context.run(self._loop.create_task, self._live())

    def stop(self) -> None:
        """Ask it to end in good order; as the server does, it is cut short when that takes too long."""
        if self._stop is not None:
            self._loop.call_soon(self._stop.set, context=self.context)

    def receive(self, call: Call, respond: Respond, operation: str) -> None:
        self._loop.call_soon(self._receive, call, respond, operation, context=self.context)

    def _receive(self, call: Call, respond: Respond, operation: str) -> None:
        task = self._loop.create_task(self._handle(call, respond, operation))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _handle(self, call: Call, respond: Respond, operation: str) -> None:
        OPERATION.set(operation)
        answered: dict[str, Any] = {}

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": call.body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            answered.update(message)

        scope = {
            "type": "http",
            "method": call.method,
            "path": urlsplit(call.url).path,
            "headers": [(name.encode(), value.encode()) for name, value in call.headers],
        }
        if self._app is None:
            respond(Answer(0, 503, body=b""))
            return
        await self._app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in answered["headers"]}
        respond(Answer(0, answered["status"], headers, answered["body"]))

    async def _live(self) -> None:
        error: BaseException | None = None
        try:
            await self._serve()
        except Exception as raised:  # noqa: BLE001 - whatever ends an instance is for the run to judge
            error = raised
        self._ended(self, error)

    async def _serve(self) -> None:
        """As `server` does it."""
        config = _config(self._world)
        self._stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            instance = await self._started(lambda: self._instance(config), stack)
            self.instance = instance
            self._app = build_app(api_of(config, instance, TOKEN, shared=False))
            await instance.advertise(address=f"http://{self.name}{PEERS}")
            await self._stop.wait()
            self._app = None
            self._loop.call_later(2 * config.drain_seconds + STOP_SECONDS, self._ended, self, None)

    def _instance(self, config: Config) -> Instance:
        return Instance(config, store=self._store, surroundings=self._surroundings, page_size=self._world.page_size)

    async def _started(self, make: Callable[[], Started], stack: AsyncExitStack) -> Started:
        while True:
            try:
                return await stack.enter_async_context(make())
            except (StoreUnavailable, ExceptionGroup) as error:
                if isinstance(error, ExceptionGroup) and error.split(StoreUnavailable)[1] is not None:
                    raise
            await asyncio.sleep(RETRY_SECONDS)


class ExecutorNode(Node):
    """An executor of the pool, which makes calls of fetches and nothing else."""

    remote: RemoteExecutor | None = None

    @property
    def calls(self) -> int:
        """How many it makes at the moment."""
        return self.remote.in_flight if self.remote is not None else 0

    async def _serve(self) -> None:
        """As `processes.executor` does it."""
        config = _config(self._world)
        self._stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            remote = self.remote = await self._started(lambda: self._executor(config), stack)
            self._app = build_executor_app(
                remote.execute,
                remote.cut_off,
                ready=remote.ready,
                metrics=remote.metrics,
                name=remote.name,
                version="",
                token_digests=(),
                cluster_digest=token_digest(remote.cluster_secret),
            )
            await remote.advertise(f"http://{self.name}{PEERS}")
            await self._stop.wait()
            self._loop.call_later(config.drain_seconds + EXECUTOR_STOP_SECONDS, self._ended, self, None)
            await remote.drain()
            self._app = None

    def _executor(self, config: Config) -> RemoteExecutor:
        return RemoteExecutor(config, POOL, store=self._store, surroundings=self._surroundings)


class _Config(Config, frozen=True, kw_only=True):
    """Keeps fetches for a time that no user can set, so that they expire within a run."""

    retention_ms: int

    @property
    def fetch_retention_ms(self) -> int:
        return self.retention_ms


def _config(world: World) -> Config:
    return _Config(
        token=TOKEN,
        store="memory://",
        lease_seconds=world.lease_seconds,
        renew_seconds=world.renew_seconds,
        look_seconds=world.look_seconds,
        drain_seconds=world.drain_seconds,
        window_limit=world.window_limit,
        window_bytes=world.window_bytes,
        in_flight_limit=world.in_flight_limit,
        host_limit=world.host_limit,
        circuit_failures=world.circuit_failures,
        circuit_seconds=world.circuit_seconds,
        fetch_limit=world.fetch_limit,
        fetch_pending_limit=world.fetch_pending_limit,
        retention_ms=world.fetch_retention,
    )
