"""What the steps of `deletion` and `reshard` share. Each takes a few seconds and leaves a record that says where the
next one goes on, so that they can be killed anywhere and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from mainspring.clock import Clock
from mainspring.namespaces.service import Changed
from mainspring.store import TimerStore

STEP_SECONDS: Final = 2.0
STEP_TRIES: Final = 5
PAGE: Final = 500
DAY_MS: Final = 86_400_000

T = TypeVar("T")


async def undisturbed(step: Callable[[], Awaitable[T]]) -> T:
    """Try again what somebody else has got in the way of, who may well have done the same."""
    for _ in range(STEP_TRIES - 1):
        with suppress(Changed):
            return await step()
    return await step()


def deadline_of_step(clock: Clock) -> float:
    return clock.monotonic() + STEP_SECONDS


async def is_reached(instant: int, *, clock: Clock, deadline: float) -> bool:
    """Whether an instant has come; waits for it, until the deadline."""
    wait = min((instant - clock.now_ms()) / 1000, deadline - clock.monotonic())
    if wait > 0:
        await asyncio.sleep(wait)
    return clock.now_ms() >= instant


async def forget_history(
    store: TimerStore, shard_ids: Iterable[int], *, clock: Clock, deadline: float
) -> tuple[int, bool]:
    """Remove all history of these shards: how many attempts, and whether there was time for all of them."""
    removed = 0
    older_than = clock.now_ms() + DAY_MS
    for shard_id in shard_ids:
        while some := await store.prune_history(shard_id, older_than=older_than, limit=PAGE):
            removed += some
            if clock.monotonic() >= deadline:
                return removed, False
    return removed, True
