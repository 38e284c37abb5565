"""What is said about instances and shards over the wire."""

from __future__ import annotations

from datetime import datetime

from mainspring.wire.message import View


class ShardView(View, frozen=True, kw_only=True):
    """Who owns a shard."""

    shard_id: int
    namespace: str
    version: int
    owner: str


class ShardsView(View, frozen=True, kw_only=True):
    """All shards, and the instance that answered."""

    instance: str
    shards: tuple[ShardView, ...]


class InstanceView(View, frozen=True, kw_only=True):
    """An instance that is alive. `address` is where the others reach it; empty: they do not."""

    instance: str
    address: str
    started_at: datetime
    lease_expires_at: datetime
    owned_shards: int
    this: bool
    """Whether it is the one that answered."""


class InstancesView(View, frozen=True, kw_only=True):
    """All instances that are alive, and the one that answered."""

    instance: str
    instances: tuple[InstanceView, ...]
