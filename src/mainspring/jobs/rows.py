"""The rows that jobs have in the engine: a *clock row* for each job, and a row for each run that is under way.

They live in two system namespaces, made when the first job is. What rows say, and what they say when they are to be
looked at from now on: pure. `row_store` reads and writes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from mainspring.jobs.clock_state import ClockState
from mainspring.jobs.ledger import Run
from mainspring.jobs.messages import RunKind
from mainspring.jobs.record import Job, Terms
from mainspring.jobs.webhook import UPCOMING
from mainspring.model import Detail, Namespace, Timer, to_json
from mainspring.unreadable import Unreadable, reason_of, set_aside

CLOCKS: Final = "mainspring.jobs"
RUNS: Final = "mainspring.launches"
_NOWHERE: Final = "clock:"


class Errand(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The payload of a run row: what its carrier cannot read from the definition."""

    kind: RunKind
    terms: Terms
    """Of the calendar by which it was planned."""
    created_at: int | None = None
    """Of the job by which it was planned: one of the same name may take its place. None: not known."""
    previous: str = ""
    next_at: tuple[int, ...] = ()
    """The next instants, found out when there was time for it; empty if there was not."""
    body: Raw | UnsetType = UNSET


def clock_row(name: str, state: ClockState | None, namespace: Namespace, *, delivery_id: str, now: int) -> Timer:
    """A clock that is due now. None: one that knows nothing."""
    key = namespace.key_of(name)
    return Timer(
        shard_id=key.shard_id,
        uuid=key.uuid,
        namespace=CLOCKS,
        timer_id=name,
        due_at=now,
        payload=None if state is None else to_json(state).decode(),
        detail=Detail(
            execute_at=now,
            callback_url=_NOWHERE,
            delivery_id=delivery_id,
            created_at=now,
            updated_at=now,
        ),
    )


def read_state(row: Timer) -> ClockState:
    """What a clock knows. An unreadable state counts as none: what the clock had run is in the ledger, and is not run
    again."""
    if row.payload is None:
        return ClockState()
    try:
        return msgspec.json.decode(row.payload, type=ClockState)
    except ValueError as error:
        set_aside(Unreadable("clock", row.timer_id, reason_of(error), row.version))
        return ClockState()


def run_row(
    identity: str,
    job: Job,
    run: Run,
    namespace: Namespace,
    *,
    upcoming: Sequence[int],
    body: Raw | UnsetType,
    now: int,
) -> Timer:
    """`upcoming` are instants in order, including those that follow the run, if they are known."""
    key = namespace.key_of(identity)
    following = bisect_right(upcoming, run.instant)
    errand = Errand(
        kind=run.kind,
        terms=job.terms,
        created_at=job.definition.created_at,
        previous=run.previous,
        next_at=tuple(upcoming[following : following + UPCOMING]),
        body=body,
    )
    return Timer(
        shard_id=key.shard_id,
        uuid=key.uuid,
        namespace=RUNS,
        timer_id=identity,
        due_at=max(run.moment, now),
        payload=to_json(errand).decode(),
        detail=Detail(
            execute_at=run.moment,
            callback_url=job.url,
            delivery_id=run.delivery_id,
            created_at=now,
            updated_at=now,
            callback_timeout_ms=round(job.definition.timeout_seconds * 1000),
            retry_policy=job.policy,
        ),
    )


def hastened(row: Timer, now: int) -> Timer:
    """The row, due now at the latest. A row that has begun and is retried keeps the instant it was begun for: its
    repeats must decide as it did."""
    detail = row.detail if row.attempts or row.due_at <= now else replace(row.detail, execute_at=now)
    return replace(row, due_at=min(row.due_at, now), detail=detail)
