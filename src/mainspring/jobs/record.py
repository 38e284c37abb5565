"""A job as the registry keeps it, and what the rest works with once it is understood.

A definition is JSON that another program may have written: everything but the schedule may be absent, fields that are
not known mean nothing (and go when the job is changed here), instants are read as RFC 3339 or epoch milliseconds. The
key of the record is the name. What cannot be understood is *broken*: a value with a problem, never an exception, so
that it stops no other job.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from mainspring.delivery.headers import check_headers
from mainspring.errors import FieldError, InvalidInput, MainspringError, UnsafeTarget, plain_words
from mainspring.jobs.calendar.calendar import Calendar, Dst
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.messages import (
    By,
    Catchup,
    CatchupWindow,
    Jitter,
    JobName,
    JobTimeout,
    MaxRuns,
    Method,
    Note,
    Overlap,
    Route,
    Schedule,
    Zone,
)
from mainspring.model import Record, RetryPolicy
from mainspring.wire.instants import LAST_INSTANT, Instant, to_ms
from mainspring.wire.message import CallbackUrl, Headers, Labels

DEFAULT_POLICY: Final = RetryPolicy(max_attempts=3, on_exhausted="drop")
"""Of jobs that have none of their own."""
CheckUrl = Callable[[str], object]
"""Raises `InvalidInput` or `UnsafeTarget` for a destination that may not be called, whatever its name resolves to."""
_TERMINATE: Final = (
    "Expected another overlap policy, got terminateOther: a call that is under way cannot be undone, and to close its "
    "connection would only make its outcome unknown; cancelOther stops what can be stopped"
)


class Terms(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a calendar is made from. Jobs with the same name and terms have the same instants."""

    schedule: str = ""
    timezone: str = "UTC"
    seconds: bool = False
    dst: Dst = Dst()


class Bounds(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which instants of its calendar are a job's: from one to another, both included, and so many launches."""

    start_at: int | None = None
    end_at: int | None = None
    max_runs: int | None = None

    def has(self, instant: int) -> bool:
        return (self.start_at or 0) <= instant and (self.end_at is None or instant <= self.end_at)

    def runs_left(self, runs: int) -> int | None:
        return None if self.max_runs is None else max(0, self.max_runs - runs)


class Definition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the record of a job says."""

    schedule: Schedule
    timezone: Zone = "UTC"
    seconds: bool = False
    url: CallbackUrl | None = None
    route: Route | None = None
    method: Method = "POST"
    headers: Headers = {}
    body: Raw | UnsetType = UNSET
    timeout_seconds: JobTimeout = 10.0
    retry_policy: RetryPolicy | None = None
    overlap: Overlap = "skip"
    catchup: Catchup = "latest"
    catchup_window_seconds: CatchupWindow = 3600.0
    dst: Dst = Dst()
    jitter_seconds: Jitter = 0.0
    start_at: Instant | None = None
    end_at: Instant | None = None
    max_runs: MaxRuns | None = None
    labels: Labels = {}
    paused: bool = False
    note: Note = ""
    by: By = ""
    paused_at: int | None = None
    """When the newest pause began; kept after it."""
    resumed_at: int | None = None
    generation: int = 1
    created_at: int = 0
    """0: another program wrote it, and did not say."""
    updated_at: int = 0

    @property
    def terms(self) -> Terms:
        return Terms(self.schedule, self.timezone, self.seconds, self.dst)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.starts_at, self.ends_at, self.max_runs)

    @property
    def starts_at(self) -> int | None:
        return None if self.start_at is None else to_ms(self.start_at)

    @property
    def ends_at(self) -> int | None:
        return None if self.end_at is None else to_ms(self.end_at)

    @property
    def policy(self) -> RetryPolicy:
        """How a launch is retried. When no attempt is left it is over: the ledger says how it ended."""
        return DEFAULT_POLICY if self.retry_policy is None else replace(self.retry_policy, on_exhausted="drop")


class Job(Struct, frozen=True, kw_only=True):
    """A definition that was understood."""

    name: str
    version: int
    """Of its record."""
    seal: str
    """Of its text: another seal, another definition, or one that is understood since the settings have changed."""
    definition: Definition
    calendar: Calendar
    url: str


class BrokenJob(Struct, frozen=True, kw_only=True):
    """A definition that was not understood, and why."""

    name: str
    version: int
    seal: str
    problem: str
    definition: Definition | None


class Routing(Struct, frozen=True):
    """Where routes lead, and what the service behind them knows Mainspring by."""

    base_url: str = ""
    token: str = ""

    def url_of(self, name: str, definition: Definition) -> str:
        if definition.url is not None:
            return definition.url
        return self.base_url.rstrip("/") + (definition.route or f"/jobs/trigger/{name}")


def calendar_of(name: str, terms: Terms) -> Calendar:
    """Raises `InvalidInput` for a schedule or a zone that makes no sense. The name decides what `H` stands for."""
    return _calendar(name if "H" in terms.schedule.upper() else "", terms)


@lru_cache(maxsize=20_000)
def _calendar(name: str, terms: Terms) -> Calendar:
    try:
        schedule = parse(terms.schedule, job=name, seconds=terms.seconds)
    except InvalidInput as error:
        raise InvalidInput(error.detail, errors=(FieldError("/schedule", error.detail),)) from error
    return Calendar(schedule, terms.timezone, terms.dst)


def read(record: Record, routing: Routing, *, check_url: CheckUrl) -> Job | BrokenJob:
    """What a record of the registry means."""
    name, seal = record.key, blake2b(record.value, digest_size=8).hexdigest()
    definition: Definition | None = None
    try:
        _check_name(name)
        definition = msgspec.json.decode(record.value, type=Definition)
        check(name, definition, routing, check_url=check_url)
        calendar = calendar_of(name, definition.terms)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"Expected a job as JSON, got: {plain_words(str(error))}"
        return _broken(record, seal, problem, definition)
    except MainspringError as error:
        return _broken(record, seal, error.detail, definition)
    url = routing.url_of(name, definition)
    return Job(name=name, version=record.version, seal=seal, definition=definition, calendar=calendar, url=url)


def _broken(record: Record, seal: str, problem: str, definition: Definition | None) -> BrokenJob:
    # The settings may be what is wrong: under others the same text has another seal, and its clock is told.
    return BrokenJob(
        name=record.key, version=record.version, seal=f"{seal}-broken", problem=problem, definition=definition
    )


def _check_name(name: str) -> None:
    try:
        msgspec.convert(name, JobName)
    except msgspec.ValidationError as error:
        detail = "Expected a name of at most 128 letters, digits, dots, underscores and dashes, got another one"
        raise InvalidInput(detail, errors=(FieldError("/name", detail),)) from error


def check(name: str, definition: Definition, routing: Routing, *, check_url: CheckUrl) -> None:
    """Raise `InvalidInput` that names every wrong field."""
    errors: list[FieldError] = []
    try:
        calendar_of(name, definition.terms)
    except InvalidInput as error:
        errors += error.errors
    errors += _target_errors(name, definition, routing, check_url)
    try:
        check_headers(definition.headers)
    except InvalidInput as error:
        errors += error.errors
    if definition.overlap == "terminateOther":
        errors.append(FieldError("/overlap", _TERMINATE))
    errors += _bound_errors(definition)
    if errors:
        raise InvalidInput(errors[0].detail, errors=tuple(errors))


def _target_errors(name: str, definition: Definition, routing: Routing, check_url: CheckUrl) -> list[FieldError]:
    if definition.url is not None and definition.route is not None:
        return [FieldError("/route", "Expected at most one of url and route, got both")]
    if definition.route is not None and (flaw := _flaw(definition.route)):
        return [FieldError("/route", f"Expected a path below job_base_url, got one {flaw}")]
    if definition.url is None:
        if not routing.base_url:
            return [FieldError("/url", "Expected a url, or the setting job_base_url for a route, got neither")]
        if not routing.token and not _has_authorization(definition):
            detail = "Expected the setting job_token, or a header authorization of the job's own, for a route, got none"
            return [FieldError("/route", detail)]
    try:
        check_url(routing.url_of(name, definition))
    except (InvalidInput, UnsafeTarget) as error:
        return [FieldError("/url" if definition.route is None else "/route", error.detail)]
    return []


def _flaw(route: str) -> str:
    """What would let a route lead elsewhere than below the base URL, if anything does."""
    if route.startswith("//"):
        return "that begins with //"
    return "with .. in it" if ".." in unquote(route.partition("?")[0]).split("/") else ""


def _has_authorization(definition: Definition) -> bool:
    return any(header.lower() == "authorization" for header in definition.headers)


def _bound_errors(definition: Definition) -> list[FieldError]:
    errors: list[FieldError] = []
    for pointer, instant in (("/startAt", definition.starts_at), ("/endAt", definition.ends_at)):
        if instant is not None and not 0 <= instant <= LAST_INSTANT:
            errors.append(FieldError(pointer, "Expected an instant of the years 1970 to 9999 in UTC"))
    if (definition.starts_at or 0) > (definition.ends_at or LAST_INSTANT):
        errors.append(FieldError("/endAt", "Expected an end that is not before startAt, got an earlier one"))
    return errors
