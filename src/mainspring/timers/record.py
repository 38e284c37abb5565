"""What a user's request makes of a timer: pure functions from the existing row to the row to write.

`schedule` starts a new delivery: attempts from zero and a new delivery id, because what follows is not a repeat
of what went before. Changes that leave the time alone also leave the attempts, the delivery id and a call in flight.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from mainspring.delivery.secrets import Secrets
from mainspring.delivery.webhook import CORRELATION_ID, correlation_in
from mainspring.errors import Conflict, wrong_field
from mainspring.model import FOREVER, Detail, Namespace, State, Timer
from mainspring.store import END, START, TimerFilter
from mainspring.timers.messages import CreateTimer, UpdateTimer
from mainspring.wire.instants import LAST_INSTANT, to_ms
from mainspring.wire.message import HEADER_LIMIT

CLOCK_STEP_MS: Final = 3_600_000
"""How far the clock may have been set back since a running timer was begun."""


def asked_instant(request: CreateTimer | UpdateTimer, now: int) -> int | None:
    """The instant that a request asks for, if any."""
    if request.execute_at is not UNSET and request.delay_seconds is not UNSET:
        raise wrong_field("/delaySeconds", "Expected one of executeAt and delaySeconds, got both")
    if request.execute_at is not UNSET:
        instant = to_ms(request.execute_at)
        if not 0 <= instant <= LAST_INSTANT:
            raise wrong_field("/executeAt", "Expected an instant from 1970 to 9999 in UTC")
        return instant
    if request.delay_seconds is not UNSET:
        return min(now + round(request.delay_seconds * 1000), LAST_INSTANT)
    return None


def payload_text(payload: Raw | UnsetType, limit: int) -> str | None:
    """The payload as it was written. JSON null is no payload."""
    if payload is UNSET:
        return None
    data = bytes(payload)
    if len(data) > limit:
        raise wrong_field("/payload", f"Expected at most {limit} bytes, got {len(data)}")
    return None if data == b"null" else data.decode()


def created(
    request: CreateTimer,
    namespace: Namespace,
    *,
    now: int,
    version: int,
    delivery_id: str,
    max_payload: int,
    correlation_id: str = "",
) -> Timer:
    """A new timer, whose first version is `version`. `correlation_id` is that of the request, if it has one."""
    execute_at = asked_instant(request, now)
    if execute_at is None:
        raise wrong_field("/executeAt", "Expected one of executeAt and delaySeconds, got neither")
    key = namespace.key_of(request.timer_id)
    return Timer(
        shard_id=key.shard_id,
        uuid=key.uuid,
        namespace=namespace.name,
        timer_id=request.timer_id,
        due_at=max(execute_at, now),
        payload=payload_text(request.payload, max_payload),
        version=version,
        detail=Detail(
            execute_at=execute_at,
            callback_url=request.callback_url,
            delivery_id=delivery_id,
            created_at=now,
            updated_at=now,
            callback_timeout_ms=round(request.callback_timeout_seconds * 1000),
            delivery=request.delivery,
            headers=_correlated(request.headers, correlation_id) if correlation_id else request.headers,
            labels=request.labels,
            retry_policy=request.retry_policy,
        ),
    )


def _correlated(headers: dict[str, str], correlation_id: str) -> dict[str, str]:
    """The headers of the callback, with the correlation id of the request; one that they have is its owner's choice."""
    if len(headers) >= HEADER_LIMIT or correlation_in(headers):
        return headers
    return {**headers, CORRELATION_ID: correlation_id}


def recreated(fresh: Timer, previous: Timer) -> Timer:
    """A create for an id that exists: everything is new, but the generation goes on."""
    return replace(
        fresh,
        generation=previous.generation + 1,
        detail=replace(fresh.detail, created_at=previous.detail.created_at),
    )


def updated(
    request: UpdateTimer, timer: Timer, *, now: int, delivery_id: str, max_payload: int, secrets: Secrets
) -> Timer:
    """Absent fields keep their value, and so do secrets that come back hidden."""
    if request.if_generation is not UNSET and request.if_generation != timer.generation:
        raise Conflict(f"Expected generation {request.if_generation}, got {timer.generation}")
    detail = replace(timer.detail, updated_at=now)
    if request.callback_url is not UNSET:
        detail = replace(
            detail, callback_url=secrets.kept_url(request.callback_url, detail.callback_url, "/callbackUrl")
        )
    if request.headers is not UNSET:
        detail = replace(detail, headers=secrets.kept_headers(request.headers, detail.headers))
    if request.retry_policy is not UNSET:
        detail = replace(detail, retry_policy=request.retry_policy)
    if request.callback_timeout_seconds is not UNSET:
        detail = replace(detail, callback_timeout_ms=round(request.callback_timeout_seconds * 1000))
    if request.delivery is not UNSET:
        detail = replace(detail, delivery=request.delivery)
    if request.labels is not UNSET:
        detail = replace(detail, labels=request.labels)
    payload = timer.payload if request.payload is UNSET else payload_text(request.payload, max_payload)
    changed = replace(timer, generation=timer.generation + 1, detail=detail, payload=payload)
    execute_at = asked_instant(request, now)
    return changed if execute_at is None else schedule(changed, execute_at, now=now, delivery_id=delivery_id)


def schedule(timer: Timer, execute_at: int, *, now: int, delivery_id: str) -> Timer:
    return replace(
        timer,
        state=State.SCHEDULED,
        due_at=max(execute_at, now),
        attempts=0,
        detail=replace(timer.detail, execute_at=execute_at, delivery_id=delivery_id, first_attempt_at=None, hasty=0),
    )


def run_now(timer: Timer, *, now: int, delivery_id: str) -> Timer:
    if timer.state is State.RUNNING:
        raise Conflict(f"Timer {timer.timer_id!r} is running: an attempt is in flight")
    touched = replace(timer, generation=timer.generation + 1, detail=replace(timer.detail, updated_at=now))
    return schedule(touched, now, now=now, delivery_id=delivery_id)


def parked(timer: Timer, *, now: int) -> Timer | None:
    """None when it is parked already. A call in flight goes on; it will not be repeated."""
    if timer.state is State.PARKED:
        return None
    return replace(
        timer,
        state=State.PARKED,
        due_at=FOREVER,
        generation=timer.generation + 1,
        detail=replace(timer.detail, updated_at=now),
    )


def narrowed(where: TimerFilter, *, now: int) -> TimerFilter:
    """The same timers, in as short a part of the due order as their states allow: parked ones, and no others, wait for
    nothing, and a running one was due when it was begun."""
    states = set(where.states)
    if not states:
        return where
    first, end = START.due_at, END.due_at
    if states == {State.PARKED}:
        first = FOREVER
    elif State.PARKED not in states:
        end = now + CLOCK_STEP_MS if states == {State.RUNNING} else FOREVER
    return replace(
        where,
        due_from=first if where.due_from is None else max(first, where.due_from),
        due_to=end if where.due_to is None else min(end, where.due_to),
    )


def resumed(timer: Timer, *, now: int) -> Timer:
    """Attempts start again, for the same delivery: receivers recognise what may have arrived before by its id."""
    if timer.state is not State.PARKED:
        raise Conflict(f"Timer {timer.timer_id!r} is {timer.state}, not parked")
    return replace(
        timer,
        state=State.SCHEDULED,
        due_at=max(timer.detail.execute_at, now),
        attempts=0,
        generation=timer.generation + 1,
        detail=replace(timer.detail, updated_at=now, first_attempt_at=None, hasty=0),
    )
