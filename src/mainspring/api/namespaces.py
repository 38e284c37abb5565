"""The namespace routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from mainspring.api.routes import Route, always, operation
from mainspring.namespaces.messages import (
    CreateNamespace,
    DeleteNamespace,
    DeletionView,
    ListNamespaces,
    NamespacePage,
    NamespaceRef,
    NamespaceView,
    ReshardNamespace,
    ReshardView,
    UpdateNamespace,
)

DeleteStep = Callable[[DeleteNamespace], Awaitable[DeletionView]]
ReshardStep = Callable[[ReshardNamespace], Awaitable[ReshardView]]


class Namespaces(Protocol):
    """What the namespace service does."""

    async def create(self, request: CreateNamespace, /) -> NamespaceView: ...
    async def get(self, request: NamespaceRef, /) -> NamespaceView: ...
    async def list(self, request: ListNamespaces, /) -> NamespacePage: ...
    async def update(self, request: UpdateNamespace, /) -> NamespaceView: ...


def namespace_routes(namespaces: Namespaces, *, delete: DeleteStep, reshard: ReshardStep) -> tuple[Route, ...]:
    return (
        operation(
            "/v1/namespaces/create",
            "Create a namespace",
            namespaces.create,
            example=CreateNamespace(name="billing", shard_count=256),
            answer=NamespaceView,
            takes_key=True,
        ),
        operation(
            "/v1/namespaces/get",
            "Read a namespace",
            namespaces.get,
            example=NamespaceRef(name="billing"),
            answer=NamespaceView,
        ),
        operation(
            "/v1/namespaces/list",
            "List namespaces by name",
            namespaces.list,
            example=ListNamespaces(limit=50),
            answer=NamespacePage,
            can_be_remade=always,
        ),
        operation(
            "/v1/namespaces/update",
            "Change a namespace",
            namespaces.update,
            example=UpdateNamespace(name="billing", history_retention_days=30),
            answer=NamespaceView,
        ),
        operation(
            "/v1/namespaces/delete",
            "Delete a namespace, step by step",
            delete,
            example=DeleteNamespace(name="billing", dry_run=True),
            answer=DeletionView,
        ),
        operation(
            "/v1/namespaces/reshard",
            "Give a namespace more shards",
            reshard,
            example=ReshardNamespace(name="billing", shard_count=1024),
            answer=ReshardView,
        ),
    )
