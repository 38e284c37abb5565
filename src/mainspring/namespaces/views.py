"""Namespaces as users see them."""

from __future__ import annotations

from mainspring.model import Namespace
from mainspring.namespaces.messages import EarlierShards, NamespaceView
from mainspring.wire.instants import to_instant


def namespace_view(namespace: Namespace) -> NamespaceView:
    return NamespaceView(
        name=namespace.name,
        shard_count=namespace.shard_count,
        first_shard=namespace.first_shard,
        retry_policy=namespace.retry_policy,
        secret=namespace.secrets[0],
        host_limit=namespace.host_limit,
        history_retention_days=namespace.history_retention_days,
        created_at=to_instant(namespace.created_at),
        updated_at=to_instant(namespace.updated_at),
        deleting=namespace.deletion is not None,
        since=None if namespace.since is None else to_instant(namespace.since),
        earlier=tuple(
            EarlierShards(first_shard=one.first_shard, shard_count=one.shard_count) for one in namespace.earlier
        ),
    )
