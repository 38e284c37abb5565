"""Services in memory, for tests of the HTTP edge alone: they keep nothing but the last request."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Raw, UnsetType

from mainspring.api.app import Api, token_digest
from mainspring.errors import Conflict, MainspringError, NotFound
from mainspring.model import Delivery, RetryPolicy, State
from mainspring.timers.messages import (
    BatchItem,
    BatchView,
    BulkTimers,
    BulkView,
    CreateNamespace,
    CreateTimer,
    CreateTimers,
    DeletedView,
    HistoryPage,
    InstancesView,
    InstanceView,
    ListHistory,
    ListNamespaces,
    ListTimers,
    NamespacePage,
    NamespaceRef,
    NamespaceView,
    ShardsView,
    ShardView,
    TimerPage,
    TimerRef,
    TimerView,
    UpdateNamespace,
    UpdateTimer,
)

TOKEN = "correct-horse-battery-staple"
NOW = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)


def timer_view(timer_id: str, payload: Raw | UnsetType = Raw(b"null")) -> TimerView:  # noqa: B008
    return TimerView(
        namespace="default",
        timer_id=timer_id,
        execute_at=NOW,
        callback_url="https://example.com/",
        payload=Raw(b"null") if isinstance(payload, UnsetType) else payload,
        headers={},
        retry_policy=None,
        callback_timeout_seconds=30.0,
        delivery=Delivery.AT_LEAST_ONCE,
        labels={},
        state=State.SCHEDULED,
        next_attempt_at=NOW,
        attempts=0,
        generation=1,
        delivery_id="msg_1",
        created_at=NOW,
        updated_at=NOW,
        last_outcome=None,
    )


class MemoryTimers:
    """Answers every request; raises `failure` instead when a test has set it."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.calls = 0
        self.created: CreateTimer | None = None

    def _enter(self) -> None:
        self.calls += 1
        if self.failure is not None:
            raise self.failure

    async def create(self, request: CreateTimer) -> TimerView:
        self._enter()
        self.created = request
        return timer_view(request.timer_id, request.payload)

    async def create_batch(self, request: CreateTimers) -> BatchView:
        self._enter()
        results = tuple(BatchItem(timer=timer_view(str(index))) for index in range(len(request.timers)))
        return BatchView(created=len(results), failed=0, results=results)

    async def get(self, request: TimerRef) -> TimerView:
        self._enter()
        if request.timer_id == "absent":
            raise NotFound(f"Expected a timer, got none with the id {request.timer_id}")
        return timer_view(request.timer_id)

    async def update(self, request: UpdateTimer) -> TimerView:
        self._enter()
        if request.if_generation == 7:
            raise Conflict("Expected generation 7, got 8")
        return timer_view(request.timer_id)

    async def delete(self, request: TimerRef) -> DeletedView:
        self._enter()
        return DeletedView(timer=timer_view(request.timer_id))

    async def list(self, request: ListTimers) -> TimerPage:
        self._enter()
        return TimerPage(timers=(timer_view("a"),), next_cursor=None)

    async def run_now(self, request: TimerRef) -> TimerView:
        return await self.get(request)

    async def park(self, request: TimerRef) -> TimerView:
        return await self.get(request)

    async def resume(self, request: TimerRef) -> TimerView:
        return await self.get(request)

    async def history(self, request: ListHistory) -> HistoryPage:
        self._enter()
        return HistoryPage(attempts=(), next_cursor=None)

    async def bulk_delete(self, request: BulkTimers) -> BulkView:
        self._enter()
        return BulkView(matched=1, changed=0 if request.dry_run else 1, dry_run=request.dry_run)

    async def bulk_park(self, request: BulkTimers) -> BulkView:
        return await self.bulk_delete(request)

    async def bulk_resume(self, request: BulkTimers) -> BulkView:
        return await self.bulk_delete(request)


def namespace_view(name: str) -> NamespaceView:
    return NamespaceView(
        name=name,
        shard_count=16,
        first_shard=0,
        retry_policy=RetryPolicy(),
        secret="whsec_x",
        host_limit=None,
        history_retention_days=7,
        created_at=NOW,
        updated_at=NOW,
    )


class MemoryNamespaces:
    async def create(self, request: CreateNamespace) -> NamespaceView:
        return namespace_view(request.name)

    async def get(self, request: NamespaceRef) -> NamespaceView:
        return namespace_view(request.name)

    async def list(self, request: ListNamespaces) -> NamespacePage:
        return NamespacePage(namespaces=(namespace_view("default"),), next_cursor=None)

    async def update(self, request: UpdateNamespace) -> NamespaceView:
        return namespace_view(request.name)


class Edge:
    """An `Api` over the services in memory, with switches for tests."""

    def __init__(self) -> None:
        self.timers = MemoryTimers()
        self.not_ready: MainspringError | None = None
        self.api = Api(
            timers=self.timers,
            namespaces=MemoryNamespaces(),
            shards=self._shards,
            instances=self._instances,
            ready=self._ready,
            metrics=lambda: "mainspring_up 1\n",
            token_digests=(token_digest("an-older-token"), token_digest(TOKEN)),
            instance="i-1",
            version="0.0.0",
        )

    async def _shards(self) -> ShardsView:
        return ShardsView(instance="i-1", shards=(ShardView(shard_id=0, namespace="default", version=1, owner="i-1"),))

    async def _instances(self) -> InstancesView:
        one = InstanceView(instance="i-1", address="", started_at=NOW, lease_expires_at=NOW, owned_shards=1, this=True)
        return InstancesView(instance="i-1", instances=(one,))

    async def _ready(self) -> None:
        if self.not_ready is not None:
            raise self.not_ready
