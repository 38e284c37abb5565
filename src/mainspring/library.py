"""Mainspring inside a program: the same engine, with functions of the program as targets.

    async with Mainspring("sqlite:///app.db") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None: ...

        await ms.timers.create("app", "t1", in_seconds=5, handler="remind", payload={"to": "ann"})

A handler is treated like a receiver: when it returns, the timer is done; when it raises or takes too long, it is
retried by the policy; a returned dict is an answer with `ok`, `nextExecuteAt` and `payload`. Timers outlive the
program: register the handlers of earlier runs before the block is entered, or at its start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mainspring.clock import Clock
from mainspring.config import load_config
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.instance import Instance
from mainspring.model import Delivery, RetryPolicy, Timer
from mainspring.timers.courier import HANDLER_SCHEME
from mainspring.timers.messages import (
    AttemptView,
    CreateNamespace,
    CreateTimer,
    DeletedView,
    ListHistory,
    ListTimers,
    TimerRef,
    TimerView,
    UpdateTimer,
    to_instant,
)
from mainspring.timers.namespaces import NamespaceService
from mainspring.timers.service import TimerService


class DueTimer(Struct, frozen=True, kw_only=True):
    """A timer as its handler sees it. All repeats of one delivery carry the same `delivery_id`."""

    namespace: str
    timer_id: str
    execute_at: datetime
    attempt: int
    generation: int
    delivery_id: str
    payload: Any


HandlerFunction = Callable[[DueTimer], Awaitable[Any]]
F = TypeVar("F", bound=HandlerFunction)


class Mainspring:
    """One instance inside this program. Settings are those of `Config`, read like the server's."""

    def __init__(self, store: str = "", *, clock: Clock | None = None, **settings: Any) -> None:
        config = load_config({**settings, "store": store or None})
        self._instance = Instance(config, clock=clock, allow_handlers=True)
        self.timers = Timers(self._instance.timers, self._instance.namespaces)

    def handler(self, name: str) -> Callable[[F], F]:
        """Register a coroutine function as a target."""

        def register(function: F) -> F:
            async def call(timer: Timer) -> object:
                return await function(_due(timer))

            self._instance.courier.handlers[name] = call
            return function

        return register

    async def __aenter__(self) -> Self:
        await self._instance.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._instance.__aexit__(*exception)


class Timers:
    """The timers of this program. A namespace that does not exist yet is made by the first create."""

    def __init__(self, service: TimerService, namespaces: NamespaceService) -> None:
        self._service = service
        self._namespaces = namespaces

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
    ) -> TimerView:
        """Ask for a call of a handler or a URL, at a moment or after some seconds. Returns once it is stored."""
        request = _checked(
            CreateTimer(
                namespace=namespace,
                timer_id=timer_id,
                execute_at=UNSET if at is None else at,
                delay_seconds=UNSET if in_seconds is None else float(in_seconds),
                callback_url=_target(handler, url),
                payload=Raw(msgspec.json.encode(payload)),
                headers=dict(headers or {}),
                labels=dict(labels or {}),
                retry_policy=retry_policy,
                callback_timeout_seconds=float(timeout_seconds),
                delivery=delivery,
            )
        )
        try:
            return await self._service.create(request)
        except NotFound:
            with suppress(Conflict):  # made by somebody else meanwhile
                await self._namespaces.create(CreateNamespace(name=namespace))
            return await self._service.create(request)

    async def get(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.get(TimerRef(namespace=namespace, timer_id=timer_id))

    async def delete(self, namespace: str, timer_id: str) -> DeletedView:
        """Remove a timer. The answer's state is `running` if a call of it was in flight."""
        return await self._service.delete(TimerRef(namespace=namespace, timer_id=timer_id))

    async def reschedule(
        self,
        namespace: str,
        timer_id: str,
        *,
        at: datetime | None = None,
        in_seconds: float | None = None,
        payload: Any | UnsetType = UNSET,
    ) -> TimerView:
        """Give a timer a new time, and a new payload if one is named; all else stays."""
        request = UpdateTimer(
            namespace=namespace,
            timer_id=timer_id,
            execute_at=UNSET if at is None else at,
            delay_seconds=UNSET if in_seconds is None else float(in_seconds),
            payload=UNSET if payload is UNSET else Raw(msgspec.json.encode(payload)),
        )
        return await self._service.update(_checked(request))

    async def run_now(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.run_now(TimerRef(namespace=namespace, timer_id=timer_id))

    async def park(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.park(TimerRef(namespace=namespace, timer_id=timer_id))

    async def resume(self, namespace: str, timer_id: str) -> TimerView:
        return await self._service.resume(TimerRef(namespace=namespace, timer_id=timer_id))

    async def list(self, namespace: str, *, labels: Mapping[str, str] | None = None) -> AsyncIterator[TimerView]:
        """All timers of a namespace, in the order in which they are due."""
        cursor: str | UnsetType | None = UNSET
        while cursor is not None:
            page = await self._service.list(ListTimers(namespace=namespace, labels=dict(labels or {}), cursor=cursor))
            for timer in page.timers:
                yield timer
            cursor = page.next_cursor

    async def history(self, namespace: str, timer_id: str, *, limit: int = 100) -> tuple[AttemptView, ...]:
        """The newest attempts of a timer, also of one that is done."""
        page = await self._service.history(ListHistory(namespace=namespace, timer_id=timer_id, limit=limit))
        return page.attempts


M = TypeVar("M", CreateTimer, UpdateTimer)


def _checked(request: M) -> M:
    """What the API's decoder would say about this request, said here."""
    try:
        return msgspec.json.decode(msgspec.json.encode(request), type=type(request))
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from error


def _target(handler: str | None, url: str | None) -> str:
    if (handler is None) == (url is None):
        raise InvalidInput("Expected one of handler and url")
    return url if url is not None else f"{HANDLER_SCHEME}{handler}"


def _due(timer: Timer) -> DueTimer:
    return DueTimer(
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        execute_at=to_instant(timer.detail.execute_at),
        attempt=timer.attempts,
        generation=timer.generation,
        delivery_id=timer.detail.delivery_id,
        payload=None if timer.payload is None else msgspec.json.decode(timer.payload),
    )
