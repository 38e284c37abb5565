"""The namespace routes."""

from __future__ import annotations

from typing import Protocol

from mainspring.api.routes import Route, always, operation
from mainspring.namespaces.messages import (
    CreateNamespace,
    ListNamespaces,
    NamespacePage,
    NamespaceRef,
    NamespaceView,
    UpdateNamespace,
)


class Namespaces(Protocol):
    """What the namespace service does."""

    async def create(self, request: CreateNamespace, /) -> NamespaceView: ...
    async def get(self, request: NamespaceRef, /) -> NamespaceView: ...
    async def list(self, request: ListNamespaces, /) -> NamespacePage: ...
    async def update(self, request: UpdateNamespace, /) -> NamespaceView: ...


def namespace_routes(namespaces: Namespaces) -> tuple[Route, ...]:
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
    )
