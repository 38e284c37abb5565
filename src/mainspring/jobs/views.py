"""Jobs and runs as users see them."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw
from msgspec.structs import replace

from mainspring.delivery.secrets import Secrets
from mainspring.jobs.calendar.calendar import Calendar
from mainspring.jobs.clock_state import ClockState
from mainspring.jobs.ledger import LedgerEntry, Standing, launch_id
from mainspring.jobs.messages import InstantView, JobState, JobView, RunState, RunView
from mainspring.jobs.record import BrokenJob, Definition, Job
from mainspring.model import State, Timer
from mainspring.wire.instants import to_instant

_NULL: Final = Raw(b"null")
_UNREAD: Final = Definition(schedule="")
"""Stands for a definition that could not be read at all."""
_ROW_STATES: Final[dict[State, RunState]] = {State.RUNNING: "running", State.RETRYING: "retrying"}


def job_view(
    job: Job | BrokenJob, state: ClockState, *, now: int, secrets: Secrets | None, listed: bool = False
) -> JobView:
    """`secrets` are hidden, if given; in a list, those of URLs, too."""
    definition = job.definition or _UNREAD
    counts = state.created_at == definition.created_at  # otherwise it belongs to an earlier job of the same name
    next_at = _next_at(job, state if counts else ClockState(), now) if isinstance(job, Job) else None
    last_run = max((state.last_run if counts else None) or 0, definition.run_until(now))
    shown: JobState = "scheduled" if next_at is not None else "finished"
    if isinstance(job, BrokenJob):
        shown = "broken"
    elif definition.paused:
        shown = "paused"
    return JobView(
        name=job.name,
        state=shown,
        problem=job.problem if isinstance(job, BrokenJob) else "",
        schedule=definition.schedule,
        timezone=definition.timezone,
        seconds=definition.seconds,
        url=_listed(definition.url, secrets) if listed else definition.url,
        route=_listed(definition.route, secrets) if listed else definition.route,
        method=definition.method,
        headers=secrets.shown(definition.headers) if secrets else definition.headers,
        body_json=_NULL if definition.body is UNSET else definition.body,
        timeout_seconds=definition.timeout_seconds,
        retry_policy=definition.retry_policy,
        overlap=definition.overlap,
        catchup=definition.catchup,
        catchup_window_seconds=definition.catchup_window_seconds,
        dst=definition.dst,
        jitter_seconds=definition.jitter_seconds,
        start_at=None if definition.starts_at is None else to_instant(definition.starts_at),
        end_at=None if definition.ends_at is None else to_instant(definition.ends_at),
        max_runs=definition.max_runs,
        labels=definition.labels,
        note=definition.note,
        by=definition.by,
        generation=definition.generation,
        runs=state.runs if counts else 0,
        last_run=to_instant(last_run) if last_run else None,
        next_at=None if next_at is None or definition.paused else to_instant(next_at),
        created_at=to_instant(definition.created_at),
        updated_at=to_instant(definition.updated_at),
    )


def with_standing(view: JobView, standing: Standing) -> JobView:
    return replace(
        view,
        last_run=None if standing.last_run is None else to_instant(standing.last_run),
        last_outcome=standing.last_outcome,
        consecutive_failures=standing.failures,
    )


def _listed(url: str | None, secrets: Secrets | None) -> str | None:
    return url if url is None or secrets is None else secrets.listed_url(url)


def _next_at(job: Job, state: ClockState, now: int) -> int | None:
    """The next instant that is run, whether already planned or not."""
    definition = job.definition
    after = max(now, (definition.starts_at or 0) - 1)
    following = job.calendar.next(after)
    until = definition.ends_at
    if definition.bounds.runs_left(state.runs) == 0:
        until = state.last_run or 0  # the last ones may be planned but still to come
    return None if following is None or (until is not None and following > until) else following


def run_view(job: str, entry: LedgerEntry, row: Timer | None) -> RunView:
    """An entry of the ledger. If it is not over, its row tells how it stands, if it has one."""
    run = entry.run
    started_at, state, attempts, status = run.started_at, run.state, run.attempts, run.status
    reason, duration_ms = run.reason, run.duration_ms
    if row is not None and not run.is_final:
        state = _ROW_STATES.get(row.state, state)
        started_at = row.detail.first_attempt_at
        attempts = row.attempts
        last = row.detail.last_outcome
        if last is not None and row.attempts:
            status, reason, duration_ms = last.status, last.detail, last.duration_ms
    due_at = run.instant if run.due_at is None else run.due_at
    return RunView(
        launch_id=launch_id(job, entry.stamp),
        name=job,
        kind=run.kind,
        state=state,
        scheduled_at=to_instant(run.instant),
        scheduled_until=None if run.until is None else to_instant(run.until),
        count=run.count,
        reason=reason,
        by=run.by,
        planned_at=to_instant(run.planned_at),
        started_at=None if started_at is None else to_instant(started_at),
        late_ms=None if started_at is None else max(0, started_at - due_at),
        finished_at=None if run.finished_at is None else to_instant(run.finished_at),
        attempts=attempts,
        status=status,
        duration_ms=duration_ms,
        answer_head=run.answer_head,
        delivery_id=run.delivery_id,
        rerun_of=launch_id(job, run.rerun_of) if run.rerun_of else None,
    )


def instant_view(calendar: Calendar, instant: int) -> InstantView:
    return InstantView(
        at=to_instant(instant),
        local=calendar.local(instant).isoformat(timespec="seconds"),
        mark=calendar.mark(instant),
    )
