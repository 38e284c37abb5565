"""`Emulated` for tests without an event loop, and for tests with any: it runs on a loop in a thread of its own.

This is what the fixture `mainspring` gives.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import datetime
from threading import Thread, current_thread
from types import TracebackType
from typing import Any, Self, TypeVar

from mainspring.client import AsyncClient, Client
from mainspring.jobs.handlers import DueJob
from mainspring.library import Mainspring
from mainspring.testing.emulated import Emulated
from mainspring.testing.outside_world import MadeCall, Scripted
from mainspring.timers.program import DueTimer

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[DueTimer], object])
J = TypeVar("J", bound=Callable[[DueJob], object])


class EmulatedThread:
    """Use as `with EmulatedThread() as mainspring`; the arguments are those of `Emulated`.

    Every method waits. In an async test whose own loop has to answer calls meanwhile, have a thread wait:
    `await asyncio.to_thread(mainspring.advance, hours=2)`.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._live, name="mainspring-emulated", daemon=True)
        self._thread.start()
        try:
            self._emulated = self._wait(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:  # what the test has raised says more
                self._emulated.forget_fault()
            self._wait(self._emulated.__aexit__(None, None, None))
        finally:
            self._end()

    def now(self) -> datetime:
        """What time it is."""
        return self._emulated.now()

    def advance(
        self, *, weeks: float = 0, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> list[MadeCall]:
        """Let this much time pass; returns when all that became due was called, with the calls that were made."""
        self._emulated.refuse_if_called()
        return self._wait(self._emulated.advance(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds))

    def advance_to(self, instant: datetime | str) -> list[MadeCall]:
        """The same up to an instant."""
        self._emulated.refuse_if_called()
        return self._wait(self._emulated.advance_to(instant))

    @property
    def calls(self) -> list[MadeCall]:
        """All calls to URLs so far, in the order in which they were made."""
        return list(self._emulated.calls)

    def answer(self, url: str, *answers: Scripted) -> None:
        """Answer calls to this URL, and to all below it, with these in turn; the last one stays."""
        self._emulated.answer(url, *answers)

    def client(self) -> Client:
        """A client of this Mainspring; it need not be opened."""
        return self._emulated.client()

    def async_client(self) -> AsyncClient:
        """The same for programs with an event loop, whichever it is."""
        return self._emulated.async_client()

    def handler(self, name: str, *, replace: bool = False) -> Callable[[F], F]:
        """Register a function as a target of timers, as `Mainspring.handler` does."""

        def register(function: F) -> F:
            self.run(lambda program: program.handler(name, replace=replace)(function))
            return function

        self._emulated.program.handler(name, replace=replace)  # refuses a name that is none
        return register

    def job(self, schedule: str, *, name: str | None = None, **fields: Any) -> Callable[[J], J]:
        """Run a function on a calendar, as `Mainspring.job` does."""

        async def declare(program: Mainspring, function: J) -> None:
            program.job(schedule, name=name, **fields)(function)
            await program.jobs.get(name or function.__name__)  # returns when it is in the registry

        def register(function: J) -> J:
            self.run(declare, function)
            return function

        self._emulated.program.job(schedule, name=name, **fields)  # refuses a schedule that is none
        return register

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function(program, *arguments)`, where `program` is a `Mainspring`; one that is async is awaited."""

        async def work() -> Any:
            result = function(self._emulated.program, *arguments)
            return await result if inspect.isawaitable(result) else result

        return self._wait(work())

    async def _start(self) -> Emulated:
        return await Emulated(**self._settings).__aenter__()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if current_thread() is self._thread:
            work.close()
            raise RuntimeError("An async function that Mainspring calls cannot wait for it: do so in the test itself")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
