"""How the tests ask for fetches and wait for what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mainspring.cluster.instance import Instance
from mainspring.cluster.messages import ShardsView
from mainspring.fetches.messages import (
    CreateFetch,
    FetchRef,
    FetchStats,
    FetchView,
    Method,
    OutboundRequest,
    StatsView,
)
from mainspring.fetches.record import NAMESPACE
from mainspring.fetches.service import FetchService

T = TypeVar("T")


def asking(url: str, method: Method = "GET", *, request: dict[str, Any] | None = None, **fields: Any) -> CreateFetch:
    return CreateFetch(request=OutboundRequest(url=url, method=method, **(request or {})), **fields)


async def ended(fetches: FetchService, req_id: str, *, seconds: float = 10.0) -> FetchView:
    """The fetch once it has ended."""
    view = await fetches.wait(req_id, seconds)
    assert view.result is not None, f"Expected {req_id} to end within {seconds} s, got {view.state}"
    return view


async def until(
    fetches: FetchService, req_id: str, is_so: Callable[[FetchView], bool], *, seconds: float = 10.0
) -> FetchView:
    """The fetch once a condition holds."""
    return await _until(lambda: fetches.get(FetchRef(req_id=req_id)), is_so, seconds)


async def until_stats(fetches: FetchService, is_so: Callable[[StatsView], bool], *, seconds: float = 10.0) -> StatsView:
    """The counts once a condition holds: rows follow their records, but not in the same instant."""
    return await _until(lambda: fetches.stats(FetchStats()), is_so, seconds)


async def until_members(instance: Instance, count: int, *, seconds: float = 10.0) -> None:
    """So many instances share the shards of fetches, and each has some."""

    def shared(view: ShardsView) -> bool:
        owners = [shard.owner for shard in view.shards if shard.namespace == NAMESPACE]
        return "" not in owners and len(set(owners)) == count

    await _until(instance.shards, shared, seconds)


async def _until(look: Callable[[], Awaitable[T]], is_so: Callable[[T], bool], seconds: float) -> T:
    deadline = time.monotonic() + seconds
    while True:
        found = await look()
        if is_so(found):
            return found
        assert time.monotonic() < deadline, f"Expected something else within {seconds} s, got {found}"
        await asyncio.sleep(0.01)
