"""The timers of a server. Each method is one request; its docstring says what happens when it is sent again.

A request whose outcome is unknown is repeated only where the docstring says so. Otherwise the error has
`outcome_unknown` set, and `get` shows how things stand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Unpack

from msgspec import UNSET, UnsetType

from mainspring.client._async.connection import AsyncConnection
from mainspring.client.arguments import Where, filter_keywords, instant, to_payload
from mainspring.client.reply import Repeat
from mainspring.clock import wall_ms
from mainspring.model import Delivery, Result, RetryPolicy
from mainspring.timers.messages import (
    AttemptView,
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
    TimerView,
    UpdateTimer,
)
from mainspring.wire.instants import to_ms


class AsyncTimers:
    """`client.timers`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self,
        timer_id: str,
        *,
        callback_url: str,
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
        """Request an HTTP call: exactly one of `execute_at` and `delay_seconds`. Reusing an id replaces the timer.

        Repeated when its outcome is unknown, unless it is due so soon that it may have fired by then: a
        repeat would fire it a second time, with another delivery id.
        """
        request = CreateTimer(
            namespace=namespace,
            timer_id=timer_id,
            execute_at=instant(execute_at),
            delay_seconds=UNSET if delay_seconds is None else delay_seconds,
            callback_url=callback_url,
            payload=UNSET if payload is None else to_payload(payload),
            headers=dict(headers or {}),
            labels=dict(labels or {}),
            retry_policy=retry_policy,
            callback_timeout_seconds=callback_timeout_seconds,
            delivery=delivery,
        )
        repeat = self._unless_soon(request)
        return await self._connection.post("/v1/timers/create", request, TimerView, repeat=repeat)

    async def create_batch(self, timers: Sequence[CreateTimer], *, dry_run: bool = False) -> BatchView:
        """Create up to 1000 timers; each has its own result, in order. Repeated like `create`, if all allow it.

        A dry run only has the server check them.
        """
        request = CreateTimers(timers=tuple(to_payload(timer) for timer in timers), dry_run=dry_run)
        harmless = dry_run or all(self._unless_soon(timer) is Repeat.HARMLESS for timer in timers)
        repeat = Repeat.HARMLESS if harmless else Repeat.IF_UNDONE
        return await self._connection.post("/v1/timers/create-batch", request, BatchView, repeat=repeat)

    async def get(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """The timer; NotFound if it does not exist or is done. A read, so it is repeated."""
        request = TimerRef(namespace=namespace, timer_id=timer_id)
        return await self._connection.post("/v1/timers/get", request, TimerView, repeat=Repeat.READ)

    async def update(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        if_generation: int | UnsetType = UNSET,
        execute_at: datetime | UnsetType = UNSET,
        delay_seconds: float | UnsetType = UNSET,
        callback_url: str | UnsetType = UNSET,
        payload: object = UNSET,
        headers: Mapping[str, str] | UnsetType = UNSET,
        labels: Mapping[str, str] | UnsetType = UNSET,
        retry_policy: RetryPolicy | UnsetType | None = UNSET,
        callback_timeout_seconds: float | UnsetType = UNSET,
        delivery: Delivery | UnsetType = UNSET,
    ) -> TimerView:
        """Change what is given and keep the rest. Conflict if `if_generation` is not the current generation.

        Repeated when its outcome is unknown, unless it has `if_generation` (the repeat would conflict with
        itself) or moves the timer to a time so near that it may have fired by then.
        """
        request = UpdateTimer(
            namespace=namespace,
            timer_id=timer_id,
            if_generation=if_generation,
            execute_at=instant(execute_at),
            delay_seconds=delay_seconds,
            callback_url=callback_url,
            payload=UNSET if payload is UNSET else to_payload(payload),
            headers=headers if isinstance(headers, UnsetType) else dict(headers),
            labels=labels if isinstance(labels, UnsetType) else dict(labels),
            retry_policy=retry_policy,
            callback_timeout_seconds=callback_timeout_seconds,
            delivery=delivery,
        )
        repeat = self._unless_soon(request) if if_generation is UNSET else Repeat.IF_UNDONE
        return await self._connection.post("/v1/timers/update", request, TimerView, repeat=repeat)

    async def delete(self, timer_id: str, *, namespace: str = "default") -> DeletedView:
        """Remove the timer; returns the timer as it was.

        Repeated. If NotFound follows an unanswered attempt, a note says so: that attempt may have removed it.
        """
        request = TimerRef(namespace=namespace, timer_id=timer_id)
        return await self._connection.post("/v1/timers/delete", request, DeletedView, repeat=Repeat.HARMLESS)

    async def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[Where]
    ) -> TimerPage:
        """One page of timers, in due order. `secrets` shows hidden values. A read, so it is repeated."""
        after = UNSET if cursor is None else cursor
        request = ListTimers(limit=limit, cursor=after, secrets=secrets, **filter_keywords(where))
        return await self._connection.post("/v1/timers/list", request, TimerPage, repeat=Repeat.READ)

    async def iterate(
        self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[Where]
    ) -> AsyncIterator[TimerView]:
        """All matching timers, page by page. `secrets` shows hidden values."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=page_size, cursor=cursor, secrets=secrets, **where)
            for timer in page.timers:
                yield timer
            cursor = page.next_cursor
            if cursor is None:
                return

    async def run_now(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Make the timer due at once. Not repeated when its outcome is unknown: it may have run."""
        return await self._act("run-now", timer_id, namespace, Repeat.IF_UNDONE)

    async def park(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Keep the timer from running until it is resumed.

        Not repeated when its outcome is unknown: somebody may have resumed it.
        """
        return await self._act("park", timer_id, namespace, Repeat.IF_UNDONE)

    async def resume(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Let a parked timer run. Not repeated when its outcome is unknown: it may have run and been parked again."""
        return await self._act("resume", timer_id, namespace, Repeat.IF_UNDONE)

    async def history(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        outcomes: Sequence[Result] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> HistoryPage:
        """One page of attempts, newest first, even if the timer is done. A read, so it is repeated."""
        request = ListHistory(
            namespace=namespace,
            timer_id=timer_id,
            outcomes=tuple(outcomes),
            since=instant(since),
            until=instant(until),
            limit=limit,
            cursor=UNSET if cursor is None else cursor,
        )
        return await self._connection.post("/v1/timers/history", request, HistoryPage, repeat=Repeat.READ)

    async def iterate_history(self, timer_id: str, *, namespace: str = "default") -> AsyncIterator[AttemptView]:
        """All attempts that are still kept, newest first."""
        cursor: str | None = None
        while True:
            page = await self.history(timer_id, namespace=namespace, cursor=cursor)
            for attempt in page.attempts:
                yield attempt
            cursor = page.next_cursor
            if cursor is None:
                return

    async def bulk_delete(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Remove all timers that match. Without any condition, `all` must be true.

        The bulk verbs are not repeated when their outcome is unknown: more timers may match by then.
        """
        return await self._bulk("bulk-delete", all, dry_run, where)

    async def bulk_park(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Park all timers that match."""
        return await self._bulk("bulk-park", all, dry_run, where)

    async def bulk_resume(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Resume all parked timers that match."""
        return await self._bulk("bulk-resume", all, dry_run, where)

    async def _act(self, verb: str, timer_id: str, namespace: str, repeat: Repeat) -> TimerView:
        request = TimerRef(namespace=namespace, timer_id=timer_id)
        return await self._connection.post(f"/v1/timers/{verb}", request, TimerView, repeat=repeat)

    async def _bulk(self, verb: str, everything: bool, dry_run: bool, where: Where) -> BulkView:
        request = BulkTimers(all=everything, dry_run=dry_run, **filter_keywords(where))
        repeat = Repeat.READ if dry_run else Repeat.IF_UNDONE
        return await self._connection.post(f"/v1/timers/{verb}", request, BulkView, repeat=repeat)

    def _unless_soon(self, request: CreateTimer | UpdateTimer) -> Repeat:
        """Harmless if the timer cannot be due before the last repeat has ended."""
        span_ms = self._connection.longest_span_seconds * 1000
        if not isinstance(request.delay_seconds, UnsetType) and request.delay_seconds * 1000 <= span_ms:
            return Repeat.IF_UNDONE
        if not isinstance(request.execute_at, UnsetType) and to_ms(request.execute_at) <= wall_ms() + span_ms:
            return Repeat.IF_UNDONE
        return Repeat.HARMLESS
