"""Jobs on the wire: requests, answers, and the views of stored values.

Like those of timers: camelCase, unknown fields refused, instants read as RFC 3339 or epoch milliseconds and written
as RFC 3339 in UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from mainspring.jobs.calendar.calendar import Dst, Mark
from mainspring.model import RetryPolicy
from mainspring.text import NAME, PATH
from mainspring.wire.instants import Instant
from mainspring.wire.message import CallbackUrl, Cursor, Headers, Labels, Message, PageSize, View

JobName = Annotated[str, Meta(min_length=1, max_length=128, pattern=NAME)]
RecordName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1024,
        description="May be a name that is not valid for a job: its record is then broken.",
    ),
]
Schedule = Annotated[
    str, Meta(min_length=1, max_length=1000, description="Five cron fields, or a name such as @daily.")
]
Zone = Annotated[str, Meta(min_length=1, max_length=64, description="An IANA time zone, such as Europe/Berlin.")]
Route = Annotated[
    str, Meta(min_length=1, max_length=2048, pattern=PATH, description="A path below the configured job_base_url.")
]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
Overlap = Literal["skip", "bufferOne", "bufferAll", "allowAll", "cancelOther"]
Catchup = Literal["none", "latest", "all"]
Note = Annotated[str, Meta(max_length=1000)]
By = Annotated[str, Meta(max_length=255, description="Who did it, as a note to others.")]
JobTimeout = Annotated[float, Meta(ge=1, le=1800)]
CatchupWindow = Annotated[float, Meta(ge=0, le=31_536_000)]
Jitter = Annotated[float, Meta(ge=0, le=3600)]
MaxRuns = Annotated[
    int, Meta(ge=1, le=1_000_000_000, description="Runs by the calendar; skipped instants do not count.")
]
DryRun = Annotated[bool, Meta(description="Only check it, and return what it would be.")]

RunState = Literal[
    "planned", "buffered", "running", "retrying", "succeeded", "failed", "unknown", "skipped", "cancelled"
]
"""The last five are final."""
RunKind = Literal["scheduled", "catchup", "backfill", "manual", "rerun"]
JobState = Literal["scheduled", "paused", "finished", "broken"]
JobOutcome = Literal["succeeded", "failed", "unknown"]


class CreateJob(Message, frozen=True, kw_only=True):
    """A call on a calendar. At most one of url and route; with neither, the route is /jobs/trigger/<name>."""

    name: JobName
    schedule: Schedule
    timezone: Zone = "UTC"
    seconds: Annotated[bool, Meta(description="Whether the schedule has six fields, the first being seconds.")] = False
    url: CallbackUrl | None = None
    route: Route | None = None
    method: Method = "POST"
    headers: Headers = {}
    body: Annotated[Raw | UnsetType, Meta(description="Sent as JSON; if absent, a description of the run is sent.")] = (
        UNSET
    )
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
    dry_run: DryRun = False


class UpdateJob(Message, frozen=True, kw_only=True):
    """Change a job. Absent fields keep their value; a changed calendar takes effect from now on."""

    name: JobName
    if_generation: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET
    seconds: bool | UnsetType = UNSET
    url: CallbackUrl | UnsetType | None = UNSET
    route: Route | UnsetType | None = UNSET
    method: Method | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    body: Raw | UnsetType = UNSET
    timeout_seconds: JobTimeout | UnsetType = UNSET
    retry_policy: RetryPolicy | UnsetType | None = UNSET
    overlap: Overlap | UnsetType = UNSET
    catchup: Catchup | UnsetType = UNSET
    catchup_window_seconds: CatchupWindow | UnsetType = UNSET
    dst: Dst | UnsetType = UNSET
    jitter_seconds: Jitter | UnsetType = UNSET
    start_at: Instant | UnsetType | None = UNSET
    end_at: Instant | UnsetType | None = UNSET
    max_runs: MaxRuns | UnsetType | None = UNSET
    labels: Labels | UnsetType = UNSET
    dry_run: DryRun = False


class JobRef(Message, frozen=True, kw_only=True):
    """Names one job."""

    name: RecordName


class PauseJob(Message, frozen=True, kw_only=True):
    """Stop running a job, with an optional reason. Calls in flight continue."""

    name: JobName
    note: Note = ""
    by: By = ""


class ResumeJob(Message, frozen=True, kw_only=True):
    """Run a job again from now on. The instants of the pause are recorded as skipped."""

    name: JobName
    by: By = ""


class ListJobs(Message, frozen=True, kw_only=True):
    """A page of jobs, in the order of their names."""

    name_prefix: Annotated[str, Meta(max_length=128)] = ""
    labels: Labels = {}
    states: Annotated[tuple[JobState, ...], Meta(max_length=4)] = ()
    secrets: Annotated[bool, Meta(description="Show values that are otherwise hidden; for comparison with a file.")] = (
        False
    )
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class TriggerJob(Message, frozen=True, kw_only=True):
    """Run a job now, in addition to its calendar. `body` replaces the job's own, once."""

    name: JobName
    body: Raw | UnsetType = UNSET
    by: By = ""


class PreviewJob(Message, frozen=True, kw_only=True):
    """The next instants of a job (name), or of a schedule to try (with a name, from which H is derived). The search
    covers the next hundred years; use `from` to go further."""

    name: JobName | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET
    seconds: bool | UnsetType = UNSET
    dst: Dst | UnsetType = UNSET
    from_: Annotated[Instant | UnsetType, Meta(description="Only instants after this one; if absent, after now.")] = (
        field(default=UNSET, name="from")
    )
    count: Annotated[int, Meta(ge=1, le=1000)] = 10


class ListRuns(Message, frozen=True, kw_only=True):
    """The ledger: what became of each instant, newest first; of one job, even a deleted one, or of all jobs that exist.
    A page may end before its limit."""

    name: JobName | UnsetType = UNSET
    states: Annotated[tuple[RunState, ...], Meta(max_length=9)] = ()
    kinds: Annotated[tuple[RunKind, ...], Meta(max_length=5)] = ()
    since: Annotated[Instant | UnsetType, Meta(description="Scheduled at or after this instant.")] = UNSET
    until: Annotated[Instant | UnsetType, Meta(description="Scheduled before this instant.")] = UNSET
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class BackfillJob(Message, frozen=True, kw_only=True):
    """Run the instants of a past range that were not run, one after another."""

    name: JobName
    since: Annotated[Instant, Meta(description="The first instant, inclusive.")]
    until: Annotated[Instant, Meta(description="The end, exclusive; not in the future.")]
    dry_run: bool = False
    by: By = ""


class RerunJob(Message, frozen=True, kw_only=True):
    """Run a run of a job again that failed, was cancelled, or whose outcome is unknown: under its own instant, now."""

    launch_id: Annotated[str, Meta(min_length=1, max_length=256, description="Of the run, as the ledger shows it.")]
    by: By = ""


class RunView(View, frozen=True, kw_only=True):
    """One entry of the ledger: a run, or a range of instants skipped for the same reason."""

    launch_id: str
    name: str
    kind: RunKind
    state: RunState
    scheduled_at: datetime
    scheduled_until: Annotated[datetime | None, Meta(description="The last instant of a skipped range.")]
    count: Annotated[int, Meta(description="How many instants this entry accounts for.")]
    reason: Annotated[str, Meta(description="Why it was skipped or cancelled, or what the outcome means.")]
    by: str
    planned_at: datetime
    started_at: Annotated[datetime | None, Meta(description="Known once the first attempt has ended.")]
    late_ms: Annotated[int | None, Meta(description="From the planned instant, jitter included, to the first attempt.")]
    finished_at: datetime | None
    attempts: int
    status: int | None
    duration_ms: int | None
    answer_head: str
    delivery_id: str
    rerun_of: Annotated[str | None, Meta(description="The launchId of the run that was run again as this one.")] = None


class RunsPage(View, frozen=True, kw_only=True):
    """A page of the ledger; `nextCursor` is null on the last one."""

    runs: tuple[RunView, ...]
    next_cursor: str | None


class JobView(View, frozen=True, kw_only=True):
    """A job. A broken one has a `problem`, and only the fields that could be read. Secret headers are shown as they are
    in a timer."""

    name: str
    state: JobState
    problem: str
    schedule: str
    timezone: str
    seconds: bool
    url: str | None
    route: str | None
    method: str
    headers: dict[str, str]
    body_json: Raw = field(name="body")
    timeout_seconds: float
    retry_policy: RetryPolicy | None
    overlap: str
    catchup: str
    catchup_window_seconds: float
    dst: Dst
    jitter_seconds: float
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    labels: dict[str, str]
    note: str
    by: str
    generation: int
    runs: Annotated[
        int, Meta(description="Runs planned by the calendar so far; with maxRuns, skipped ones are not counted.")
    ]
    last_run: Annotated[datetime | None, Meta(description="The latest instant that was run, not skipped.")]
    next_at: Annotated[datetime | None, Meta(description="The next instant; null if it is paused, finished or broken.")]
    created_at: datetime
    updated_at: datetime
    last_outcome: Annotated[
        JobOutcome | None, Meta(description="How the latest run by the calendar ended that has an outcome.")
    ] = None
    consecutive_failures: Annotated[
        int,
        Meta(description="Runs by the calendar in a row, up to the latest, that failed or are unknown; at most 20."),
    ] = 0

    @property
    def body(self) -> Any:
        """The body as a Python value; None if a description of the run is sent."""
        return msgspec.json.decode(self.body_json)


class JobPage(View, frozen=True, kw_only=True):
    """A page of jobs; `nextCursor` is null on the last one. A page of large jobs may end before its limit."""

    jobs: tuple[JobView, ...]
    next_cursor: str | None


class DeletedJobView(View, frozen=True, kw_only=True):
    """The job as it was. Its ledger stays until it expires."""

    job: JobView


class InstantView(View, frozen=True, kw_only=True):
    """An instant of a calendar. `mark` notes a clock change: moved out of a gap, first or last of a repeated time."""

    at: datetime
    local: Annotated[str, Meta(description="The same instant in the calendar's time zone, with its offset.")]
    mark: Mark


class PreviewView(View, frozen=True, kw_only=True):
    """The next instants; fewer than asked for when the calendar ends."""

    schedule: str
    timezone: str
    instants: tuple[InstantView, ...]


class BackfillView(View, frozen=True, kw_only=True):
    """What a backfill runs, or would run."""

    name: str
    instants: Annotated[int, Meta(description="Instants of the calendar in the range.")]
    launched: Annotated[int, Meta(description="Those that had not been run, and are run now.")]
    first: datetime | None
    last: datetime | None
    dry_run: bool
