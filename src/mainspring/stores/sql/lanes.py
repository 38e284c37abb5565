"""Group commit. A lane works on a few groups of requests at a time; while they are under way, the next one gathers.

The busier the store, the larger the groups. What waits is bounded by `PENDING_LIMIT` items, what one group holds by
about `GROUP_LIMIT`, and in bytes (`grouping`). A request that was accepted is worked on even if its caller no longer
waits.

Groups of one lane may overlap. Two calls on one row that overlap have no order anyway: the row's lock gives them
one, and the versions that they expect decide. Lanes are apart so that claims, which wait for the lock of a shard, do
not hold up those which wait for none.

A group that fails because of one of its items is halved, and halved again, until that item is alone with its verdict
and all others are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.store import Verdict
from mainspring.stores.grouping import Waiting
from mainspring.stores.plan import (
    Batch,
    BeginAttempts,
    Claim,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    Release,
    Write,
)
from mainspring.stores.sql.dialect import Denied, Held, Unfit

BatchRequest = Write | BeginAttempts | FinishAttempts | Claim | Release
WriteRequest = BatchRequest | PutRecord | DeleteRecord

PENDING_LIMIT: Final = 100_000
GROUP_LIMIT: Final = 1_000
HALVING_SECONDS: Final = 1.0
"""How long held rows are looked for. What has not been tried by then counts as held, and may be asked for again."""


class Lane:
    """Runs `work` on at most `width` groups at a time, and tells it whether the group is a part of one that failed.
    In a lane that is `apart`, every group is."""

    def __init__(
        self, work: Callable[[list[WriteRequest], bool], Awaitable[None]], *, width: int, apart: bool = False
    ) -> None:
        self._work = work
        self._width = width
        self._apart = apart
        self._waiting: Waiting[WriteRequest] = Waiting(GROUP_LIMIT)
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
        self._waiting.add(request)
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
                group = self._waiting.next_group()
                await self._work_on(group, apart=self._apart)
                for request in group:
                    self._answer(request)
        finally:  # in the same step as the last look at what waits, so that no request misses its runner
            runner = asyncio.current_task()
            if runner is not None:
                self._runners.discard(runner)

    async def _work_on(self, group: list[WriteRequest], *, apart: bool, until: float | None = None) -> None:
        """`until` is when halving ends."""
        try:
            await self._work(group, apart)
        except StoreUnavailable as error:
            for request in group:
                request.error = StoreUnavailable(error.detail)
        except Exception as error:  # noqa: BLE001  (of one item, whose verdict it is, or a defect, for its caller)
            now = asyncio.get_running_loop().time()
            until = until or now + HALVING_SECONDS
            if sum(request.weight for request in group) <= 1:
                _settle(group[0], error)
            elif isinstance(error, Held) and now > until:
                for request in group:
                    _settle(request, error)
            else:  # nothing was written, and the neighbours of that one shall not suffer
                first, second = _halves(group)
                await self._work_on(first, apart=True, until=until)
                await self._work_on(second, apart=True, until=until)
                if len(group) == 1:
                    _join(group[0], first[0], second[0])

    def _answer(self, request: WriteRequest) -> None:
        self._pending -= request.weight
        future = request.future
        if future is None or future.done():  # its caller was cancelled
            return
        if request.error is None:
            future.set_result(None)
        else:
            future.set_exception(request.error)


def _settle(request: WriteRequest, error: Exception) -> None:
    """End a request of which nothing was written."""
    if isinstance(error, Held):
        request.held = range(request.weight)
    if isinstance(error, Held | Unfit | Denied) and isinstance(request, Batch):
        verdict = Verdict.REFUSED if isinstance(error, Unfit) else Verdict.UNAVAILABLE
        request.answer = [verdict] * len(request.items)
    elif isinstance(error, Unfit):
        request.error = TooLarge("The record is larger than the database can hold")
    elif isinstance(error, Denied):
        request.error = StoreUnavailable(str(error))
    elif not isinstance(error, Held):
        request.error = error


def _halves(group: list[WriteRequest]) -> tuple[list[WriteRequest], list[WriteRequest]]:
    if len(group) > 1:
        return group[: len(group) // 2], group[len(group) // 2 :]
    [whole] = group
    assert isinstance(whole, BatchRequest)  # it weighs more than 1
    half = whole.weight // 2
    return [part_of(whole, range(half))], [part_of(whole, range(half, whole.weight))]


def part_of(whole: BatchRequest, places: Sequence[int]) -> BatchRequest:
    """A request for some of the items."""
    kind: Any = type(whole)
    part: BatchRequest = kind([whole.items[place] for place in places])
    return part


def _join(whole: Any, first: Any, second: Any) -> None:
    """One half may be written and the other not: then what is wrong with that one is said of its items alone."""
    if first.error is not None and second.error is not None:
        whole.error = first.error
        return
    for half in (first, second):
        if isinstance(half.error, StoreUnavailable):
            half.answer = [Verdict.UNAVAILABLE] * len(half.items)
        elif half.error is not None:
            whole.error = half.error
            return
    whole.answer = [*first.answer, *second.answer]
    whole.held = [*first.held, *(len(first.items) + place for place in second.held)]
