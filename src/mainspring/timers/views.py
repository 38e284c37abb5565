"""Timers and their attempts as users see them."""

from __future__ import annotations

from msgspec import Raw

from mainspring.delivery.secrets import Secrets
from mainspring.model import Attempt, State, Timer
from mainspring.timers.messages import AttemptView, OutcomeView, TimerView
from mainspring.wire.instants import to_instant

_NULL = Raw(b"null")


def view_of(timer: Timer, secrets: Secrets | None, *, listed: bool = False) -> TimerView:
    """`secrets` are hidden, if given; in a list, those of URLs, too."""
    detail = timer.detail
    last = detail.last_outcome
    return TimerView(
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        execute_at=to_instant(detail.execute_at),
        callback_url=secrets.listed_url(detail.callback_url) if listed and secrets else detail.callback_url,
        payload_json=_NULL if timer.payload is None else Raw(timer.payload),
        headers=secrets.shown(detail.headers) if secrets else detail.headers,
        retry_policy=detail.retry_policy,
        callback_timeout_seconds=detail.callback_timeout_ms / 1000,
        delivery=detail.delivery,
        labels=detail.labels,
        state=timer.state,
        next_attempt_at=None if timer.state in (State.PARKED, State.RUNNING) else to_instant(timer.due_at),
        attempts=timer.attempts,
        generation=timer.generation,
        delivery_id=detail.delivery_id,
        created_at=to_instant(detail.created_at),
        updated_at=to_instant(detail.updated_at),
        last_outcome=None
        if last is None
        else OutcomeView(outcome=last.outcome, at=to_instant(last.at), status=last.status, detail=last.detail),
        hasty_reschedules=detail.hasty,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        generation=attempt.generation,
        delivery_id=attempt.delivery_id,
        scheduled_at=to_instant(attempt.scheduled_at),
        started_at=to_instant(attempt.started_at),
        duration_ms=attempt.duration_ms,
        outcome=attempt.outcome,
        status=attempt.status,
        detail=attempt.detail,
        answer_head=attempt.answer_head,
        next=attempt.next,
        next_at=None if attempt.next_at is None else to_instant(attempt.next_at),
    )
