"""What a program says about a job, as the request that the API would get, with the same checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict, TypeVar, Unpack

from msgspec import UNSET, UnsetType

from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import Catchup, CreateJob, Method, Overlap, UpdateJob
from mainspring.model import RetryPolicy
from mainspring.wire.strict_json import decode, encode

M = TypeVar("M", CreateJob, UpdateJob)


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
    return _checked({**said, **fields}, CreateJob)


def update_request(
    name: str,
    *,
    if_generation: int | UnsetType = UNSET,
    schedule: str | UnsetType = UNSET,
    dry_run: bool = False,
    **fields: Unpack[JobFields],
) -> UpdateJob:
    said = {"name": name, "if_generation": if_generation, "schedule": schedule, "dry_run": dry_run}
    return _checked({**said, **fields}, UpdateJob)


def _checked(values: Mapping[str, object], request: type[M]) -> M:
    wire = dict(zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True))
    document = {wire.get(name, name): value for name, value in values.items() if value is not UNSET}
    return decode(encode(document, "fields"), request)
