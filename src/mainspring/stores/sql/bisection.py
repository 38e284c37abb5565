"""A group that fails because of one of its items is halved, and halved again, until that item is alone with its verdict
and all others are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.store import Verdict
from mainspring.stores.committer import fail
from mainspring.stores.plan import (
    Batch,
    BeginAttempts,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    ReleaseShards,
    Write,
)
from mainspring.stores.sql.dialect import Denied, Held, Unfit

BatchRequest = Write | BeginAttempts | FinishAttempts | ClaimShards | ReleaseShards
WriteRequest = BatchRequest | PutRecord | DeleteRecord
Work = Callable[[list[WriteRequest], bool], Awaitable[None]]
"""Works on a group, which may be `apart`: a part of one that failed."""

HALVING_SECONDS: Final = 1.0
"""How long held rows are searched for. What has not been tried by then counts as held, and may be tried again."""


async def work_in_halves(
    work: Work, group: list[WriteRequest], *, apart: bool = False, until: float | None = None
) -> None:
    """`until` is when halving ends."""
    try:
        await work(group, apart)
    except StoreUnavailable as error:
        fail(group, error)
    except Exception as error:  # noqa: BLE001  (the verdict of one item, or a defect, for its caller)
        now = asyncio.get_running_loop().time()
        until = until or now + HALVING_SECONDS
        if sum(request.weight for request in group) <= 1:
            _end(group[0], error)
        elif isinstance(error, Held) and now > until:
            for request in group:
                _end(request, error)
        else:  # nothing was written, and the neighbours of that one shall not suffer
            first, second = _halves(group)
            await work_in_halves(work, first, apart=True, until=until)
            await work_in_halves(work, second, apart=True, until=until)
            if len(group) == 1:
                _join(group[0], first[0], second[0])


def _end(request: WriteRequest, error: Exception) -> None:
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
    """One half may be written and the other not: then only the items of that half get its error."""
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
