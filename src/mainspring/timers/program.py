"""The timers of a program that has an engine of its own: `ms.timers`, and functions as their targets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Unpack

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mainspring.errors import Conflict, NotFound
from mainspring.model import Delivery, RetryPolicy, Timer
from mainspring.namespaces.messages import CreateNamespace, NamespaceRef
from mainspring.namespaces.service import NamespaceService
from mainspring.timers.arguments import (
    HistoryWhere,
    TimerChanges,
    Where,
    batch_request,
    create_request,
    ref_request,
    update_request,
)
from mainspring.timers.messages import (
    AttemptView,
    BatchView,
    BulkTimers,
    BulkView,
    CreateTimer,
    DeletedView,
    HistoryPage,
    ListHistory,
    ListTimers,
    TimerPage,
    TimerStats,
    TimerStatsView,
    TimerView,
)
from mainspring.timers.service import TimerService
from mainspring.wire.arguments import given, request
from mainspring.wire.cursors import through_pages
from mainspring.wire.instants import to_instant

CreateInTransaction = Callable[[object, CreateTimer], Awaitable[TimerView]]
"""Writes a timer on a connection of the program."""


class DueTimer(Struct, frozen=True, kw_only=True):
    """A timer as its handler sees it. All repeats of one delivery carry the same `delivery_id`."""

    namespace: str
    timer_id: str
    execute_at: datetime
    attempt: int
    generation: int
    delivery_id: str
    payload: Any


def due_timer(timer: Timer) -> DueTimer:
    return DueTimer(
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        execute_at=to_instant(timer.detail.execute_at),
        attempt=timer.attempts,
        generation=timer.generation,
        delivery_id=timer.detail.delivery_id,
        payload=None if timer.payload is None else msgspec.json.decode(timer.payload),
    )


class Timers:
    """The timers of this program: what `AsyncClient.timers` has, with functions as targets, too. The first create in a
    namespace creates the namespace."""

    def __init__(
        self, service: TimerService, namespaces: NamespaceService, *, create_in_transaction: CreateInTransaction
    ) -> None:
        self._service = service
        self._namespaces = namespaces
        self._create_in_transaction = create_in_transaction

    async def create(
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
        connection: object = None,
    ) -> TimerView:
        """Request a call of a handler or a URL, at an instant or after a delay. Returns once it is stored.

        Reusing an id replaces the timer.

        With `connection`, an open connection or session of the program to the same database, the timer is written in
        its transaction and commits or rolls back with it. The namespace must then exist.
        """
        asked = create_request(
            timer_id,
            namespace=namespace,
            handler=handler,
            callback_url=callback_url,
            execute_at=execute_at,
            delay_seconds=delay_seconds,
            payload=payload,
            headers=headers,
            labels=labels,
            retry_policy=retry_policy,
            callback_timeout_seconds=callback_timeout_seconds,
            delivery=delivery,
        )
        if connection is not None:
            return await self._create_in_transaction(connection, asked)
        try:
            return await self._service.create(asked)
        except NotFound:
            await self._see_to(asked.namespace)
            return await self._service.create(asked)

    async def create_batch(self, timers: Sequence[CreateTimer], *, dry_run: bool = False) -> BatchView:
        """Create up to 1000 timers; each has its own result, in order. A dry run only checks them."""
        asked = batch_request(timers, dry_run=dry_run)
        if not dry_run:
            for namespace in sorted({timer.namespace for timer in timers}):
                await self._see_to(namespace)
        return await self._service.create_batch(asked)

    async def _see_to(self, namespace: str) -> None:
        try:
            await self._namespaces.get(NamespaceRef(name=namespace))
        except NotFound:
            with suppress(Conflict):  # made by somebody else meanwhile
                await self._namespaces.create(CreateNamespace(name=namespace))

    async def get(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """The timer; NotFound if it does not exist or is done."""
        return await self._service.get(ref_request(timer_id, namespace=namespace))

    async def update(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        if_generation: int | UnsetType = UNSET,
        **changes: Unpack[TimerChanges],
    ) -> TimerView:
        """Change what is given and keep the rest. Conflict if `if_generation` is not the current generation."""
        asked = update_request(timer_id, namespace=namespace, if_generation=if_generation, **changes)
        return await self._service.update(asked)

    async def delete(self, timer_id: str, *, namespace: str = "default") -> DeletedView:
        """Remove a timer. The returned state is `running` if a call was in flight."""
        return await self._service.delete(ref_request(timer_id, namespace=namespace))

    async def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[Where]
    ) -> TimerPage:
        """One page of timers, in due order. `secrets` shows hidden values."""
        return await self._service.list(_list_request(where, limit=limit, cursor=cursor, secrets=secrets))

    def iterate(
        self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[Where]
    ) -> AsyncIterator[TimerView]:
        """All matching timers, page by page. `secrets` shows hidden values."""
        asked = _list_request(where, limit=page_size, cursor=None, secrets=secrets)
        return through_pages(lambda at: self._service.list(replace(asked, cursor=at)), lambda page: page.timers)

    async def run_now(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Make the timer due at once."""
        return await self._service.run_now(ref_request(timer_id, namespace=namespace))

    async def park(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Keep the timer from running until it is resumed."""
        return await self._service.park(ref_request(timer_id, namespace=namespace))

    async def resume(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Let a parked timer run."""
        return await self._service.resume(ref_request(timer_id, namespace=namespace))

    async def history(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        limit: int = 100,
        cursor: str | None = None,
        **where: Unpack[HistoryWhere],
    ) -> HistoryPage:
        """One page of attempts, newest first, even if the timer is done."""
        said = {"namespace": namespace, "timer_id": timer_id, "limit": limit, "cursor": given(cursor)}
        return await self._service.history(request(ListHistory, {**where, **said}))

    def iterate_history(
        self, timer_id: str, *, namespace: str = "default", page_size: int = 100, **where: Unpack[HistoryWhere]
    ) -> AsyncIterator[AttemptView]:
        """All attempts that are still kept, newest first."""
        asked = request(ListHistory, {**where, "namespace": namespace, "timer_id": timer_id, "limit": page_size})
        return through_pages(lambda at: self._service.history(replace(asked, cursor=at)), lambda page: page.attempts)

    async def bulk_delete(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Remove all timers that match. Without any condition, `all` must be true."""
        return await self._service.bulk_delete(request(BulkTimers, {**where, "all": all, "dry_run": dry_run}))

    async def bulk_park(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Park all timers that match."""
        return await self._service.bulk_park(request(BulkTimers, {**where, "all": all, "dry_run": dry_run}))

    async def bulk_resume(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Resume all parked timers that match."""
        return await self._service.bulk_resume(request(BulkTimers, {**where, "all": all, "dry_run": dry_run}))

    async def stats(self, *, namespace: str = "default") -> TimerStatsView:
        """The timers of a namespace by state."""
        return await self._service.stats(request(TimerStats, {"namespace": namespace}))


def _list_request(where: Where, *, limit: int, cursor: str | None, secrets: bool) -> ListTimers:
    return request(ListTimers, {**where, "limit": limit, "cursor": given(cursor), "secrets": secrets})
