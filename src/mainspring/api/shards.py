"""The shard route: who owns what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mainspring.api.routes import Route, always, operation
from mainspring.cluster.messages import ShardsView
from mainspring.wire.message import Message


class ListShards(Message, frozen=True, kw_only=True):
    """All shards with their owners."""


def shard_routes(shards: Callable[[], Awaitable[ShardsView]]) -> tuple[Route, ...]:
    async def list_shards(_: ListShards) -> ShardsView:
        return await shards()

    return (
        operation(
            "/v1/shards/list",
            "List shards and their owners",
            list_shards,
            example=ListShards(),
            answer=ShardsView,
            can_be_remade=always,
        ),
    )
