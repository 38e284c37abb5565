"""Group commit: what arrives for one partition while a write of it is under way becomes the next group.

A partition takes one conditional write after the other, at some milliseconds each, and two at once only disturb each
other. So every partition has one lane, and a lane one group on its way. Waiting is bounded; a caller that goes away
leaves its items where they are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from mainspring.errors import StoreUnavailable

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Answer = TypeVar("Answer")
T = TypeVar("T")

WAITING_LIMIT: Final = 100_000
PARTITIONS_AT_ONCE: Final = 64


async def all_of(waits: Sequence[Awaitable[T]]) -> list[T]:
    """Every result, after all have ended; or the first error."""
    results = await asyncio.gather(*waits, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


class _Request(Generic[Item, Answer]):
    __slots__ = ("future", "items", "weight")

    def __init__(self, items: Sequence[Item], weight: int) -> None:
        self.items = items
        self.weight = weight
        self.future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()


class Lanes(Generic[Key, Item, Answer]):
    """Hands groups to `commit`, which answers for every item, or raises for the whole group."""

    def __init__(
        self, commit: Callable[[Key, list[Item]], Awaitable[list[Answer]]], *, group_items: int, group_weight: int
    ) -> None:
        self._commit = commit
        self._group_items = group_items
        self._group_weight = group_weight
        self._waiting: dict[Key, deque[_Request[Item, Answer]]] = {}
        self._count = 0
        self._slots = asyncio.Semaphore(PARTITIONS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, key: Key, items: Sequence[Item], *, weight: int = 0) -> asyncio.Future[list[Answer]]:
        """The answers to these items, which stay together and in order behind what was submitted before."""
        if self._count + len(items) > WAITING_LIMIT:
            raise StoreUnavailable(f"Expected at most {WAITING_LIMIT} items to wait for the store, got more")
        request: _Request[Item, Answer] = _Request(items, weight)
        queue = self._waiting.get(key)
        if queue is None:
            queue = self._waiting[key] = deque()
            task = asyncio.create_task(self._run(key, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.append(request)
        self._count += len(items)
        return request.future

    async def close(self) -> None:
        """Wait for everything that was accepted."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, key: Key, queue: deque[_Request[Item, Answer]]) -> None:
        try:
            while queue:
                async with self._slots:
                    await self._settle(key, self._take(queue))
        finally:
            del self._waiting[key]
            for request in queue:  # only when the loop itself is going down
                request.future.cancel()

    def _take(self, queue: deque[_Request[Item, Answer]]) -> list[_Request[Item, Answer]]:
        group = [queue.popleft()]
        items, weight = len(group[0].items), group[0].weight
        while queue:
            items, weight = items + len(queue[0].items), weight + queue[0].weight
            if items > self._group_items or weight > self._group_weight:
                break
            group.append(queue.popleft())
        self._count -= sum(len(request.items) for request in group)
        return group

    async def _settle(self, key: Key, group: list[_Request[Item, Answer]]) -> None:
        try:
            answers = await self._commit(key, [item for request in group for item in request.items])
        except asyncio.CancelledError:
            for request in group:
                request.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (its callers raise it)
            for request in group:
                if not request.future.done():
                    request.future.set_exception(error)
            return
        start = 0
        for request in group:
            if not request.future.done():
                request.future.set_result(answers[start : start + len(request.items)])
            start += len(request.items)
