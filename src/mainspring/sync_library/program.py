"""Mainspring inside a program without an event loop: the same engine in a thread, and methods that return results.

    ms = SyncMainspring("sqlite:///app.db")

    @ms.handler("remind")
    def remind(timer: DueTimer) -> None: ...

    with ms:
        ms.timers.create("t1", delay_seconds=5, handler="remind", payload={"to": "ann"})

Instead of the block, `start` and `stop` do for servers whose requests come and go; what is not stopped is drained and
ends with the program. Handlers and functions on a calendar are plain functions, and run in threads.

Processes that are forked start their own: after a fork, the child's is not running, whatever the parent's does, and
nothing that the parent has opened is used. The functions that were registered before the fork are known to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from mainspring.errors import Conflict, Unavailable
from mainspring.fetches.arguments import FetchFields
from mainspring.fetches.messages import FetchResult
from mainspring.jobs.arguments import FunctionFields
from mainspring.jobs.handlers import DueJob
from mainspring.library import Mainspring
from mainspring.origins.origin import Origin
from mainspring.origins.services import ServiceFactory
from mainspring.sync_library.engine_thread import EngineThread, not_running
from mainspring.sync_library.fetches import SyncFetches
from mainspring.sync_library.jobs import SyncJobs
from mainspring.sync_library.namespaces import SyncNamespaces
from mainspring.sync_library.records import SyncRecords
from mainspring.sync_library.timers import SyncTimers
from mainspring.timers.program import DueTimer

F = TypeVar("F", bound=Callable[[DueTimer], object])
J = TypeVar("J", bound=Callable[[DueJob], object])
T = TypeVar("T")


class SyncMainspring:
    """One instance inside this program, for code that waits. Settings are those of `Config`, read like the server's."""

    def __init__(
        self,
        store: str = "",
        *,
        origins: Iterable[type[Origin]] = (),
        services: Mapping[str, ServiceFactory] | None = None,
        **settings: Any,
    ) -> None:
        kinds = tuple(origins)
        self._make: Callable[[], Mainspring] = lambda: Mainspring(store, origins=kinds, services=services, **settings)
        self._registrations: list[Callable[[Mainspring], object]] = []
        self._next = self._make()
        """Tells at once what is wrong with settings and functions; and what begins with the next start."""
        self._engine: EngineThread | None = None
        self.timers = SyncTimers(self._current)
        self.jobs = SyncJobs(self._current)
        self.fetches = SyncFetches(self._current)
        self.namespaces = SyncNamespaces(self._current)

    # --- the functions of the program -------------------------------------------------------------------

    def handler(self, name: str, *, replace: bool = False) -> Callable[[F], F]:
        """Register a function as a target, before the start or at its beginning: see `Mainspring.handler`."""

        def register(function: F) -> F:
            self._register(lambda ms: ms.handler(name, replace=replace)(function))
            return function

        self._next.handler(name, replace=replace)  # refuses a name that is none
        return register

    def job(self, schedule: str, *, name: str | None = None, **fields: Unpack[FunctionFields]) -> Callable[[J], J]:
        """Run a function on a calendar, as a job of the same name: see `Mainspring.job`."""

        def register(function: J) -> J:
            self._register(lambda ms: ms.job(schedule, name=name, **fields)(function))
            return function

        self._next.job(schedule, name=name, **fields)  # refuses a schedule that is none
        return register

    def _register(self, registration: Callable[[Mainspring], object]) -> None:
        registration(self._next)
        self._registrations.append(registration)
        if self.is_running:

            async def registered(ms: Mainspring) -> None:
                registration(ms)

            self._current().run(registered)

    # --- from start to stop -----------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process, and not stopped since."""
        return self._engine is not None and self._engine.is_running

    def start(self, *, at_rest: bool = False) -> None:
        """Run the engine until `stop`, or until the program ends. Conflict if it already runs in this process.

        With `at_rest`, timers and documents can be read and written, but no timer, job or fetch runs here: for
        processes beside the one that does run them.
        """
        if self.is_running:
            raise Conflict("Mainspring is already running in this process")
        ms = self._make()  # for this process, which may be a child of the one that began
        for registration in self._registrations:
            registration(ms)
        engine = EngineThread(ms, at_rest=at_rest)
        engine.start()
        self._engine = engine

    def stop(self) -> None:
        """End the calls in flight, for at most `drain_seconds`, and the engine. Does nothing if it is not running."""
        if self._engine is not None:
            self._engine.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @contextmanager
    def at_rest(self) -> Iterator[Self]:
        """Use instead of `with ms` where nothing is to run: see `start`."""
        self.start(at_rest=True)
        try:
            yield self
        finally:
            self.stop()

    def _current(self) -> EngineThread:
        if self._engine is None:
            raise not_running()
        if not self._engine.is_of_this_process:
            raise Unavailable(
                "Mainspring was started before this process was forked, and does not run in it: call `ms.start()` in "
                "each process that is to run it"
            )
        return self._engine

    # --- what is asked of it ----------------------------------------------------------------------------

    def fetch(self, url: str, **fields: Unpack[FetchFields]) -> FetchResult:
        """Make a call at most once, and return its result: see `Mainspring.fetch`."""
        return self.fetches.run(url, **fields)

    def records(self, name: str, kind: type[T]) -> SyncRecords[T]:
        """A collection of documents of this program: see `mainspring.records`. Use it while the engine runs."""
        self._next.records(name, kind)  # refuses a wrong name
        return SyncRecords(self._current, lambda ms: ms.records(name, kind))

    def now(self) -> datetime:
        """The store's time, on which all programs that share it agree, whatever their own clocks say."""

        async def now(ms: Mainspring) -> datetime:
            return ms.now()

        return self._current().run(now)
