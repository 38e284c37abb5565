"""Namespaces on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from mainspring.model import RetryPolicy
from mainspring.wire.instants import Instant
from mainspring.wire.message import Cursor, Message, NamespaceName, PageSize, View

ShardCount = Annotated[int, Meta(ge=1, le=4096)]


class CreateNamespace(Message, frozen=True, kw_only=True):
    """Create a namespace. Choose 16, 256, 1024 or 4096 shards as a guide; more can be added later."""

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


class DeleteNamespace(Message, frozen=True, kw_only=True):
    """Delete a namespace, step by step: repeat the request until the answer says `deleted`."""

    name: NamespaceName
    force: Annotated[bool, Meta(description="Delete its timers with it. Otherwise one that has timers is kept.")] = (
        False
    )
    dry_run: Annotated[bool, Meta(description="Only say what there is to delete.")] = False
    cancel: Annotated[
        bool,
        Meta(
            description="Keep the namespace: call its deletion off, which is possible until the first timer or attempt "
            "is deleted."
        ),
    ] = False
    created_at: Annotated[
        Instant | UnsetType,
        Meta(description="Its createdAt. One of the same name that was created later is then left alone: not_found."),
    ] = UNSET


class ReshardNamespace(Message, frozen=True, kw_only=True):
    """Give a namespace more shards, or see how far that is: repeat the request until the answer says `active`."""

    name: NamespaceName
    shard_count: (
        Annotated[ShardCount, Meta(description="How many new timers are spread over. Absent: as many as now.")]
        | UnsetType
    ) = UNSET
    dry_run: Annotated[
        bool, Meta(description="Change nothing: check whether it can be done, and say what there is now.")
    ] = False


class ListNamespaces(Message, frozen=True, kw_only=True):
    """A page of namespaces, in the order of their names."""

    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class EarlierShards(View, frozen=True, kw_only=True):
    """Shards that a namespace had before it got more."""

    first_shard: int
    shard_count: int


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
    deleting: bool = False
    """Whether its deletion has begun: it takes no timers, and none of them is called. Repeat the deletion until it is
    gone."""
    since: datetime | None = None
    """If there are earlier shards: when new timers began to go to these, or will. Null while that is not decided:
    repeat the reshard."""
    earlier: tuple[EarlierShards, ...] = ()
    """Those to which new timers no longer go, newest first. The reshard tells what is left in them."""


class DeletionView(View, frozen=True, kw_only=True):
    """How far the deletion of a namespace has come; in a dry run, what there is to delete.

    Jobs and fetches belong to no namespace and stay.
    """

    name: str
    dry_run: bool
    deleted: bool
    """Whether it is gone. If not, and it is no dry run, repeat the request."""
    closing_until: datetime | None
    """Set: nothing is deleted yet, because until then somebody may still add a timer. So it can be cancelled."""
    timers: int
    """Those deleted so far; in a dry run, those there are."""
    parked: int | None
    """How many of them are parked, in a dry run."""
    history: int | None
    """The attempts deleted so far; null in a dry run, because they are not counted beforehand."""
    counts_are_minimum: bool
    """Whether there may be more timers than were counted, in a dry run."""
    shards_done: int
    shard_count: int
    cancelled: bool = False
    """Whether it is kept, because that was asked for: it takes timers and calls them, as before."""


def gone(name: str) -> DeletionView:
    """What is said of a namespace of which nobody knows what it had, but that it is deleted."""
    return DeletionView(
        name=name,
        dry_run=False,
        deleted=True,
        closing_until=None,
        timers=0,
        parked=None,
        history=0,
        counts_are_minimum=True,
        shards_done=0,
        shard_count=0,
    )


class RangeView(View, frozen=True, kw_only=True):
    """Shards to which new timers no longer go."""

    first_shard: int
    shard_count: int
    timers: int
    """Those that are still there. They stay until they end or are deleted."""
    counts_are_minimum: bool
    """Whether there may be more timers than were counted."""
    kept_until: datetime | None
    """For a range without timers: when its history is over, and the next request removes it."""


class ReshardView(View, frozen=True, kw_only=True):
    """The shards of a namespace."""

    name: str
    shard_count: int
    first_shard: int
    active: bool
    """Whether new timers go to these shards. If not, repeat the request."""
    since: datetime | None
    """When they began to, or will, if there are earlier shards."""
    earlier: tuple[RangeView, ...]
    """Newest first."""
    dry_run: bool = False


class NamespacePage(View, frozen=True, kw_only=True):
    """A page of namespaces; `nextCursor` is null on the last one."""

    namespaces: tuple[NamespaceView, ...]
    next_cursor: str | None
