"""The job routes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Raw

from mainspring.api.routes import Route, always, operation
from mainspring.jobs.messages import (
    BackfillJob,
    BackfillView,
    CreateJob,
    DeletedJobView,
    JobPage,
    JobRef,
    JobView,
    ListJobs,
    ListRuns,
    PauseJob,
    PreviewJob,
    PreviewView,
    RerunJob,
    ResumeJob,
    RunsPage,
    RunView,
    TriggerJob,
    UpdateJob,
)


class Jobs(Protocol):
    """What the job service does."""

    async def create(self, request: CreateJob, /) -> JobView: ...
    async def get(self, request: JobRef, /) -> JobView: ...
    async def update(self, request: UpdateJob, /) -> JobView: ...
    async def delete(self, request: JobRef, /) -> DeletedJobView: ...
    async def list(self, request: ListJobs, /) -> JobPage: ...
    async def pause(self, request: PauseJob, /) -> JobView: ...
    async def resume(self, request: ResumeJob, /) -> JobView: ...
    async def trigger(self, request: TriggerJob, /) -> RunView: ...
    async def preview(self, request: PreviewJob, /) -> PreviewView: ...
    async def runs(self, request: ListRuns, /) -> RunsPage: ...
    async def backfill(self, request: BackfillJob, /) -> BackfillView: ...
    async def rerun(self, request: RerunJob, /) -> RunView: ...


_JOB: Final = JobRef(name="daily-report")
_CREATE: Final = CreateJob(
    name=_JOB.name,
    schedule="0 9 * * mon-fri",
    timezone="Europe/Berlin",
    url="https://example.com/jobs/trigger/daily-report",
    body=Raw(b'{"format":"pdf"}'),
    labels={"team": "reports"},
)
_BACKFILL: Final = BackfillJob(
    name=_JOB.name,
    since=datetime(2026, 11, 1, tzinfo=UTC),
    until=datetime(2026, 11, 8, tzinfo=UTC),
    dry_run=True,
)


def job_routes(jobs: Jobs) -> tuple[Route, ...]:
    return (
        operation("/v1/jobs/create", "Create a job", jobs.create, example=_CREATE, answer=JobView, takes_key=True),
        operation("/v1/jobs/get", "Read a job", jobs.get, example=_JOB, answer=JobView, can_be_remade=always),
        operation(
            "/v1/jobs/update",
            "Change a job",
            jobs.update,
            example=UpdateJob(name=_JOB.name, if_generation=1, schedule="30 8 * * mon-fri"),
            answer=JobView,
        ),
        operation("/v1/jobs/delete", "Delete a job", jobs.delete, example=_JOB, answer=DeletedJobView),
        operation(
            "/v1/jobs/list",
            "List jobs by name",
            jobs.list,
            example=ListJobs(labels={"team": "reports"}, states=("paused", "broken")),
            answer=JobPage,
            is_page=True,
        ),
        operation(
            "/v1/jobs/pause",
            "Pause a job, with a note",
            jobs.pause,
            example=PauseJob(name=_JOB.name, note="The warehouse is being moved.", by="ann"),
            answer=JobView,
        ),
        operation(
            "/v1/jobs/resume",
            "Resume a paused job",
            jobs.resume,
            example=ResumeJob(name=_JOB.name, by="ann"),
            answer=JobView,
        ),
        operation(
            "/v1/jobs/trigger",
            "Run a job now",
            jobs.trigger,
            example=TriggerJob(name=_JOB.name, by="ann"),
            answer=RunView,
            takes_key=True,
            safe_to_repeat=False,
        ),
        operation(
            "/v1/jobs/preview",
            "Show the next instants of a calendar",
            jobs.preview,
            example=PreviewJob(schedule="30 2 * * *", timezone="Europe/Berlin", count=5),
            answer=PreviewView,
        ),
        operation(
            "/v1/jobs/runs",
            "List what became of each instant",
            jobs.runs,
            example=ListRuns(name=_JOB.name, states=("failed", "unknown")),
            answer=RunsPage,
            can_be_remade=always,
        ),
        operation(
            "/v1/jobs/backfill",
            "Run past instants that were not run",
            jobs.backfill,
            example=_BACKFILL,
            answer=BackfillView,
            takes_key=True,
        ),
        operation(
            "/v1/jobs/rerun",
            "Run a run again that did not succeed",
            jobs.rerun,
            example=RerunJob(launch_id=f"{_JOB.name}@1793520000000", by="ann"),
            answer=RunView,
            takes_key=True,
            safe_to_repeat=False,
        ),
    )
