"""A committer whose groups are formed and worked on in a thread, and answered with one wake-up of the event loop each.

`wait_for` and `close` belong to the event loop, everything from `_run` down to the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Generic

from mainspring.errors import StoreUnavailable
from mainspring.stores.committer import Admission, fail
from mainspring.stores.groups import Capacity, R, Waiting

GROUP: Final = Capacity(items=4_000)


class Worker(Generic[R]):
    """Runs `work` on group after group until it is closed, then `finish` once, all in one thread."""

    def __init__(self, name: str, work: Callable[[list[R]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[R | None] = SimpleQueue()
        self._waiting: Waiting[R] = Waiting(GROUP)
        """What the thread has taken from the queue."""
        self._admission = Admission()
        self._ended = self._loop.create_future()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def wait_for(self, request: R) -> None:
        answered = self._admission.admit(request)
        self._queue.put(request)
        await answered

    @property
    def unheard(self) -> int:
        """Requests that were worked on although nobody was waiting for them any longer."""
        return self._admission.unheard

    async def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        self._admission.close()
        self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open or self._waiting:
            is_open = is_open and self._gather()
            if group := self._waiting.next_group():
                self._work_on(group)
                self._loop.call_soon_threadsafe(self._admission.dismiss, group)
        try:
            self._finish()
        finally:
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _work_on(self, group: list[R]) -> None:
        try:
            self._work(group)
        except StoreUnavailable as error:
            fail(group, error)
        except Exception as error:  # noqa: BLE001  (a defect, handed to the caller whose request has it)
            if len(group) == 1:
                group[0].error = error
            else:  # nothing was written, and the neighbours of the defective request must not suffer
                for request in group:
                    self._work_on([request])

    def _gather(self) -> bool:
        """Take in everything that has come, and wait if there is nothing to do. False: nothing more will come."""
        try:
            request = self._queue.get(block=not self._waiting)
            while request is not None:
                self._waiting.add(request)
                request = self._queue.get_nowait()
        except Empty:
            return True
        return False
