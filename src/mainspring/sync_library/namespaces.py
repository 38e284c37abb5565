# Generated from namespaces/program.py by tools/generate_sync.py; change that one.
"""`Namespaces` of `mainspring.namespaces.program`, for code that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import UNSET, UnsetType

from mainspring.model import RetryPolicy
from mainspring.namespaces.messages import DeletionView, NamespacePage, NamespaceView, ReshardView
from mainspring.sync_library.engine_thread import EngineThread


class SyncNamespaces:
    """`ms.namespaces`."""

    def __init__(self, engine: Callable[[], EngineThread]) -> None:
        self._engine = engine

    def create(
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
        return self._engine().run(
            lambda ms: ms.namespaces.create(
                name,
                shard_count=shard_count,
                retry_policy=retry_policy,
                secret=secret,
                host_limit=host_limit,
                history_retention_days=history_retention_days,
            )
        )

    def get(self, name: str) -> NamespaceView:
        """The namespace; NotFound if it does not exist."""
        return self._engine().run(lambda ms: ms.namespaces.get(name))

    def list(self, *, limit: int = 100, cursor: str | None = None) -> NamespacePage:
        """One page of namespaces, in the order of their names."""
        return self._engine().run(lambda ms: ms.namespaces.list(limit=limit, cursor=cursor))

    def iterate(self, *, page_size: int = 100) -> Iterator[NamespaceView]:
        """All namespaces, page by page."""
        return self._engine().iterate(lambda ms: ms.namespaces.iterate(page_size=page_size))

    def update(
        self,
        name: str,
        *,
        retry_policy: RetryPolicy | UnsetType = UNSET,
        secret: str | UnsetType = UNSET,
        host_limit: int | UnsetType | None = UNSET,
        history_retention_days: int | UnsetType = UNSET,
    ) -> NamespaceView:
        """Change what is given and keep the rest."""
        return self._engine().run(
            lambda ms: ms.namespaces.update(
                name,
                retry_policy=retry_policy,
                secret=secret,
                host_limit=host_limit,
                history_retention_days=history_retention_days,
            )
        )

    def delete(
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
        return self._engine().run(
            lambda ms: ms.namespaces.delete(name, force=force, dry_run=dry_run, cancel=cancel, progress=progress)
        )

    def reshard(
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
        return self._engine().run(
            lambda ms: ms.namespaces.reshard(name, shard_count=shard_count, dry_run=dry_run, progress=progress)
        )
