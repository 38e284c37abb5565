"""A thread that takes requests from the event loop in groups and answers each group with one wake-up.

While a group is worked on, the next one gathers: the busier the store, the larger the groups. What waits is
bounded by `PENDING_LIMIT` items, what one group holds by about `GROUP_LIMIT`, and in bytes (`grouping`).

`wait_for` and `close` belong to the event loop, everything from `_run` down to the thread. A request that was
accepted is worked on even if its caller no longer waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Generic, TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.stores.grouping import Waiting
from mainspring.stores.plan import Request

PENDING_LIMIT: Final = 100_000
GROUP_LIMIT: Final = 4_000


R = TypeVar("R", bound=Request)


class Worker(Generic[R]):
    """Runs `work` on group after group until it is closed, then `finish` once, all in one thread."""

    def __init__(self, name: str, work: Callable[[list[R]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[R | None] = SimpleQueue()
        self._waiting: Waiting[R] = Waiting(GROUP_LIMIT)
        """What the thread has taken from the queue."""
        self._pending = 0
        self.unheard = 0
        """Requests that were worked on although nobody waited for them any more."""
        self._closed = False
        self._ended = self._loop.create_future()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def wait_for(self, request: R) -> None:
        if self._closed:
            raise StoreUnavailable("Expected an open store, got one that is closed")
        if self._pending + request.weight > PENDING_LIMIT:
            raise StoreUnavailable(f"Expected at most {PENDING_LIMIT} items waiting for the store, got more")
        self._pending += request.weight
        request.future = self._loop.create_future()
        self._queue.put(request)
        await request.future

    async def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open or self._waiting:
            is_open = is_open and self._gather()
            if group := self._waiting.next_group():
                self._work_on(group)
                self._loop.call_soon_threadsafe(self._answer, group)
        try:
            self._finish()
        finally:
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _work_on(self, group: list[R]) -> None:
        try:
            self._work(group)
        except StoreUnavailable as error:
            for request in group:
                request.error = StoreUnavailable(error.detail)
        except Exception as error:  # noqa: BLE001  (a defect, handed to the caller whose request has it)
            if len(group) == 1:
                group[0].error = error
            else:  # nothing was written, and the neighbours of the defective request shall not suffer
                for request in group:
                    self._work_on([request])

    def _gather(self) -> bool:
        """Take in everything that has come, and wait for it if there is nothing to do. False: nothing more comes."""
        try:
            request = self._queue.get(block=not self._waiting)
            while request is not None:
                self._waiting.add(request)
                request = self._queue.get_nowait()
        except Empty:
            return True
        return False

    def _answer(self, group: list[R]) -> None:
        for request in group:
            self._pending -= request.weight
            future = request.future
            if future is None or future.done():  # its caller was cancelled
                self.unheard += 1
                continue
            if request.error is None:
                future.set_result(None)
            else:
                future.set_exception(request.error)
