# Generated from _async/timers.py by tools/generate_sync.py; change that one.
"""The timers of a server. Each method is one request; its docstring says what happens when it is sent again.

A request whose outcome is unknown is repeated only where the docstring says so. Otherwise the error has
`outcome_unknown` set, and `get` shows how things stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Unpack

from msgspec import UNSET, UnsetType

from mainspring.client._sync.connection import Connection
from mainspring.client.arguments import to_payload
from mainspring.client.reply import Repeat
from mainspring.clock import wall_ms
from mainspring.model import Delivery, RetryPolicy
from mainspring.timers.arguments import HistoryWhere, Where, batch_request, create_request, ref_request
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
    UpdateTimer,
)
from mainspring.wire.arguments import given, request
from mainspring.wire.instants import to_ms


class Timers:
    """`client.timers`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
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
        asked = create_request(
            timer_id,
            namespace=namespace,
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
        repeat = self._unless_soon(asked)
        return self._connection.post("/v1/timers/create", asked, TimerView, repeat=repeat)

    def create_batch(self, timers: Sequence[CreateTimer], *, dry_run: bool = False) -> BatchView:
        """Create up to 1000 timers; each has its own result, in order. Repeated like `create`, if all allow it.

        A dry run only has the server check them.
        """
        asked = batch_request(timers, dry_run=dry_run)
        harmless = dry_run or all(self._unless_soon(timer) is Repeat.HARMLESS for timer in timers)
        repeat = Repeat.HARMLESS if harmless else Repeat.IF_UNDONE
        return self._connection.post("/v1/timers/create-batch", asked, BatchView, repeat=repeat)

    def get(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """The timer; NotFound if it does not exist or is done. A read, so it is repeated."""
        asked = ref_request(timer_id, namespace=namespace)
        return self._connection.post("/v1/timers/get", asked, TimerView, repeat=Repeat.READ)

    def update(
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
        said = {
            "namespace": namespace,
            "timer_id": timer_id,
            "if_generation": if_generation,
            "execute_at": given(execute_at),
            "delay_seconds": delay_seconds,
            "callback_url": callback_url,
            "payload": UNSET if payload is UNSET else to_payload(payload),
            "headers": headers,
            "labels": labels,
            "retry_policy": retry_policy,
            "callback_timeout_seconds": callback_timeout_seconds,
            "delivery": delivery,
        }
        asked = request(UpdateTimer, said)
        repeat = self._unless_soon(asked) if if_generation is UNSET else Repeat.IF_UNDONE
        return self._connection.post("/v1/timers/update", asked, TimerView, repeat=repeat)

    def delete(self, timer_id: str, *, namespace: str = "default") -> DeletedView:
        """Remove the timer; returns the timer as it was.

        Repeated. If NotFound follows an unanswered attempt, a note says so: that attempt may have removed it.
        """
        asked = ref_request(timer_id, namespace=namespace)
        return self._connection.post("/v1/timers/delete", asked, DeletedView, repeat=Repeat.HARMLESS)

    def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[Where]
    ) -> TimerPage:
        """One page of timers, in due order. `secrets` shows hidden values. A read, so it is repeated."""
        said = {"limit": limit, "cursor": given(cursor), "secrets": secrets}
        asked = request(ListTimers, {**where, **said})
        return self._connection.post("/v1/timers/list", asked, TimerPage, repeat=Repeat.READ)

    def iterate(self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[Where]) -> Iterator[TimerView]:
        """All matching timers, page by page. `secrets` shows hidden values."""
        cursor: str | None = None
        while True:
            page = self.list(limit=page_size, cursor=cursor, secrets=secrets, **where)
            yield from page.timers
            cursor = page.next_cursor
            if cursor is None:
                return

    def run_now(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Make the timer due at once. Not repeated when its outcome is unknown: it may have run."""
        return self._act("run-now", timer_id, namespace, Repeat.IF_UNDONE)

    def park(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Keep the timer from running until it is resumed.

        Not repeated when its outcome is unknown: somebody may have resumed it.
        """
        return self._act("park", timer_id, namespace, Repeat.IF_UNDONE)

    def resume(self, timer_id: str, *, namespace: str = "default") -> TimerView:
        """Let a parked timer run. Not repeated when its outcome is unknown: it may have run and been parked again."""
        return self._act("resume", timer_id, namespace, Repeat.IF_UNDONE)

    def history(
        self,
        timer_id: str,
        *,
        namespace: str = "default",
        limit: int = 100,
        cursor: str | None = None,
        **where: Unpack[HistoryWhere],
    ) -> HistoryPage:
        """One page of attempts, newest first, even if the timer is done. A read, so it is repeated."""
        said = {"namespace": namespace, "timer_id": timer_id, "limit": limit, "cursor": given(cursor)}
        asked = request(ListHistory, {**where, **said})
        return self._connection.post("/v1/timers/history", asked, HistoryPage, repeat=Repeat.READ)

    def iterate_history(
        self, timer_id: str, *, namespace: str = "default", page_size: int = 100, **where: Unpack[HistoryWhere]
    ) -> Iterator[AttemptView]:
        """All attempts that are still kept, newest first."""
        cursor: str | None = None
        while True:
            page = self.history(timer_id, namespace=namespace, limit=page_size, cursor=cursor, **where)
            yield from page.attempts
            cursor = page.next_cursor
            if cursor is None:
                return

    def bulk_delete(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Remove all timers that match. Without any condition, `all` must be true.

        The bulk verbs are not repeated when their outcome is unknown: more timers may match by then.
        """
        return self._bulk("bulk-delete", all, dry_run, where)

    def bulk_park(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Park all timers that match."""
        return self._bulk("bulk-park", all, dry_run, where)

    def bulk_resume(self, *, all: bool = False, dry_run: bool = False, **where: Unpack[Where]) -> BulkView:
        """Resume all parked timers that match."""
        return self._bulk("bulk-resume", all, dry_run, where)

    def stats(self, *, namespace: str = "default") -> TimerStatsView:
        """The timers of a namespace by state. A read, so it is repeated."""
        asked = request(TimerStats, {"namespace": namespace})
        return self._connection.post("/v1/timers/stats", asked, TimerStatsView, repeat=Repeat.READ)

    def _act(self, verb: str, timer_id: str, namespace: str, repeat: Repeat) -> TimerView:
        asked = ref_request(timer_id, namespace=namespace)
        return self._connection.post(f"/v1/timers/{verb}", asked, TimerView, repeat=repeat)

    def _bulk(self, verb: str, everything: bool, dry_run: bool, where: Where) -> BulkView:
        asked = request(BulkTimers, {**where, "all": everything, "dry_run": dry_run})
        repeat = Repeat.READ if dry_run else Repeat.IF_UNDONE
        return self._connection.post(f"/v1/timers/{verb}", asked, BulkView, repeat=repeat)

    def _unless_soon(self, timer: CreateTimer | UpdateTimer) -> Repeat:
        """Harmless if the timer cannot be due before the last repeat has ended."""
        span_ms = self._connection.longest_span_seconds * 1000
        if not isinstance(timer.delay_seconds, UnsetType) and timer.delay_seconds * 1000 <= span_ms:
            return Repeat.IF_UNDONE
        if not isinstance(timer.execute_at, UnsetType) and to_ms(timer.execute_at) <= wall_ms() + span_ms:
            return Repeat.IF_UNDONE
        return Repeat.HARMLESS
