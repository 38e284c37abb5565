"""The namespaces of a program that has an engine of its own: `ms.namespaces`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

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
from mainspring.namespaces.service import NamespaceService
from mainspring.wire.arguments import given, request
from mainspring.wire.cursors import through_pages


class Namespaces:
    """The namespaces of this program: what `AsyncClient.namespaces` has."""

    def __init__(
        self,
        service: NamespaceService,
        *,
        delete: Callable[[DeleteNamespace], Awaitable[DeletionView]],
        reshard: Callable[[ReshardNamespace], Awaitable[ReshardView]],
    ) -> None:
        """`delete` and `reshard` do one step each."""
        self._service = service
        self._delete = delete
        self._reshard = reshard

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
        """Create a namespace; Conflict if it exists."""
        said = {
            "name": name,
            "shard_count": shard_count,
            "retry_policy": given(retry_policy),
            "secret": given(secret),
            "host_limit": host_limit,
            "history_retention_days": history_retention_days,
        }
        return await self._service.create(request(CreateNamespace, said))

    async def get(self, name: str) -> NamespaceView:
        """The namespace; NotFound if it does not exist."""
        return await self._service.get(request(NamespaceRef, {"name": name}))

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> NamespacePage:
        """One page of namespaces, in the order of their names."""
        return await self._service.list(request(ListNamespaces, {"limit": limit, "cursor": given(cursor)}))

    def iterate(self, *, page_size: int = 100) -> AsyncIterator[NamespaceView]:
        """All namespaces, page by page."""
        asked = request(ListNamespaces, {"limit": page_size})
        return through_pages(lambda at: self._service.list(replace(asked, cursor=at)), lambda page: page.namespaces)

    async def update(
        self,
        name: str,
        *,
        retry_policy: RetryPolicy | UnsetType = UNSET,
        secret: str | UnsetType = UNSET,
        host_limit: int | UnsetType | None = UNSET,
        history_retention_days: int | UnsetType = UNSET,
    ) -> NamespaceView:
        """Change what is given and keep the rest."""
        said = {
            "name": name,
            "retry_policy": retry_policy,
            "secret": secret,
            "host_limit": host_limit,
            "history_retention_days": history_retention_days,
        }
        return await self._service.update(request(UpdateNamespace, said))

    async def delete(
        self,
        name: str,
        *,
        force: bool = False,
        dry_run: bool = False,
        cancel: bool = False,
        progress: Callable[[DeletionView], object] | None = None,
    ) -> DeletionView:
        """Delete a namespace, with its timers if that is forced; in a dry run, say what there is to delete.

        Takes at least ten seconds: until then, programs that have not noticed may still add timers. `progress` is
        called every few seconds. Whoever is interrupted calls it again, or calls it off with `cancel`, if nothing has
        been deleted yet.
        """
        meant = (await self.get(name)).created_at
        said = {"name": name, "force": force, "dry_run": dry_run, "cancel": cancel, "created_at": meant}
        asked = request(DeleteNamespace, said)
        view = gone(name)
        while True:
            try:
                view = await self._delete(asked)  # takes a few seconds, unless that was all
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

        Takes about ten seconds; `progress` is called every few seconds. May be called again. A dry run changes nothing:
        it raises what stands in the way, or says what there is.
        """
        said = {"name": name, "shard_count": given(shard_count), "dry_run": dry_run}
        asked = request(ReshardNamespace, said)
        while True:
            view = await self._reshard(asked)
            if view.active or dry_run:
                return view
            if progress is not None:
                progress(view)
