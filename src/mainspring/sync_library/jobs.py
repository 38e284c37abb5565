# Generated from jobs/program.py by tools/generate_sync.py; change that one.
"""`Jobs` of `mainspring.jobs.program`, for code that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Unpack

from msgspec import UNSET, UnsetType

from mainspring.jobs.arguments import JobFields, JobsWhere, RunsWhere
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import BackfillView, DeletedJobView, JobPage, JobView, PreviewView, RunsPage, RunView
from mainspring.sync_library.engine_thread import EngineThread


class SyncJobs:
    """`ms.jobs`."""

    def __init__(self, engine: Callable[[], EngineThread]) -> None:
        self._engine = engine

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
        """Create a job that calls a URL, or only check it; Conflict if the name is taken."""
        return self._engine().run(
            lambda ms: ms.jobs.create(name, schedule, paused=paused, note=note, by=by, dry_run=dry_run, **fields)
        )

    def get(self, name: str) -> JobView:
        return self._engine().run(lambda ms: ms.jobs.get(name))

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

        For a declared job, the code wins again at the next start.
        """
        return self._engine().run(
            lambda ms: ms.jobs.update(name, if_generation=if_generation, schedule=schedule, dry_run=dry_run, **fields)
        )

    def delete(self, name: str) -> DeletedJobView:
        return self._engine().run(lambda ms: ms.jobs.delete(name))

    def list(
        self, *, limit: int = 100, cursor: str | None = None, secrets: bool = False, **where: Unpack[JobsWhere]
    ) -> JobPage:
        """One page of jobs, in the order of their names. `secrets` shows hidden values."""
        return self._engine().run(lambda ms: ms.jobs.list(limit=limit, cursor=cursor, secrets=secrets, **where))

    def iterate(self, *, page_size: int = 100, secrets: bool = False, **where: Unpack[JobsWhere]) -> Iterator[JobView]:
        """All matching jobs, in the order of their names. `secrets` shows hidden values."""
        return self._engine().iterate(lambda ms: ms.jobs.iterate(page_size=page_size, secrets=secrets, **where))

    def pause(self, name: str, *, note: str = "", by: str = "") -> JobView:
        return self._engine().run(lambda ms: ms.jobs.pause(name, note=note, by=by))

    def resume(self, name: str, *, by: str = "") -> JobView:
        """Run it again from now on. The instants of the pause are recorded as skipped."""
        return self._engine().run(lambda ms: ms.jobs.resume(name, by=by))

    def trigger(self, name: str, *, body: object = None, by: str = "") -> RunView:
        """Run it now, in addition to its calendar. Returns the run, which may not have started yet."""
        return self._engine().run(lambda ms: ms.jobs.trigger(name, body=body, by=by))

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
        """The next instants of a job, or of any schedule."""
        return self._engine().run(
            lambda ms: ms.jobs.preview(
                name, schedule=schedule, timezone=timezone, seconds=seconds, dst=dst, from_=from_, count=count
            )
        )

    def runs(
        self, name: str | None = None, *, limit: int = 100, cursor: str | None = None, **where: Unpack[RunsWhere]
    ) -> RunsPage:
        """One page of the ledger, newest first; without a name, of all jobs, by name."""
        return self._engine().run(lambda ms: ms.jobs.runs(name, limit=limit, cursor=cursor, **where))

    def iterate_runs(
        self, name: str | None = None, *, page_size: int = 100, **where: Unpack[RunsWhere]
    ) -> Iterator[RunView]:
        """What became of each instant, newest first; of one job, or of all jobs."""
        return self._engine().iterate(lambda ms: ms.jobs.iterate_runs(name, page_size=page_size, **where))

    def backfill(
        self, name: str, *, since: datetime, until: datetime, dry_run: bool = False, by: str = ""
    ) -> BackfillView:
        """Run the instants from `since` until before `until` that were not run; a dry run counts them."""
        return self._engine().run(lambda ms: ms.jobs.backfill(name, since=since, until=until, dry_run=dry_run, by=by))

    def rerun(self, launch_id: str, *, by: str = "") -> RunView:
        """Run a run again that failed, was cancelled, or whose outcome is unknown: under its own instant, now.

        Returns the new run, which may not have started yet.
        """
        return self._engine().run(lambda ms: ms.jobs.rerun(launch_id, by=by))
