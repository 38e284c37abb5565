"""Group commit. A lane works on a few groups of requests at a time; while they are under way, the next one gathers.

The busier the store, the larger the groups. What waits is bounded by `PENDING_LIMIT` items, what one group holds by
about `GROUP_LIMIT`. A request that was accepted is worked on even if its caller no longer waits.

Groups of one lane may overlap. Two calls on one row that overlap have no order anyway: the row's lock gives them
one, and the versions that they expect decide. Lanes are apart so that writes which wait for the lock of a shard do
not hold up those which need none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from mainspring.errors import StoreUnavailable
from mainspring.stores.plan import (
    BeginAttempts,
    Claim,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    Release,
    Write,
)

WriteRequest = Write | BeginAttempts | FinishAttempts | Claim | Release | PutRecord | DeleteRecord

PENDING_LIMIT: Final = 100_000
GROUP_LIMIT: Final = 1_000


class Lane:
    """Runs `work` on at most `width` groups at a time."""

    def __init__(self, work: Callable[[list[WriteRequest]], Awaitable[None]], *, width: int) -> None:
        self._work = work
        self._width = width
        self._waiting: deque[WriteRequest] = deque()
        self._pending = 0
        self._runners: set[asyncio.Task[None]] = set()
        self._closed = False

    async def wait_for(self, request: WriteRequest) -> None:
        if self._closed:
            raise StoreUnavailable("Expected an open store, got one that is closed")
        if self._pending + request.weight > PENDING_LIMIT:
            raise StoreUnavailable(f"Expected at most {PENDING_LIMIT} items waiting for the store, got more")
        self._pending += request.weight
        request.future = asyncio.get_running_loop().create_future()
        self._waiting.append(request)
        if len(self._runners) < self._width:
            self._runners.add(asyncio.create_task(self._run()))
        await request.future

    async def close(self) -> None:
        """Finish what was accepted."""
        self._closed = True
        while self._runners:
            await asyncio.wait(self._runners)

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                await self._work_on(group)
                for request in group:
                    self._answer(request)
        finally:  # in the same step as the last look at what waits, so that no request misses its runner
            runner = asyncio.current_task()
            if runner is not None:
                self._runners.discard(runner)

    def _next_group(self) -> list[WriteRequest]:
        group: list[WriteRequest] = []
        weight = 0
        while self._waiting and (not group or weight + self._waiting[0].weight <= GROUP_LIMIT):
            request = self._waiting.popleft()
            group.append(request)
            weight += request.weight
        return group

    async def _work_on(self, group: list[WriteRequest]) -> None:
        try:
            await self._work(group)
        except StoreUnavailable as error:
            for request in group:
                request.error = StoreUnavailable(error.detail)
        except Exception as error:  # noqa: BLE001  (a defect, handed to the caller whose request has it)
            if len(group) == 1:
                group[0].error = error
            else:  # nothing was written, and the neighbours of the defective request shall not suffer
                for request in group:
                    await self._work_on([request])

    def _answer(self, request: WriteRequest) -> None:
        self._pending -= request.weight
        future = request.future
        if future is None or future.done():  # its caller was cancelled
            return
        if request.error is None:
            future.set_result(None)
        else:
            future.set_exception(request.error)
