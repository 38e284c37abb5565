"""Instances and shards on the wire."""

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
    """A live instance. `address` is where the others reach it; empty if they cannot."""

    instance: str
    address: str
    started_at: datetime
    lease_expires_at: datetime
    owned_shards: int
    this: bool
    """Whether it is the one that answered."""


class InstancesView(View, frozen=True, kw_only=True):
    """All live instances, and the one that answered."""

    instance: str
    instances: tuple[InstanceView, ...]
