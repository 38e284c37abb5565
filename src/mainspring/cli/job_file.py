"""A file of jobs, in TOML or JSON, read as a whole: every job in it, or every mistake.

    [jobs.daily-report]                     {"jobs": {"daily-report": {"schedule": "0 9 * * *", ...}}}
    schedule = "0 9 * * *"                  {"jobs": [{"name": "daily-report", "schedule": "0 9 * * *", ...}]}

The fields are those of `POST /v1/jobs/create`. What begins with a brace is JSON.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct

from mainspring.errors import FieldError, InvalidInput
from mainspring.jobs.calendar.calendar import Calendar
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.messages import CreateJob
from mainspring.text import counted
from mainspring.wire.strict_json import decode, decode_items

Fields = dict[str, object]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    jobs: dict[str, Fields] | list[Fields]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job as the file describes it, and the fields that are named there."""

    job: CreateJob
    named: frozenset[str]


def read_jobs(data: bytes) -> dict[str, Wanted]:
    """The jobs of a file by name. Raises `InvalidInput` that names every wrong field of every job."""
    found = decode(data if data.lstrip()[:1] == b"{" else _from_toml(data), _File).jobs
    jobs: dict[str, Wanted] = {}
    wrong: list[FieldError] = []
    for pointer, fields in _entries(found):
        [job] = decode_items([Raw(msgspec.json.encode(fields))], CreateJob)
        if isinstance(job, InvalidInput):
            wrong += [FieldError(pointer + field.pointer, field.detail) for field in job.errors]
            continue
        wrong += [FieldError(pointer + field.pointer, field.detail) for field in _calendar_problems(job)]
        if "dryRun" in fields:
            wrong.append(FieldError(f"{pointer}/dryRun", "unknown field"))
        if job.name in jobs:
            wrong.append(FieldError(f"{pointer}/name", "Expected each name once, got it again"))
        jobs[job.name] = Wanted(job, frozenset(fields))
    if wrong:
        raise InvalidInput(
            f"Expected a valid file of jobs, got one with {counted(len(wrong), 'mistake')}", errors=tuple(wrong)
        )
    return jobs


def _entries(jobs: dict[str, Fields] | list[Fields]) -> Iterator[tuple[str, Fields]]:
    """Each job with its name among its fields, and what it is called in messages."""
    if isinstance(jobs, dict):
        for name, fields in jobs.items():
            yield f"/jobs/{name}", {**fields, "name": name}
    else:
        for index, fields in enumerate(jobs):
            yield f"/jobs/{fields.get('name', index)}", fields


def _calendar_problems(job: CreateJob) -> Iterator[FieldError]:
    """What the server would say about the schedule and the zone, before anything is sent to it."""
    try:
        schedule = parse(job.schedule, job=job.name, seconds=job.seconds)
    except InvalidInput as error:
        yield FieldError("/schedule", error.detail)
        return
    try:
        Calendar(schedule, job.timezone, job.dst)
    except InvalidInput as error:
        yield FieldError("/timezone", error.detail)


def _from_toml(data: bytes) -> bytes:
    try:
        return msgspec.json.encode(tomllib.loads(data.decode("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Expected TOML, or JSON with an object at the top, got: {error}") from error
