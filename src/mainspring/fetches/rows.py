"""The timer row of a fetch: an alarm clock that makes an instance look at the record when something is to be done.

What the row says follows from the record (`place`), so a row that was left behind by a crash does no harm: whoever is
woken by it reads the record and puts the row where it belongs. The row's delivery id names the stage and the fetch:
so a write that moves the row on supersedes an attempt of an earlier stage that is still to be recorded, and an
attempt of a fetch that is gone does not touch the next one with the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.delivery.answer import LITTLE
from mainspring.delivery.secrets import Secrets
from mainspring.fetches.local_origins import name_in
from mainspring.fetches.memory import size_of
from mainspring.fetches.messages import DeliveryState, FetchFilter, FetchState, FetchSummary
from mainspring.fetches.record import (
    FINAL,
    FIRST_OFFER_AIR_MS,
    FIRST_OFFER_MS,
    IN_PROCESS,
    WATCHDOG_MS,
    Fetch,
)
from mainspring.kernel.carrier import Ending
from mainspring.model import Delivery, Detail, LastOutcome, Namespace, Result, State, Timer
from mainspring.store import TimerFilter
from mainspring.unreadable import Unreadable, each, readable, reason_of, timer_name
from mainspring.wire.instants import to_instant

T = TypeVar("T")

USER: Final = "user."
"""Precedes the names of users' labels, so that they are not taken for ours."""
ORIGIN: Final = "origin"
LEFT: Final = "left"
DELIVERY: Final = "delivery"
"""How the result of an ended fetch is getting to its origin."""
UNCERTAIN: Final = ("definite", "no")
"""The target may have acted, although there is no response."""
OPEN_MS: Final = 3_600_000
"""Rows of fetches that wait or run, or whose result nobody has taken yet, are due within this time; most of those that
are only kept come later."""
LONGEST_LOOK_MS: Final = 3_000_000
"""How often a running fetch is looked at, at least: less than that time, and more than most calls take."""
SIZE: Final = "size"
"""The header that says how much memory a large request takes."""
_DIGITS: Final = 16
_UNCERTAIN_STATES: Final[tuple[FetchState, ...]] = ("unknown", "cancelled")
_RESULTS: Final[dict[FetchState, Result]] = {
    "pending": Result.SUCCEEDED,
    "running": Result.SUCCEEDED,
    "succeeded": Result.SUCCEEDED,
    "failed": Result.FAILED,
    "cancelled": Result.FAILED,
    "unknown": Result.UNKNOWN,
}


class Stage(StrEnum):
    """What the row waits for."""

    NEW = "new"
    """A free executor."""
    SENT = "sent"
    """The watchdog."""
    DELIVER = "deliver"
    """The next offer of the result to its origin."""
    KEPT = "kept"
    """The end of its retention."""


def stage_of(row: Timer) -> Stage:
    return Stage(row.detail.delivery_id.partition("@")[0])


def is_ours(row: Timer) -> bool:
    """Whether this is a proper row of a fetch: another program could write others."""
    detail = row.detail
    stage = detail.delivery_id.partition("@")[0]
    if stage not in tuple(Stage) or not {"state", "executor"} <= detail.labels.keys():
        return False
    return stage != Stage.DELIVER or "result-url" in detail.headers


def read_rows(rows: Iterable[Timer], read: Callable[[Timer], T]) -> list[T]:
    """What each row says. One that is not a proper row of a fetch is set aside."""
    return readable(each(rows, read, _foreign))


def _foreign(row: Timer, error: Exception) -> Unreadable:
    return Unreadable("timer", timer_name(row.key), f"No row of a fetch: {reason_of(error)}", row.version)


def _delivery_id(stage: Stage, fetch: Fetch) -> str:
    return f"{stage}@{fetch.created_at}"


def request_size(row: Timer) -> int:
    """The memory that the request takes; 0 if it is little."""
    told = row.detail.headers.get(SIZE, "")
    return int(told) if told.isdecimal() and len(told) < _DIGITS else 0


def state_of(row: Timer) -> FetchState:
    """Of the fetch, as of the last time that the row was moved."""
    state: FetchState = msgspec.convert(row.detail.labels["state"], FetchState)
    return state


def in_state(state: FetchState, labels: Iterable[tuple[str, str]] = (), *, now: int) -> TimerFilter:
    """The rows of fetches in a state, in as short a part of the due order as they can be."""
    is_open = state in ("pending", "running")
    return TimerFilter(labels=(("state", state), *labels), due_to=now + OPEN_MS if is_open else None)


def chosen(request: FetchFilter, *, now: int) -> list[TimerFilter]:
    """What a filter asks for, apart from when it was created: the rows of one of these each."""
    users = [(USER + name, value) for name, value in sorted(request.labels.items())]
    states: list[FetchState | None] = [*dict.fromkeys(request.states)] or [None]
    if request.may_have_acted:
        states = [state for state in _UNCERTAIN_STATES if state in request.states or not request.states]
    found: list[TimerFilter] = []
    for state in states:
        own = [UNCERTAIN] if request.may_have_acted and state == "cancelled" else []
        for delivery in dict.fromkeys(request.deliveries) or (None,):
            labels = [*own, *users, *([(DELIVERY, delivery)] if delivery else [])]
            found.append(TimerFilter(labels=tuple(labels)) if state is None else in_state(state, labels, now=now))
    return found


def executor_of(row: Timer) -> str:
    """Who makes the call, or is to make it."""
    return row.detail.labels["executor"]


def begin_by(row: Timer) -> int:
    """Of the fetch, without its record."""
    return row.detail.created_at + row.detail.callback_timeout_ms + WATCHDOG_MS


def place(fetch: Fetch, now: int) -> tuple[Stage, int]:
    """Where the row belongs, and when it is due there."""
    if fetch.state == "pending":
        return Stage.NEW, fetch.created_at
    if fetch.state == "running":
        return Stage.SENT, min(fetch.watchdog_at or fetch.created_at, now + LONGEST_LOOK_MS)
    if fetch.delivery.state == "waiting":
        # Whoever makes the first offer may take long over it, and may die meanwhile.
        soon = now + FIRST_OFFER_MS + FIRST_OFFER_AIR_MS
        return Stage.DELIVER, fetch.delivery.next_at if fetch.delivery.attempts else min(fetch.delivery.next_at, soon)
    return Stage.KEPT, fetch.expires_at or fetch.created_at


def labels(fetch: Fetch) -> dict[str, str]:
    """The labels by which rows are found. Those of origins inside programs say so until the result has been taken."""
    own = {"state": fetch.state, "executor": fetch.executor or fetch.pool or IN_PROCESS}
    if fetch.is_final and fetch.delivery.state != "none":
        own[DELIVERY] = fetch.delivery.state
    if fetch.outcome is not None and fetch.outcome.failure is not None and not fetch.outcome.failure.definite:
        own |= [UNCERTAIN]
    origin = name_in(fetch.result_url or "")
    if origin and (not fetch.is_final or fetch.delivery.state == "waiting"):
        own[ORIGIN] = origin
        if fetch.delivery.left:
            own[LEFT] = origin
    return own | {USER + name: value for name, value in fetch.labels.items()}


def new_row(fetch: Fetch, namespace: Namespace, *, version: int, now: int) -> Timer:
    key = namespace.key_of(fetch.req_id)
    stage, due_at = place(fetch, now)
    headers: dict[str, str] = {"method": fetch.request.method}
    if (size := size_of(fetch.request)) > LITTLE:
        headers[SIZE] = str(size)
    if fetch.result_url is not None:
        headers["result-url"] = fetch.result_url
    return Timer(
        shard_id=key.shard_id,
        uuid=key.uuid,
        namespace=namespace.name,
        timer_id=fetch.req_id,
        due_at=due_at,
        version=version,
        detail=Detail(
            execute_at=due_at,
            callback_url=fetch.request.url,
            delivery_id=_delivery_id(stage, fetch),
            created_at=fetch.created_at,
            updated_at=fetch.created_at,
            callback_timeout_ms=fetch.timeout_ms,
            delivery=Delivery.AT_MOST_ONCE,
            headers=headers,
            labels=labels(fetch),
        ),
    )


def moved(row: Timer, fetch: Fetch, now: int) -> Timer:
    """The row where it belongs."""
    stage, due_at = place(fetch, now)
    last = LastOutcome(outcome=_RESULTS[fetch.state], at=now, detail=_words(fetch))
    detail = replace(
        row.detail,
        execute_at=due_at,
        delivery_id=_delivery_id(stage, fetch),
        labels=labels(fetch),
        last_outcome=last,
        first_attempt_at=None,
        updated_at=now,
    )
    return replace(row, state=State.SCHEDULED, due_at=due_at, attempts=0, generation=row.generation + 1, detail=detail)


def ending(fetch: Fetch, *, now: int, not_before: int = 0, reachable: bool | None) -> Ending:
    """What becomes of the row after an attempt that brought the fetch to its current state. Fetches keep their own
    account of attempts."""
    stage, due_at = place(fetch, now)
    return Ending(
        outcome=_RESULTS[fetch.state],
        next="rescheduled",
        next_at=max(due_at, not_before),
        delivery_id=_delivery_id(stage, fetch),
        labels=labels(fetch),
        detail=_words(fetch),
        started_at=now,
        reachable=reachable,
        kept=False,
    )


def summary_of(row: Timer, secrets: Secrets) -> FetchSummary:
    detail = row.detail
    return FetchSummary(
        req_id=row.timer_id,
        state=state_of(row),
        method=detail.headers["method"],
        url=secrets.listed_url(detail.callback_url),
        labels={name.removeprefix(USER): value for name, value in detail.labels.items() if name.startswith(USER)},
        created_at=to_instant(detail.created_at),
        detail=detail.last_outcome.detail if detail.last_outcome is not None else "",
        delivery=_delivery_of(row),
    )


def _delivery_of(row: Timer) -> DeliveryState | None:
    """Of the result; None for a fetch that ended under an earlier version, whose row does not say."""
    if state_of(row) not in FINAL or "result-url" not in row.detail.headers:
        return "none"
    state: DeliveryState | None = msgspec.convert(row.detail.labels.get(DELIVERY), DeliveryState | None)
    return state


def _words(fetch: Fetch) -> str:
    return fetch.outcome.words if fetch.outcome is not None else ""
