"""A task that takes what callers bring in groups, each group in one go: group commit on the event loop.

While a group is under way the next one gathers: the busier the store, the larger the groups. What waits is
bounded by `PENDING_LIMIT` items, what one group holds by about `GROUP_LIMIT`. Items that were accepted are
worked on even if their caller no longer waits.

A group that is held up, because others hold a row of it, need not hold up those that come behind it: see `beside`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from mainspring.errors import MainspringError, StoreUnavailable

PENDING_LIMIT: Final = 100_000
GROUP_LIMIT: Final = 2_000
PATIENCE_SECONDS: Final = 0.25

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Request(NamedTuple, Generic[Item, Answer]):
    items: Sequence[Item]
    answers: asyncio.Future[list[Answer]]


class Lane(Generic[Item, Answer]):
    """Runs `work` on the items of one group after the other until it is closed."""

    def __init__(self, name: str, work: Callable[[list[Item]], Awaitable[list[Answer]]], *, beside: int = 0) -> None:
        """`beside`: how many groups that take longer than `PATIENCE_SECONDS` may go on while the next one begins."""
        self._work = work
        self._beside = beside
        self._held_up: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Request[Item, Answer]] = deque()
        self._pending = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=name)

    async def submit(self, items: Sequence[Item]) -> list[Answer]:
        """The answers to these items, in their order."""
        if not items:
            return []
        if self._closed:
            raise StoreUnavailable("Expected an open store, got one that is closed")
        if self._pending + len(items) > PENDING_LIMIT:
            raise StoreUnavailable(f"Expected at most {PENDING_LIMIT} items waiting for the store, got more")
        self._pending += len(items)
        answers: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(items, answers))
        self._changed.set()
        return await answers

    async def close(self) -> None:
        """Finish what was accepted, then end the task."""
        self._closed = True
        self._changed.set()
        await self._task

    async def _run(self) -> None:
        while True:
            if self._waiting:
                await self._patiently(self._next_group())
            elif self._closed:
                if self._held_up:
                    await asyncio.wait(self._held_up)
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _patiently(self, group: list[_Request[Item, Answer]]) -> None:
        if not self._beside:
            await self._work_on(group)
            return
        working = asyncio.create_task(self._work_on(group))
        await asyncio.wait({working}, timeout=PATIENCE_SECONDS)
        if not working.done():
            self._held_up.add(working)
            working.add_done_callback(self._held_up.discard)
        if len(self._held_up) > self._beside:
            await asyncio.wait(self._held_up, return_when=asyncio.FIRST_COMPLETED)

    def _next_group(self) -> list[_Request[Item, Answer]]:
        group = [self._waiting.popleft()]
        weight = len(group[0].items)
        while self._waiting and weight + len(self._waiting[0].items) <= GROUP_LIMIT:
            group.append(self._waiting.popleft())
            weight += len(group[-1].items)
        return group

    async def _work_on(self, group: list[_Request[Item, Answer]]) -> None:
        items = [item for request in group for item in request.items]
        try:
            answers = await self._work(items)
        except Exception as error:  # noqa: BLE001  (handed to the callers)
            for request in group:
                if not request.answers.done():
                    # One exception cannot be raised in many places: each raise adds to its traceback.
                    request.answers.set_exception(
                        type(error)(error.detail) if isinstance(error, MainspringError) else error
                    )
        else:
            start = 0
            for request in group:
                end = start + len(request.items)
                if not request.answers.done():
                    request.answers.set_result(answers[start:end])
                start = end
        finally:
            self._pending -= len(items)
