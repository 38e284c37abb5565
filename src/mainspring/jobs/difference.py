"""Whether a job is as somebody wants it to be: the same question for a file of jobs and a program's functions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from mainspring.jobs.arguments import JobFields
from mainspring.jobs.messages import CreateJob, JobView
from mainspring.wire.instants import to_instant, to_ms

CONTENT: Final = {
    field: wire
    for field, wire in zip(CreateJob.__struct_fields__, CreateJob.__struct_encode_fields__, strict=True)
    if field not in ("name", "paused", "note", "by", "dry_run")
}
"""The fields that make a job, and their names on the wire. Whether it is paused is state, not content."""


class Difference(NamedTuple):
    """What a field holds, as JSON would have it."""

    old: object
    new: object


def differences(wanted: CreateJob, present: JobView) -> dict[str, Difference]:
    """The fields of a job's content that are not as wanted."""
    found = {
        field: Difference(old=_plain(field, getattr(present, field)), new=_plain(field, getattr(wanted, field)))
        for field in CONTENT
    }
    return {field: each for field, each in found.items() if each.old != each.new}


def content(wanted: CreateJob, fields: Iterable[str] = CONTENT) -> JobFields:
    """The content of a job, or these fields of it, as requests take it. The schedule is given separately."""
    found: Any = {field: getattr(wanted, field) for field in fields if field != "schedule"}
    if "body" in found and isinstance(wanted.body, UnsetType):
        found["body"] = None
    chosen: JobFields = found
    return chosen


def _plain(field: str, value: object) -> object:
    """The same value for what means the same, however it was written."""
    if isinstance(value, UnsetType):
        return None
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    if field in ("start_at", "end_at") and isinstance(value, datetime | int):
        return msgspec.to_builtins(to_instant(to_ms(value)))
    return msgspec.to_builtins(value)
