"""The timers of a program that has an engine of its own: `ms.timers`, and functions as their targets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mainspring.errors import Conflict, NotFound
from mainspring.model import Delivery, RetryPolicy, Timer
from mainspring.namespaces.messages import CreateNamespace
from mainspring.namespaces.service import NamespaceService
from mainspring.timers.arguments import create_request, reschedule_request
from mainspring.timers.messages import (
    AttemptView,
    CreateTimer,
    DeletedView,
    ListHistory,
    ListTimers,
    TimerRef,
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
    """The timers of this program. The first create in a namespace creates the namespace."""

    def __init__(
        self, service: TimerService, namespaces: NamespaceService, *, create_in_transaction: CreateInTransaction
    ) -> None:
        self._service = service
        self._namespaces = namespaces
        self._create_in_transaction = create_in_transaction

    async def create(
        self,
        namespace: str,
        timer_id: str,
        *,
        at: datetime | None = None,
        in_seconds: float | None = None,
        handler: str | None = None,
        url: str | None = None,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        retry_policy: RetryPolicy | None = None,
        timeout_seconds: float = 30.0,
        delivery: Delivery = Delivery.AT_LEAST_ONCE,
        connection: object = None,
    ) -> TimerView:
        """Request a call of a handler or a URL, at an instant or after a delay. Returns once it is stored.

        With `connection`, an open connection or session of the program to the same database, the timer is written in
        its transaction and commits or rolls back with it. The namespace must then exist.
        """
        asked = create_request(
            namespace,
            timer_id,
            at=at,
            in_seconds=in_seconds,
            handler=handler,
            url=url,
            payload=payload,
            headers=headers,
            labels=labels,
            retry_policy=retry_policy,
            timeout_seconds=timeout_seconds,
            delivery=delivery,
        )
        if connection is not None:
            return await self._create_in_transaction(connection, asked)
        try:
            return await self._service.create(asked)
        except NotFound:
            with suppress(Conflict):  # made by somebody else meanwhile
                await self._namespaces.create(CreateNamespace(name=namespace))
            return await self._service.create(asked)

    async def get(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.get(_ref(namespace, timer_id))

    async def delete(self, namespace: str, timer_id: str) -> DeletedView:
        """Remove a timer. The returned state is `running` if a call was in flight."""
        return await self._service.delete(_ref(namespace, timer_id))

    async def reschedule(
        self,
        namespace: str,
        timer_id: str,
        *,
        at: datetime | None = None,
        in_seconds: float | None = None,
        payload: Any | UnsetType = UNSET,
    ) -> TimerView:
        """Give a timer a new time, and a new payload if one is given; everything else stays."""
        asked = reschedule_request(namespace, timer_id, at=at, in_seconds=in_seconds, payload=payload)
        return await self._service.update(asked)

    async def run_now(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.run_now(_ref(namespace, timer_id))

    async def park(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.park(_ref(namespace, timer_id))

    async def resume(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.resume(_ref(namespace, timer_id))

    def list(self, namespace: str, *, labels: Mapping[str, str] | None = None) -> AsyncIterator[TimerView]:
        """All timers of a namespace, in due order."""
        asked = request(ListTimers, {"namespace": namespace, "labels": given(labels)})
        return through_pages(lambda at: self._service.list(replace(asked, cursor=at)), lambda page: page.timers)

    async def history(self, namespace: str, timer_id: str, *, limit: int = 100) -> tuple[AttemptView, ...]:
        """The newest attempts of a timer, even if it is done."""
        asked = request(ListHistory, {"namespace": namespace, "timer_id": timer_id, "limit": limit})
        return (await self._service.history(asked)).attempts


def _ref(namespace: str, timer_id: str) -> TimerRef:
    return request(TimerRef, {"namespace": namespace, "timer_id": timer_id})
