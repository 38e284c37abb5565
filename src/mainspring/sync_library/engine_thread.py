"""The engine in a thread with a loop of its own: it is entered and left there, and others wait for what they ask.

    not running ── start ──▶ running ── stop, or the end of the program ──▶ not running
                                └────── the engine fails: asking says so, and stop raises why

A forked child has the memory of its parent but not the thread: there it is not running, and may be started anew.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeVar
from weakref import WeakSet

from mainspring.errors import MainspringError, Unavailable
from mainspring.library import Mainspring
from mainspring.loop_thread import LoopThread

T = TypeVar("T")

_OVER: Final = object()


class EngineThread:
    """One engine, started once. `Unavailable` while it does not run, in words that say what to do."""

    def __init__(self, ms: Mainspring, *, at_rest: bool) -> None:
        self._ms = ms
        self._at_rest = at_rest
        self._thread = LoopThread("mainspring-engine")
        self._stopping = asyncio.Event()
        self._life: Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """Started and not stopped, in this process."""
        return self._life is not None and self.is_of_this_process

    @property
    def is_of_this_process(self) -> bool:
        return self._thread.is_of_this_process

    def start(self) -> None:
        """Return when the engine runs, or raise what kept it from doing so."""
        ready: Future[None] = Future()
        self._thread.start()
        self._life = self._thread.submit(self._live(ready))
        try:
            ready.result()
        except BaseException:
            self._stop()
            raise
        _running.add(self)

    def run(self, ask: Callable[[Mainspring], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await ask(self._ms)

        self._check()
        return self._thread.run(asked())

    def iterate(self, ask: Callable[[Mainspring], AsyncIterator[T]]) -> Iterator[T]:
        """Read on when the next one is wanted."""

        async def begin(ms: Mainspring) -> AsyncIterator[T]:
            return ask(ms)

        return self._items(self.run(begin))

    def _items(self, found: AsyncIterator[T]) -> Iterator[T]:
        async def following(_: Mainspring) -> Any:
            return await anext(found, _OVER)

        while (item := self.run(following)) is not _OVER:
            yield item

    def stop(self) -> None:
        """Drain and end it. Raises what has ended the engine, if it was not this."""
        if self._thread.is_current:
            raise Unavailable("A handler cannot stop the engine that runs it: stop it from the program's own thread")
        _running.discard(self)
        if not self.is_of_this_process or self._life is None:
            return
        life = self._life
        self._stop()
        life.result()

    def _stop(self) -> None:
        life, self._life = self._life, None
        with suppress(RuntimeError):  # the loop has ended by itself
            self._thread.submit(self._say_stop()).result()
        if life is not None:
            concurrent.futures.wait((life,))
        self._thread.stop()

    async def _say_stop(self) -> None:
        self._stopping.set()

    async def _live(self, ready: Future[None]) -> None:
        block: AbstractAsyncContextManager[object] = self._ms.at_rest() if self._at_rest else self._ms
        try:
            async with block:
                ready.set_result(None)
                await self._stopping.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def _check(self) -> None:
        if self._thread.is_current:
            raise Unavailable(
                "A coroutine that runs on the engine's loop would wait for itself: make the handler a plain function, "
                "which runs in a thread"
            )
        if self._life is None:
            raise not_running()
        if self._life.done():
            error = self._life.exception()
            detail = error.detail if isinstance(error, MainspringError) else repr(error)
            raise Unavailable(f"The engine has ended with an error: {detail}. Stop it, and start it again")


def not_running() -> Unavailable:
    return Unavailable(
        "Mainspring is not running: use `with SyncMainspring(...) as ms` and ask inside the block, or call `ms.start()`"
    )


_running: WeakSet[EngineThread] = WeakSet()


def _stop_all() -> None:
    for engine in list(_running):
        engine.stop()


# The last to register is the first to be called, and `concurrent.futures.thread` has registered when it was imported.
# While a program ends, threads that it has not started as daemons are waited for, and executors take no more work. The
# engine needs them to end its calls and close its store: so it has to stop before that, which `atexit` is too late for.
getattr(threading, "_register_atexit", lambda stop: None)(_stop_all)
