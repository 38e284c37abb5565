"""Many callers of one key at a time share what one of them brings, but nobody is told what was so before he came."""

from __future__ import annotations

import asyncio
from itertools import count

from mainspring.idempotency import AsyncIdempotentProcessor, InMemoryStore
from mainspring.idempotency.entries import Entry
from mainspring.model import Record


class Slow(InMemoryStore):
    """Each look takes a while, so callers of one key meet; nothing is at hand before."""

    async def look(self, address: str, *, now: int) -> Record | None:
        found = await super().look(address, now=now)
        await asyncio.sleep(0.02)
        return found

    def peek(self, address: str) -> Entry | None:
        return None


async def test_who_asks_after_a_key_was_forgotten_is_not_told_what_somebody_found_before() -> None:
    runs = count()

    async def work(_: int) -> int:
        return next(runs)

    processor = AsyncIdempotentProcessor(Slow(), work, scope="forgotten")
    assert (await processor.process(1, key="k")).result == 0
    forgetting = asyncio.create_task(processor.forget("k"))
    await asyncio.sleep(0.01)
    early = asyncio.create_task(processor.process(1, key="k"))
    assert await forgetting
    assert not early.done()
    late = await processor.process(1, key="k")
    assert ((await early).result, late.result) == (0, 1)


async def test_a_crowd_shares_one_look_with_those_who_came_before_it() -> None:
    looks = count()

    class Counted(Slow):
        async def look(self, address: str, *, now: int) -> Record | None:
            next(looks)
            return await super().look(address, now=now)

    async def work(_: int) -> int:
        return 7

    processor = AsyncIdempotentProcessor(Counted(), work, scope="crowd")
    await processor.process(1, key="k")
    before = next(looks)
    async with asyncio.TaskGroup() as asking:
        for _ in range(200):
            asking.create_task(processor.process(1, key="k"))
    assert next(looks) - before <= 3
