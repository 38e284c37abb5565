"""Services in memory, for tests of the HTTP edge alone: they keep nothing but the last request."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from functools import partial

from msgspec import Raw, UnsetType

from mainspring.api.app import Api
from mainspring.api.tokens import token_digest
from mainspring.clock import SystemClock
from mainspring.cluster.messages import InstancesView, InstanceView, ShardsView, ShardView
from mainspring.config import Config
from mainspring.errors import Conflict, MainspringError, NotFound
from mainspring.fetches.messages import (
    CreateFetch,
    DeliveryView,
    FetchPage,
    FetchRef,
    FetchStats,
    FetchView,
    ListFetches,
    RedeliverFetches,
    RedeliveryView,
    StatsView,
)
from mainspring.idempotency.messages import KeyRef, KeysPage, KeyView, ListKeys, SettleKey
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import (
    BackfillJob,
    BackfillView,
    CreateJob,
    DeletedJobView,
    InstantView,
    JobPage,
    JobRef,
    JobView,
    ListJobs,
    ListRuns,
    PauseJob,
    PreviewJob,
    PreviewView,
    RerunJob,
    ResumeJob,
    RunsPage,
    RunView,
    TriggerJob,
    UpdateJob,
)
from mainspring.model import Delivery, RetryPolicy, State
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
from mainspring.processes import server
from mainspring.store import Store
from mainspring.stores.memory import MemoryStore
from mainspring.timers.messages import (
    BatchItem,
    BatchView,
    BulkTimers,
    BulkView,
    CreateTimer,
    CreateTimers,
    DeletedView,
    HistoryPage,
    ListHistory,
    ListTimers,
    TimerPage,
    TimerRef,
    TimerStats,
    TimerStatsView,
    TimerView,
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
        payload_json=Raw(b"null") if isinstance(payload, UnsetType) else payload,
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
        return BulkView(matched=1, changed=1, dry_run=request.dry_run)

    async def bulk_park(self, request: BulkTimers) -> BulkView:
        return await self.bulk_delete(request)

    async def bulk_resume(self, request: BulkTimers) -> BulkView:
        return await self.bulk_delete(request)

    async def stats(self, request: TimerStats) -> TimerStatsView:
        self._enter()
        return TimerStatsView(
            namespace=request.namespace,
            scheduled=1,
            running=0,
            retrying=0,
            parked=0,
            overdue=0,
            next_due_at=NOW,
            counts_are_minimum=False,
        )


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

    async def delete(self, request: DeleteNamespace) -> DeletionView:
        return DeletionView(
            name=request.name,
            dry_run=request.dry_run,
            deleted=not request.dry_run,
            closing_until=None,
            timers=0,
            parked=0 if request.dry_run else None,
            history=None if request.dry_run else 0,
            counts_are_minimum=False,
            shards_done=0 if request.dry_run else 16,
            shard_count=16,
        )

    async def reshard(self, request: ReshardNamespace) -> ReshardView:
        return ReshardView(name=request.name, shard_count=32, first_shard=16, active=True, since=None, earlier=())


def job_view(name: str) -> JobView:
    return JobView(
        name=name,
        state="scheduled",
        problem="",
        schedule="0 9 * * *",
        timezone="UTC",
        seconds=False,
        url="https://example.com/",
        route=None,
        method="POST",
        headers={},
        body_json=Raw(b"null"),
        timeout_seconds=10.0,
        retry_policy=None,
        overlap="skip",
        catchup="latest",
        catchup_window_seconds=3600.0,
        dst=Dst(),
        jitter_seconds=0.0,
        start_at=None,
        end_at=None,
        max_runs=None,
        labels={},
        note="",
        by="",
        generation=1,
        runs=0,
        last_run=None,
        next_at=NOW,
        created_at=NOW,
        updated_at=NOW,
    )


def run_view(name: str) -> RunView:
    return RunView(
        launch_id=f"{name}@1",
        name=name,
        kind="manual",
        state="planned",
        scheduled_at=NOW,
        scheduled_until=None,
        count=1,
        reason="",
        by="",
        planned_at=NOW,
        started_at=None,
        late_ms=None,
        finished_at=None,
        attempts=0,
        status=None,
        duration_ms=None,
        answer_head="",
        delivery_id="msg_1",
    )


class MemoryJobs:
    """Answers every request, and keeps the last of each kind."""

    def __init__(self) -> None:
        self.triggers = 0
        self.previewed: PreviewJob | None = None
        self.cut: BaseException | None = None
        """Raised by a trigger after it has counted, as if the process had died there."""

    async def create(self, request: CreateJob) -> JobView:
        return job_view(request.name)

    async def get(self, request: JobRef) -> JobView:
        return job_view(request.name)

    async def update(self, request: UpdateJob) -> JobView:
        return job_view(request.name)

    async def delete(self, request: JobRef) -> DeletedJobView:
        return DeletedJobView(job=job_view(request.name))

    async def list(self, request: ListJobs) -> JobPage:
        return JobPage(jobs=(job_view("a"),), next_cursor=None)

    async def pause(self, request: PauseJob) -> JobView:
        return job_view(request.name)

    async def resume(self, request: ResumeJob) -> JobView:
        return job_view(request.name)

    async def trigger(self, request: TriggerJob) -> RunView:
        self.triggers += 1
        if self.cut is not None:
            raise self.cut
        return run_view(request.name)

    async def preview(self, request: PreviewJob) -> PreviewView:
        self.previewed = request
        instant = InstantView(at=NOW, local=NOW.isoformat(), mark="")
        return PreviewView(schedule="0 9 * * *", timezone="UTC", instants=(instant,))

    async def runs(self, request: ListRuns) -> RunsPage:
        return RunsPage(runs=(run_view("a"),), next_cursor=None)

    async def backfill(self, request: BackfillJob) -> BackfillView:
        return BackfillView(name=request.name, instants=1, launched=1, first=NOW, last=NOW, dry_run=request.dry_run)

    async def rerun(self, request: RerunJob) -> RunView:
        return run_view(request.launch_id.partition("@")[0])


def fetch_view(req_id: str) -> FetchView:
    return FetchView(
        req_id=req_id,
        state="pending",
        method="GET",
        url="https://example.com/",
        timeout_seconds=30.0,
        result_url=None,
        executor="in-process",
        labels={},
        context_json=Raw(b"null"),
        created_at=NOW,
        started_at=None,
        watchdog_at=None,
        result=None,
        late_result=None,
        delivery=DeliveryView(state="none", attempts=0, last_status=None, detail="", delivered_at=None),
    )


class MemoryFetches:
    """Answers every request, and keeps the last create."""

    def __init__(self) -> None:
        self.created: CreateFetch | None = None

    async def create(self, request: CreateFetch) -> FetchView:
        self.created = request
        return fetch_view("req_1" if isinstance(request.req_id, UnsetType) else request.req_id)

    async def get(self, request: FetchRef) -> FetchView:
        return fetch_view(request.req_id)

    async def list(self, request: ListFetches) -> FetchPage:
        return FetchPage(fetches=(), next_cursor=None)

    async def cancel(self, request: FetchRef) -> FetchView:
        return fetch_view(request.req_id)

    async def redeliver(self, request: RedeliverFetches) -> RedeliveryView:
        return RedeliveryView(matched=0, changed=0, dry_run=request.dry_run)

    async def stats(self, request: FetchStats) -> StatsView:
        return StatsView(
            pending=0,
            running=0,
            succeeded=0,
            failed=0,
            unknown=0,
            cancelled=0,
            counts_are_minimum=False,
            p50_ms=None,
            p99_ms=None,
            executors=(),
        )


class MemoryKeys:
    """Every key is unknown until it is asked for."""

    async def list(self, request: ListKeys) -> KeysPage:
        return KeysPage(keys=(await self.get(KeyRef(scope="shop.charge", key="order-17")),))

    async def get(self, request: KeyRef) -> KeyView:
        return KeyView(scope=request.scope, key=request.key, state="unknown", attempt=1, started_at=NOW)

    async def settle(self, request: SettleKey) -> KeyView:
        return KeyView(scope=request.scope, key=request.key, state="done", attempt=1)

    async def forget(self, request: KeyRef) -> KeyView:
        return KeyView(scope=request.scope, key=request.key, state="free", attempt=1)


class Edge:
    """An `Api` over the services in memory, with switches for tests."""

    def __init__(self) -> None:
        self.timers = MemoryTimers()
        self.jobs = MemoryJobs()
        self.fetches = MemoryFetches()
        self.not_ready: MainspringError | None = None
        self.api = Api(
            timers=self.timers,
            jobs=self.jobs,
            fetches=self.fetches,
            keys=MemoryKeys(),
            namespaces=MemoryNamespaces(),
            delete_namespace=MemoryNamespaces().delete,
            reshard_namespace=MemoryNamespaces().reshard,
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


def keyed(edge: Edge, store: Store | None = None) -> Api:
    """The API as the server puts it together: with idempotency keys."""
    idempotent = partial(server.keyed, Config(), store or MemoryStore(SystemClock()))
    return dataclasses.replace(edge.api, idempotent=idempotent)
