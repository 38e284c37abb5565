"""The timer routes."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Raw

from mainspring.api.routes import Route, always, operation
from mainspring.model import Result, State
from mainspring.timers.messages import (
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


class Timers(Protocol):
    """What the timer service does."""

    async def create(self, request: CreateTimer, /) -> TimerView: ...
    async def create_batch(self, request: CreateTimers, /) -> BatchView: ...
    async def get(self, request: TimerRef, /) -> TimerView: ...
    async def update(self, request: UpdateTimer, /) -> TimerView: ...
    async def delete(self, request: TimerRef, /) -> DeletedView: ...
    async def list(self, request: ListTimers, /) -> TimerPage: ...
    async def run_now(self, request: TimerRef, /) -> TimerView: ...
    async def park(self, request: TimerRef, /) -> TimerView: ...
    async def resume(self, request: TimerRef, /) -> TimerView: ...
    async def history(self, request: ListHistory, /) -> HistoryPage: ...
    async def bulk_delete(self, request: BulkTimers, /) -> BulkView: ...
    async def bulk_park(self, request: BulkTimers, /) -> BulkView: ...
    async def bulk_resume(self, request: BulkTimers, /) -> BulkView: ...
    async def stats(self, request: TimerStats, /) -> TimerStatsView: ...


_TIMER: Final = TimerRef(timer_id="order-42-reminder")
_CREATE: Final = CreateTimer(
    timer_id="order-42-reminder",
    delay_seconds=60.0,
    callback_url="https://example.com/hooks/reminder",
    payload=Raw(b'{"order":42}'),
    labels={"tenant": "acme"},
)
_BATCH: Final = CreateTimers(
    timers=tuple(
        Raw(b'{"timerId":"order-%d-reminder","delaySeconds":60,"callbackUrl":"https://example.com/hooks/reminder"}' % n)
        for n in (42, 43)
    )
)
_BULK: Final = BulkTimers(labels={"tenant": "acme"}, dry_run=True)


def timer_routes(timers: Timers) -> tuple[Route, ...]:
    one = "/v1/timers/"
    return (
        operation(
            one + "create",
            "Create or replace a timer",
            timers.create,
            example=_CREATE,
            answer=TimerView,
            takes_key=True,
        ),
        operation(
            one + "create-batch",
            "Create many timers at once",
            timers.create_batch,
            example=_BATCH,
            answer=BatchView,
            takes_key=True,
        ),
        operation(one + "get", "Read a timer", timers.get, example=_TIMER, answer=TimerView, can_be_remade=always),
        operation(
            one + "update",
            "Change a timer",
            timers.update,
            example=UpdateTimer(timer_id=_TIMER.timer_id, if_generation=1, delay_seconds=120.0),
            answer=TimerView,
        ),
        operation(one + "delete", "Delete a timer", timers.delete, example=_TIMER, answer=DeletedView),
        operation(
            one + "list",
            "List timers in due order",
            timers.list,
            example=ListTimers(states=(State.PARKED,), labels={"tenant": "acme"}, limit=50),
            answer=TimerPage,
            is_page=True,
        ),
        operation(one + "run-now", "Make a timer due now", timers.run_now, example=_TIMER, answer=TimerView),
        operation(
            one + "park", "Park a timer: keep it without firing it", timers.park, example=_TIMER, answer=TimerView
        ),
        operation(one + "resume", "Resume a parked timer", timers.resume, example=_TIMER, answer=TimerView),
        operation(
            one + "history",
            "List the attempts of a timer",
            timers.history,
            example=ListHistory(timer_id=_TIMER.timer_id, outcomes=(Result.FAILED, Result.UNKNOWN)),
            answer=HistoryPage,
            can_be_remade=always,
        ),
        operation(
            one + "bulk-delete", "Delete all timers that match", timers.bulk_delete, example=_BULK, answer=BulkView
        ),
        operation(one + "bulk-park", "Park all timers that match", timers.bulk_park, example=_BULK, answer=BulkView),
        operation(
            one + "bulk-resume", "Resume all timers that match", timers.bulk_resume, example=_BULK, answer=BulkView
        ),
        operation(
            one + "stats",
            "Count the timers of a namespace by state",
            timers.stats,
            example=TimerStats(namespace="default"),
            answer=TimerStatsView,
        ),
    )
