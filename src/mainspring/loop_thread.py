"""An event loop in a thread of its own, for programs without one: they hand it coroutines and wait for the results."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread, get_ident
from typing import Any, Final, TypeVar

T = TypeVar("T")

STOP_SECONDS: Final = 10.0
"""How long to wait for the loop after everything on it has ended."""
FUNCTIONS_SECONDS: Final = 0.5
"""How long to wait for functions that still run in threads: whoever called them has given them up."""


class LoopThread:
    """Any number of threads may `run` something, from `start` until `stop`. A forked child has no such thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, so that what nobody has stopped does not keep a program from ending.
        self._thread = Thread(target=self._live, name=name, daemon=True)
        self._is_closed = Event()
        self._pid = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        return self._pid == os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether this is the thread itself: whoever waits here for the loop waits for ever."""
        return self._thread.ident == get_ident()

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        future = self.submit(work)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()  # an interrupted caller leaves nothing behind
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._is_closed.wait(STOP_SECONDS)
        self._thread.join(FUNCTIONS_SECONDS)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        # Ended here: the loop would start another thread for that, which a program that ends may no longer do.
        with ThreadPoolExecutor(thread_name_prefix=self._thread.name) as executor:
            self._loop.set_default_executor(executor)
            try:
                self._loop.run_forever()
                self._loop.run_until_complete(_cancel(asyncio.all_tasks(self._loop)))
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            finally:
                self._loop.close()
                self._is_closed.set()


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Tell those who still wait for a result that there will be none."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
