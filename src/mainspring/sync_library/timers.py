# Generated from timers/program.py by tools/generate_sync.py; change that one.
"""`Timers` of `mainspring.timers.program`, for code that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Unpack

from msgspec import UNSET, UnsetType

from mainspring.model import Delivery, RetryPolicy
from mainspring.sync_library.engine_thread import EngineThread
from mainspring.timers.arguments import HistoryWhere, TimerChanges, Where
from mainspring.timers.messages import (
    AttemptView,
    BatchView,
    BulkView,
    CreateTimer,
    DeletedView,
    HistoryPage,
    TimerPage,
    TimerStatsView,
    TimerView,
)


class SyncTimers:
    """`ms.timers`."""

    def __init__(self, engine: Callable[[], EngineThread]) -> None:
        self._engine = engine

    def create(
        self,
        timer_id: str,
        *,
        handler: str | None = None,
        callback_url: str | None = None,
        execute_at: datetime | None = None,
        delay_seconds: float | None = None,
        payload: object = None,
        namespace: str = "default",
        headers: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        retry_policy: RetryPolicy | None = None,
        callback_timeout_seconds: float = 30.0,
        delivery: Delivery = Delivery.AT_LEAST_ONCE,
    ) -> TimerView:
        """Request a call of a handler or a URL, at an instant or after a delay. Returns once it is stored.

        Reusing an id replaces the timer.
        """
        return self._engine().run(
            lambda ms: ms.timers.create(
                timer_id,
                handler=handler,
                callback_url=callback_url,
                execute_at=execute_at,
                delay_seconds=delay_seconds,
                payload=payload,
                namespace=namespace,
                headers=headers,
                labels=labels,
                retry_policy=retry_policy,
                callback_timeout_seconds=callback_timeout_seconds,
                delivery=delivery,
            )
        )

    def create_batch(self, timers: Sequence[CreateTimer], *, dry_run: bool = False) -> BatchView:
        """Create up to 1000 timers; each has its own result, in order. A dry run only checks them."""
        return self._engine().run(lambda ms: ms.timers.create_batch(timers, dry_run=dry_run))

    def get(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """The timer; NotFound if it does not exist or is done."""
        return self._engine().run(lambda ms: ms.timers.get(timer_id, namespace=namespace))

    def update(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        if_generation: int | UnsetType = UNSET,
        **changes: Unpack[TimerChanges],
    ) -> TimerView:
        """Change what is given and keep the rest. Conflict if `if_generation` is not the current generation."""
        return self._engine().run(
            lambda ms: ms.timers.update(timer_id, namespace=namespace, if_generation=if_generation, **changes)
        )

    def delete(self, timer_id: str, *, namespace: str = "default") -> DeletedView:
        """Remove a timer. The returned state is `running` if a call was in flight."""
        return self._engine().run(lambda ms: ms.timers.delete(timer_id, namespace=namespace))

    def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[Where]
    ) -> TimerPage:
        """One page of timers, in due order. `secrets` shows hidden values."""
        return self._engine().run(lambda ms: ms.timers.list(limit=limit, cursor=cursor, secrets=secrets, **where))

    def iterate(self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[Where]) -> Iterator[TimerView]:
        """All matching timers, page by page. `secrets` shows hidden values."""
        return self._engine().iterate(lambda ms: ms.timers.iterate(page_size=page_size, secrets=secrets, **where))

    def run_now(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Make the timer due at once."""
        return self._engine().run(lambda ms: ms.timers.run_now(timer_id, namespace=namespace))

    def park(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Keep the timer from running until it is resumed."""
        return self._engine().run(lambda ms: ms.timers.park(timer_id, namespace=namespace))

    def resume(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Let a parked timer run."""
        return self._engine().run(lambda ms: ms.timers.resume(timer_id, namespace=namespace))

    def history(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        limit: int = 100,
        cursor: str | None = None,
        **where: Unpack[HistoryWhere],
    ) -> HistoryPage:
        """One page of attempts, newest first, even if the timer is done."""
        return self._engine().run(
            lambda ms: ms.timers.history(timer_id, namespace=namespace, limit=limit, cursor=cursor, **where)
        )

    def iterate_history(
        self, timer_id: str, *, namespace: str = "default", page_size: int = 100, **where: Unpack[HistoryWhere]
    ) -> Iterator[AttemptView]:
        """All attempts that are still kept, newest first."""
        return self._engine().iterate(
            lambda ms: ms.timers.iterate_history(timer_id, namespace=namespace, page_size=page_size, **where)
        )

    def bulk_delete(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Remove all timers that match. Without any condition, `all` must be true."""
        return self._engine().run(lambda ms: ms.timers.bulk_delete(all=all, dry_run=dry_run, **where))

    def bulk_park(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Park all timers that match."""
        return self._engine().run(lambda ms: ms.timers.bulk_park(all=all, dry_run=dry_run, **where))

    def bulk_resume(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Resume all parked timers that match."""
        return self._engine().run(lambda ms: ms.timers.bulk_resume(all=all, dry_run=dry_run, **where))

    def stats(self, *, namespace: str = "default") -> TimerStatsView:
        """The timers of a namespace by state."""
        return self._engine().run(lambda ms: ms.timers.stats(namespace=namespace))
