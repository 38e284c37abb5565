"""The namespaces of a server. The docstring of a method says what happens when it is sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import UNSET, UnsetType

from mainspring.client._async.connection import AsyncConnection
from mainspring.client.reply import Repeat
from mainspring.model import RetryPolicy
from mainspring.namespaces.messages import (
    CreateNamespace,
    ListNamespaces,
    NamespacePage,
    NamespaceRef,
    NamespaceView,
    UpdateNamespace,
)
from mainspring.wire.arguments import given, request


class AsyncNamespaces:
    """`client.namespaces`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self,
        name: str,
        *,
        shard_count: int = 16,
        retry_policy: RetryPolicy | None = None,
        secret: str | None = None,
        host_limit: int | None = None,
        history_retention_days: int = 7,
    ) -> NamespaceView:
        """Create a namespace; Conflict if it exists. Not repeated when its outcome is unknown: it would conflict."""
        said = {
            "name": name,
            "shard_count": shard_count,
            "retry_policy": given(retry_policy),
            "secret": given(secret),
            "host_limit": host_limit,
            "history_retention_days": history_retention_days,
        }
        asked = request(CreateNamespace, said)
        return await self._connection.post("/v1/namespaces/create", asked, NamespaceView, repeat=Repeat.IF_UNDONE)

    async def get(self, name: str) -> NamespaceView:
        """The namespace. A read, so it is repeated."""
        asked = request(NamespaceRef, {"name": name})
        return await self._connection.post("/v1/namespaces/get", asked, NamespaceView, repeat=Repeat.READ)

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> NamespacePage:
        """One page of namespaces, in the order of their names. A read, so it is repeated."""
        asked = request(ListNamespaces, {"limit": limit, "cursor": given(cursor)})
        return await self._connection.post("/v1/namespaces/list", asked, NamespacePage, repeat=Repeat.READ)

    async def iterate(self) -> AsyncIterator[NamespaceView]:
        """All namespaces, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(cursor=cursor)
            for namespace in page.namespaces:
                yield namespace
            cursor = page.next_cursor
            if cursor is None:
                return

    async def update(
        self,
        name: str,
        *,
        retry_policy: RetryPolicy | UnsetType = UNSET,
        secret: str | UnsetType = UNSET,
        host_limit: int | UnsetType | None = UNSET,
        history_retention_days: int | UnsetType = UNSET,
    ) -> NamespaceView:
        """Change what is given and keep the rest.

        Repeated when its outcome is unknown, unless it brings a new secret: a second rotation would push out
        the secret that receivers still know.
        """
        said = {
            "name": name,
            "retry_policy": retry_policy,
            "secret": secret,
            "host_limit": host_limit,
            "history_retention_days": history_retention_days,
        }
        asked = request(UpdateNamespace, said)
        repeat = Repeat.HARMLESS if secret is UNSET else Repeat.IF_UNDONE
        return await self._connection.post("/v1/namespaces/update", asked, NamespaceView, repeat=repeat)
