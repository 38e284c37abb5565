# Generated from _async/jobs.py by tools/generate_sync.py; change that one.
"""The jobs of a server. Each method is one request; its docstring says what happens when it is sent again.

A request whose outcome is unknown is repeated only where the docstring says so. Otherwise the error has
`outcome_unknown` set, and `get` or `runs` shows how things stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Unpack

from msgspec import UNSET, UnsetType

from mainspring.client._sync.connection import Connection
from mainspring.client.arguments import to_payload
from mainspring.client.reply import Repeat
from mainspring.jobs.arguments import JobFields, JobsWhere, RunsWhere, create_request, update_request
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import (
    BackfillJob,
    BackfillView,
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
)
from mainspring.wire.arguments import given, request


class Jobs:
    """`client.jobs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        name: str,
        schedule: str,
        *,
        paused: bool = False,
        note: str = "",
        by: str = "",
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> JobView:
        """Create a job, or only check it; Conflict if the name is taken.

        Not repeated when its outcome is unknown: it would conflict.
        """
        asked = create_request(name, schedule, paused=paused, note=note, by=by, dry_run=dry_run, **fields)
        repeat = Repeat.READ if dry_run else Repeat.IF_UNDONE
        return self._connection.post("/v1/jobs/create", asked, JobView, repeat=repeat)

    def get(self, name: str) -> JobView:
        """The job; NotFound if it does not exist. A read, so it is repeated."""
        return self._connection.post("/v1/jobs/get", request(JobRef, {"name": name}), JobView, repeat=Repeat.READ)

    def update(
        self,
        name: str,
        *,
        if_generation: int | UnsetType = UNSET,
        schedule: str | UnsetType = UNSET,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> JobView:
        """Change what is given and keep the rest. Conflict if `if_generation` is not the current generation.

        Repeated when its outcome is unknown, unless it has `if_generation`: the repeat would conflict with itself.
        """
        asked = update_request(name, if_generation=if_generation, schedule=schedule, dry_run=dry_run, **fields)
        repeat = Repeat.READ if dry_run else Repeat.HARMLESS if if_generation is UNSET else Repeat.IF_UNDONE
        return self._connection.post("/v1/jobs/update", asked, JobView, repeat=repeat)

    def delete(self, name: str) -> DeletedJobView:
        """Remove the job; returns the job as it was. Its ledger stays until it expires.

        Repeated. If NotFound follows an unanswered attempt, a note says so: that attempt may have removed it.
        """
        asked = request(JobRef, {"name": name})
        return self._connection.post("/v1/jobs/delete", asked, DeletedJobView, repeat=Repeat.HARMLESS)

    def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[JobsWhere]
    ) -> JobPage:
        """One page of jobs, in the order of their names. `secrets` shows hidden values. A read, so it is repeated."""
        asked = request(ListJobs, {**where, "limit": limit, "cursor": given(cursor), "secrets": secrets})
        return self._connection.post("/v1/jobs/list", asked, JobPage, repeat=Repeat.READ)

    def iterate(self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[JobsWhere]) -> Iterator[JobView]:
        """All matching jobs, page by page. `secrets` shows hidden values."""
        cursor: str | None = None
        while True:
            page = self.list(limit=page_size, cursor=cursor, secrets=secrets, **where)
            yield from page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return

    def pause(self, name: str, *, note: str = "", by: str = "") -> JobView:
        """Stop running the job until it is resumed.

        Not repeated when its outcome is unknown: somebody may have resumed it.
        """
        asked = request(PauseJob, {"name": name, "note": note, "by": by})
        return self._connection.post("/v1/jobs/pause", asked, JobView, repeat=Repeat.IF_UNDONE)

    def resume(self, name: str, *, by: str = "") -> JobView:
        """Run the job again from now on. Not repeated when its outcome is unknown: it may have been paused again."""
        asked = request(ResumeJob, {"name": name, "by": by})
        return self._connection.post("/v1/jobs/resume", asked, JobView, repeat=Repeat.IF_UNDONE)

    def trigger(self, name: str, *, body: object = None, by: str = "") -> RunView:
        """Run the job now, in addition to its calendar; returns its entry in the ledger.

        Not repeated when its outcome is unknown: it may have been run.
        """
        raw = UNSET if body is None else to_payload(body)
        asked = request(TriggerJob, {"name": name, "body": raw, "by": by})
        return self._connection.post("/v1/jobs/trigger", asked, RunView, repeat=Repeat.IF_UNDONE)

    def preview(
        self,
        name: str | None = None,
        *,
        schedule: str | UnsetType = UNSET,
        timezone: str | UnsetType = UNSET,
        seconds: bool | UnsetType = UNSET,
        dst: Dst | UnsetType = UNSET,
        from_: datetime | None = None,
        count: int = 10,
    ) -> PreviewView:
        """The next instants of a job, or of any schedule. A read, so it is repeated."""
        said = {
            "name": given(name),
            "schedule": schedule,
            "timezone": timezone,
            "seconds": seconds,
            "dst": dst,
            "from_": given(from_),
            "count": count,
        }
        asked = request(PreviewJob, said)
        return self._connection.post("/v1/jobs/preview", asked, PreviewView, repeat=Repeat.READ)

    def runs(
        self, name: str | None = None, *, limit: int = 100, cursor: str | None = None, **where: Unpack[RunsWhere]
    ) -> RunsPage:
        """One page of the ledger, newest first; without a name, of all jobs together. A read, so it is repeated."""
        said = {"name": given(name), "limit": limit, "cursor": given(cursor)}
        asked = request(ListRuns, {**where, **said})
        return self._connection.post("/v1/jobs/runs", asked, RunsPage, repeat=Repeat.READ)

    def iterate_runs(
        self, name: str | None = None, *, page_size: int = 100, **where: Unpack[RunsWhere]
    ) -> Iterator[RunView]:
        """All matching entries of the ledger, page by page."""
        cursor: str | None = None
        while True:
            page = self.runs(name, limit=page_size, cursor=cursor, **where)
            yield from page.runs
            cursor = page.next_cursor
            if cursor is None:
                return

    def backfill(
        self, name: str, *, since: datetime, until: datetime, dry_run: bool = False, by: str = ""
    ) -> BackfillView:
        """Run the instants from `since` until before `until` that were not run; a dry run counts them.

        Not repeated when its outcome is unknown: runs it started would be missing from the count.
        """
        said = {"name": name, "since": since, "until": until, "dry_run": dry_run, "by": by}
        asked = request(BackfillJob, said)
        repeat = Repeat.READ if dry_run else Repeat.IF_UNDONE
        return self._connection.post("/v1/jobs/backfill", asked, BackfillView, repeat=repeat)

    def rerun(self, launch_id: str, *, by: str = "") -> RunView:
        """Run a run again that failed, was cancelled, or whose outcome is unknown: under its own instant, now. Returns
        the new run; the old one stays in the ledger as it is.

        Not repeated when its outcome is unknown: it may have been run.
        """
        asked = request(RerunJob, {"launch_id": launch_id, "by": by})
        return self._connection.post("/v1/jobs/rerun", asked, RunView, repeat=Repeat.IF_UNDONE)
