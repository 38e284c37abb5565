"""A job as the registry keeps it, and what the rest works with once it is understood.

A definition is JSON that another program may have written: everything but the schedule may be absent, fields that are
not known mean nothing (and go when the job is changed here), instants are read as RFC 3339 or epoch milliseconds. What
else is understood is in `foreign`. The key of the record is the name. What cannot be understood is *broken*: a value
with a problem, never an exception, so that it stops no other job.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from mainspring.errors import InvalidInput, wrong_field
from mainspring.jobs.calendar.calendar import Calendar, Dst
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.messages import (
    By,
    Catchup,
    CatchupWindow,
    Jitter,
    JobTimeout,
    MaxRuns,
    Method,
    Note,
    Overlap,
    Route,
    Schedule,
    Zone,
)
from mainspring.model import RetryPolicy
from mainspring.wire.instants import Instant, to_ms
from mainspring.wire.message import CallbackUrl, Headers, Labels

DEFAULT_POLICY: Final = RetryPolicy(max_attempts=3, on_exhausted="drop")
"""Of jobs that have none of their own."""

AHEAD_MS: Final = 15_000
"""How long before its instant a run is planned at most, and how much the clocks of other programs may be ahead."""

KnownOverlap = Literal[Overlap, "terminateOther"]
"""The last is not offered; a registry that others write may have it."""


class Terms(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a calendar is made from. Jobs with the same name and terms have the same instants."""

    schedule: str = ""
    timezone: str = "UTC"
    seconds: bool = False
    dst: Dst = Dst()


class Bounds(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which instants of its calendar are a job's: from one to another, inclusive, and a number of runs."""

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
    overlap: KnownOverlap = "skip"
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
    last_run: int | None = None
    """The newest instant that was run: by us, or by whoever has written the record. It is no part of the job's terms,
    and changes by itself; see `last_runs`."""
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

    def run_until(self, now: int) -> int:
        """The newest instant that was run, by what the record says; 0: none. One that is still to come is not believed:
        nobody can have run it."""
        return self.last_run if self.last_run is not None and self.last_run <= now + AHEAD_MS else 0

    @property
    def policy(self) -> RetryPolicy:
        """How a run is retried. When no attempt is left it is over: the ledger says how it ended."""
        return DEFAULT_POLICY if self.retry_policy is None else replace(self.retry_policy, on_exhausted="drop")


class Job(Struct, frozen=True, kw_only=True):
    """A definition that was understood."""

    name: str
    version: int
    """Of its record."""
    seal: str
    """Of its text without `lastRun`: another seal means another definition, or one that is understood since the
    settings changed."""
    definition: Definition
    calendar: Calendar
    url: str
    terms: Terms
    policy: RetryPolicy
    """Both of the definition, worked out once: every run asks for them."""


class BrokenJob(Struct, frozen=True, kw_only=True):
    """A definition that was not understood, and why."""

    name: str
    version: int
    seal: str
    problem: str
    definition: Definition | None


class Routing(Struct, frozen=True):
    """Where routes lead, and the token by which the service behind them recognises Mainspring."""

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
        raise wrong_field("/schedule", error.detail) from error
    return Calendar(schedule, terms.timezone, terms.dst)
