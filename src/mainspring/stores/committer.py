"""Group commit, once for all stores: what arrives while a group is under way becomes the next group.

There is no timer and no size to reach: an idle store starts at once, a busy one makes larger groups. What waits is
bounded, and more is refused at once; what a group holds is bounded, too (`Room`). A request that was admitted is worked
on even if its caller no longer waits, and a cancelled caller takes nobody with it.

What a group does is up to the store. It leaves an answer or an error with each request, or raises an error, which each
of them then gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Generic

from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.stores.groups import Answer, Capacity, Item, Items, R, Request, Waiting

PENDING_LIMIT: Final = 100_000
PATIENCE_SECONDS: Final = 0.25


class Admission:
    """Admits requests, as long as there are not too many items, and tells their callers how they ended."""

    def __init__(self) -> None:
        self._pending = 0
        self._closed = False
        self.unheard = 0
        """Requests that were worked on although nobody was waiting for them any longer."""

    def admit(self, request: Request) -> asyncio.Future[None]:
        """What the caller waits for."""
        self.check(request.weight)
        self._pending += request.weight
        request.future = asyncio.get_running_loop().create_future()
        return request.future

    def check(self, weight: int) -> None:
        """Raise if there is no room for this many items."""
        if self._closed:
            raise StoreUnavailable("Expected an open store, got one that is closed")
        if self._pending + weight > PENDING_LIMIT:
            raise StoreUnavailable(f"Expected at most {PENDING_LIMIT} items waiting for the store, got more")

    def close(self) -> None:
        self._closed = True

    def dismiss(self, group: Iterable[Request]) -> None:
        """The group has ended."""
        for request in group:
            self._pending -= request.weight
            if not tell(request):
                self.unheard += 1


def tell(request: Request) -> bool:
    """Wake the caller. False: it was told already, or was cancelled."""
    future = request.future
    if future is None or future.done():
        return False
    if request.error is None:
        future.set_result(None)
    else:
        future.set_exception(request.error)
    return True


def fail(group: Sequence[Request], error: Exception) -> None:
    """Leave each an error of its own: one that is raised in many places would gather their tracebacks."""
    for request in group:
        request.error = error if len(group) == 1 else _another(error)


def _another(error: Exception) -> Exception:
    if isinstance(error, MainspringError):
        another = type(error)(error.detail)
    else:
        another = StoreUnavailable(f"The store could not do this: {type(error).__name__}: {error}")
    another.__cause__ = error
    return another


class Committer(Generic[R]):
    """Runs `work` on the event loop, on group after group."""

    def __init__(
        self,
        work: Callable[[list[R]], Awaitable[None]],
        *,
        room: Capacity,
        width: int = 1,
        beside: int = 0,
        admission: Admission | None = None,
        when_idle: Callable[[], object] | None = None,
    ) -> None:
        """`width` is how many groups may be under way at once; `beside` is how many of those that take longer than
        `PATIENCE_SECONDS` do not count. An `admission` may be shared with others: their items count together."""
        self._work = work
        self._width = width
        self._beside = beside
        self._admission = admission or Admission()
        self._when_idle = when_idle
        self._waiting: Waiting[R] = Waiting(room)
        self._runners: set[asyncio.Task[None]] = set()
        self._held_up: set[asyncio.Task[None]] = set()

    async def wait_for(self, request: R) -> None:
        await self.put(request)

    def put(self, request: R) -> asyncio.Future[None]:
        """What a caller may wait for."""
        answered = self._admission.admit(request)
        self._waiting.add(request)
        self._begin()
        return answered

    async def close(self) -> None:
        """Finish what was admitted."""
        self._admission.close()
        while runners := self._runners | self._held_up:
            await asyncio.wait(runners)

    def _begin(self) -> None:
        if self._waiting and len(self._runners) < self._width and len(self._held_up) <= self._beside:
            self._runners.add(asyncio.create_task(self._run()))

    async def _run(self) -> None:
        """Group after group, until one holds it up: others then go on in its place."""
        runner = asyncio.current_task()
        assert runner is not None
        loop = asyncio.get_running_loop()
        try:
            while self._waiting and runner in self._runners:
                patience = loop.call_later(PATIENCE_SECONDS, self._give_way, runner) if self._beside else None
                await self._work_on(self._waiting.next_group())
                if patience is not None:
                    patience.cancel()
        finally:  # in the same step as the last look at what waits, so that no request is left without a runner
            self._runners.discard(runner)
            self._held_up.discard(runner)
            self._begin()
            if self._when_idle is not None and not self._runners and not self._held_up:
                self._when_idle()

    def _give_way(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        self._held_up.add(runner)
        self._begin()

    async def _work_on(self, group: list[R]) -> None:
        try:
            await self._work(group)
        except asyncio.CancelledError:  # the event loop is going down
            for request in group:
                if request.future is not None:
                    request.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (handed to the callers)
            fail(group, error)
        finally:
            self._admission.dismiss(group)


def together(
    write: Callable[[list[Item]], Awaitable[list[Answer]]],
) -> Callable[[list[Items[Item, Answer]]], Awaitable[None]]:
    """Work on groups whose requests need not be told apart: `write` gets all items and returns their answers."""

    async def work(group: list[Items[Item, Answer]]) -> None:
        answers = iter(await write([item for request in group for item in request.items]))
        for request in group:
            request.answer = list(islice(answers, request.weight))

    return work


async def submit(committer: Committer[Items[Item, Answer]], items: Sequence[Item], *, size: int = 0) -> list[Answer]:
    """The answers to these items, which stay together in one group. `size` is in bytes."""
    if not items:
        return []
    request: Items[Item, Answer] = Items(items, size)
    await committer.wait_for(request)
    return request.answer
