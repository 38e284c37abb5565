"""The namespaces of a server. The docstring of a method says what happens when it is sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mainspring.client._async.connection import AsyncConnection
from mainspring.client.reply import Repeat
from mainspring.errors import NotFound
from mainspring.model import RetryPolicy
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
    gone,
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

    async def iterate(self, *, page_size: int = 100) -> AsyncIterator[NamespaceView]:
        """All namespaces, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=page_size, cursor=cursor)
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

    async def delete(
        self,
        name: str,
        *,
        force: bool = False,
        dry_run: bool = False,
        cancel: bool = False,
        progress: Callable[[DeletionView], object] | None = None,
    ) -> DeletionView:
        """Delete a namespace, with its timers if that is forced; Conflict if it has timers otherwise.

        Takes at least ten seconds; `progress` is called every few seconds. Repeated when its outcome is unknown, and
        may be called again. One that is created under this name meanwhile is left alone. `cancel` calls a deletion off
        that was interrupted before anything was deleted; Conflict if it is too late for that.
        """
        meant = (await self.get(name)).created_at
        said = {"name": name, "force": force, "dry_run": dry_run, "cancel": cancel, "created_at": meant}
        asked = request(DeleteNamespace, said)
        view = gone(name)
        while True:
            try:
                view = await self._connection.post("/v1/namespaces/delete", asked, DeletionView, repeat=Repeat.HARMLESS)
            except NotFound:
                return replace(view, deleted=True)  # by a step whose answer was lost, or by somebody else
            if dry_run or view.deleted or view.cancelled:
                return view
            if progress is not None:
                progress(view)

    async def reshard(
        self,
        name: str,
        *,
        shard_count: int | None = None,
        dry_run: bool = False,
        progress: Callable[[ReshardView], object] | None = None,
    ) -> ReshardView:
        """Give a namespace more shards, or see what is left in the earlier ones. Returns when new timers go to them.

        Takes about ten seconds; `progress` is called every few seconds. Repeated when its outcome is unknown, and
        may be called again. A dry run changes nothing: it raises what stands in the way, or says what there is now.
        """
        said = {"name": name, "shard_count": given(shard_count), "dry_run": dry_run}
        asked = request(ReshardNamespace, said)
        while True:
            view = await self._connection.post("/v1/namespaces/reshard", asked, ReshardView, repeat=Repeat.HARMLESS)
            if view.active or dry_run:
                return view
            if progress is not None:
                progress(view)
