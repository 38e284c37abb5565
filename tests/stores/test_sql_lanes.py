"""How requests to a SQL server are put together into groups."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from mainspring.store import Put
from mainspring.stores.grouping import GROUP_BYTES
from mainspring.stores.plan import Write
from mainspring.stores.sql.lanes import Lane, WriteRequest
from mainspring.testing.timer_samples import timer


async def test_what_is_written_at_once_is_bounded_in_bytes() -> None:
    groups: list[int] = []

    async def work(group: list[WriteRequest], _apart: bool) -> None:
        groups.append(len(group))
        await asyncio.sleep(0)

    lane = Lane(work, width=1)
    large = [Put(replace(timer("large"), payload="x" * (GROUP_BYTES // 2)), 0)]
    await asyncio.gather(*(lane.wait_for(Write(large)) for _ in range(9)))
    await lane.close()
    assert sum(groups) == 9
    assert max(groups) == 2
