"""Namespaces on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from mainspring.model import RetryPolicy
from mainspring.wire.message import Cursor, Message, NamespaceName, PageSize, View

ShardCount = Annotated[int, Meta(ge=1, le=4096)]


class CreateNamespace(Message, frozen=True, kw_only=True):
    """Create a namespace. The shard count cannot be changed later; choose 16, 256, 1024 or 4096 as a guide."""

    name: NamespaceName
    shard_count: ShardCount = 16
    retry_policy: RetryPolicy = RetryPolicy()
    secret: (
        Annotated[str, Meta(max_length=255, description="whsec_ and 24 to 64 bytes in base64; generated if absent.")]
        | UnsetType
    ) = UNSET
    host_limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    history_retention_days: Annotated[int, Meta(ge=1, le=90)] = 7


class UpdateNamespace(Message, frozen=True, kw_only=True):
    """Change a namespace; absent fields keep their value. After a new secret, requests are signed with both."""

    name: NamespaceName
    retry_policy: RetryPolicy | UnsetType = UNSET
    secret: (
        Annotated[str, Meta(max_length=255, description="The new secret; the two newest stay in use.")] | UnsetType
    ) = UNSET
    host_limit: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType | None = UNSET
    history_retention_days: Annotated[int, Meta(ge=1, le=90)] | UnsetType = UNSET


class NamespaceRef(Message, frozen=True, kw_only=True):
    """Names one namespace."""

    name: NamespaceName


class ListNamespaces(Message, frozen=True, kw_only=True):
    """A page of namespaces, in the order of their names."""

    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class NamespaceView(View, frozen=True, kw_only=True):
    """A namespace. `secret` is the newest signing secret."""

    name: str
    shard_count: int
    first_shard: int
    retry_policy: RetryPolicy
    secret: str
    host_limit: int | None
    history_retention_days: int
    created_at: datetime
    updated_at: datetime


class NamespacePage(View, frozen=True, kw_only=True):
    """A page of namespaces; `nextCursor` is null on the last one."""

    namespaces: tuple[NamespaceView, ...]
    next_cursor: str | None
