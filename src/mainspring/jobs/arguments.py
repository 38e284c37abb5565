"""What a program says about a job, as the request that the API would get, with the same checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from msgspec import UNSET, UnsetType

from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import (
    Catchup,
    CreateJob,
    JobState,
    Method,
    Overlap,
    RunKind,
    RunState,
    UpdateJob,
)
from mainspring.model import RetryPolicy
from mainspring.wire.arguments import json_of, request


class JobsWhere(TypedDict, total=False):
    """Which jobs; all conditions must hold; without any, everything matches."""

    name_prefix: str
    labels: Mapping[str, str]
    states: Sequence[JobState]


class RunsWhere(TypedDict, total=False):
    """Which entries of the ledger of runs; all conditions must hold; without any, everything matches."""

    states: Sequence[RunState]
    kinds: Sequence[RunKind]
    since: datetime
    """Scheduled at or after this instant."""
    until: datetime
    """Scheduled before this instant."""


class FunctionFields(TypedDict, total=False):
    """The settings of a function on a calendar. One that is absent has its default, or stays as it is."""

    timezone: str
    seconds: bool
    timeout_seconds: float
    retry_policy: RetryPolicy | None
    overlap: Overlap
    catchup: Catchup
    catchup_window_seconds: float
    dst: Dst
    jitter_seconds: float
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    labels: Mapping[str, str]


class JobFields(FunctionFields, total=False):
    """The fields of a job, apart from its name and schedule."""

    url: str | None
    route: str | None
    method: Method
    headers: Mapping[str, str]
    body: object
    """Any JSON-like value; None means no body."""


def create_request(
    name: str,
    schedule: str,
    *,
    paused: bool = False,
    note: str = "",
    by: str = "",
    dry_run: bool = False,
    **fields: Unpack[JobFields],
) -> CreateJob:
    said = {"name": name, "schedule": schedule, "paused": paused, "note": note, "by": by, "dry_run": dry_run}
    return request(CreateJob, _said({**said, **fields}))


def update_request(
    name: str,
    *,
    if_generation: int | UnsetType = UNSET,
    schedule: str | UnsetType = UNSET,
    dry_run: bool = False,
    **fields: Unpack[JobFields],
) -> UpdateJob:
    said = {"name": name, "if_generation": if_generation, "schedule": schedule, "dry_run": dry_run}
    return request(UpdateJob, _said({**said, **fields}))


def _said(values: Mapping[str, object]) -> Mapping[str, object]:
    return {**values, "body": json_of(values["body"], "a body")} if "body" in values else values
