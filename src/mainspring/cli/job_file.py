"""A file of jobs, in TOML, YAML or JSON, read as a whole: every job in it, or every mistake.

    [jobs.daily-report]                     {"jobs": {"daily-report": {"schedule": "0 9 * * *", ...}}}
    schedule = "0 9 * * *"                  {"jobs": [{"name": "daily-report", "schedule": "0 9 * * *", ...}]}

The fields are those of `POST /v1/jobs/create`. Labels at the top are those of every job in the file, and say which
jobs it is about: applying it leaves the others alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from mainspring.cli.yaml_file import read_yaml
from mainspring.errors import FieldError, InvalidInput
from mainspring.jobs.calendar.calendar import Calendar
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.messages import CreateJob
from mainspring.text import counted
from mainspring.wire.message import Labels
from mainspring.wire.strict_json import decode, decode_items

Fields = dict[str, object]
Form = Literal["toml", "yaml", "json"]
_FORMS: Final[dict[str, Form]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_YAML: Final = re.compile(rb"""^(?:---|["']?jobs["']?\s*:(?:\s|$))""", re.MULTILINE)
"""What no file of TOML has at the beginning of a line, and a file of YAML has."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    jobs: dict[str, Fields] | list[Fields]
    labels: Labels = {}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job as the file describes it, and the fields that are named there."""

    job: CreateJob
    named: frozenset[str]


@dataclass(frozen=True, slots=True)
class JobFile:
    """The jobs of a file by name, and the labels that all of them have."""

    jobs: Mapping[str, Wanted]
    labels: Mapping[str, str]


def form_of(file: str) -> Form | None:
    """What the name of a file says about its contents."""
    return _FORMS.get(Path(file).suffix.lower())


def read_jobs(data: bytes, form: Form | None = None, *, labels: Mapping[str, str] | None = None) -> JobFile:
    """The jobs of a file, with these labels and its own. Raises `InvalidInput` that names every wrong field of every
    job. A form that is not given is told by the contents."""
    found = decode(_as_json(data, form), _File)
    scope = {**found.labels, **(labels or {})}
    jobs: dict[str, Wanted] = {}
    wrong: list[FieldError] = []
    for pointer, fields in _entries(found.jobs):
        wrong += _add_labels(pointer, fields, scope)
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
    return JobFile(jobs, scope)


def _add_labels(pointer: str, fields: Fields, scope: Mapping[str, str]) -> Iterator[FieldError]:
    """Give a job the labels of its file."""
    own = fields.get("labels", {})
    if not scope or not isinstance(own, dict):
        return
    for name, value in scope.items():
        if own.get(name, value) != value:
            yield FieldError(f"{pointer}/labels/{name}", f"Expected {value!r} like all of the file, got another value")
    fields["labels"] = {**own, **scope}


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


def _as_json(data: bytes, form: Form | None) -> bytes:
    if form is None:
        form = "json" if data.lstrip()[:1] == b"{" else "yaml" if _YAML.search(data) else "toml"
    if form == "json":
        return data
    value = read_yaml(data) if form == "yaml" else _read_toml(data)
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"Expected values that JSON has as well, got: {error}") from error


def _read_toml(data: bytes) -> object:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Expected TOML, YAML with `jobs:` at the top, or a JSON object, got: {error}") from error
