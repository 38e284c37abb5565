"""Defects of jobs that are planted to see whether the search finds them.

python -m tests.testing.simulation.planted_jobs [name ...]        how many seeds it takes to find each
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from mainspring.errors import StoreUnavailable
from mainspring.jobs import clock_state, queue
from mainspring.jobs.clock_state import ClockState
from mainspring.jobs.foreign import with_last_run
from mainspring.jobs.ledger import Ledger, Run
from mainspring.jobs.messages import RunKind
from mainspring.jobs.overlap import Step
from mainspring.jobs.record import Definition, Job
from mainspring.jobs.registry import JOBS, Registry
from mainspring.jobs.row_store import MissingRows, RowStore
from tests.testing.simulation.planted_defect import Planted, tell


def _what_is_on_time_is_skipped(good: Any) -> Any:
    """Because of a catch-up."""

    def step(definition: Definition, kind: RunKind, blocker: Run | None, *, is_kept: bool) -> Step:
        return good(definition, kind, blocker, is_kept=is_kept and kind == "catchup")  # type: ignore[no-any-return]

    return step


def _a_row_that_failed_is_forgotten(good: Any) -> Any:
    async def run(self: RowStore, job: Job, runs: Sequence[tuple[str, Run]], **fields: Any) -> MissingRows:
        try:
            missing = await good(self, job, runs, **fields)
        except StoreUnavailable:
            return MissingRows((), ())
        return MissingRows(missing.refused, ())

    return run


def _what_is_on_record_gives_way(_: Any) -> Any:
    async def enter(self: Ledger, job: str, stamp: str, run: Run) -> Run:
        while True:
            entry = await self.get(job, stamp)
            if await self.put(job, stamp, run, expect=0 if entry is None else entry.version):
                return run

    return enter


def _a_new_job_goes_on_where_the_old_one_was(good: Any) -> Any:
    def adopted(job: Job, state: ClockState, as_of: int) -> ClockState:
        if not state.terms.schedule:
            return good(job, state, as_of)  # type: ignore[no-any-return]
        return replace(state, created_at=job.definition.created_at)

    return adopted


def _the_last_run_is_one_that_was_not_run(_: Any) -> Any:
    async def put_last_run(self: Registry, name: str, instant: int, *, created_at: int) -> None:
        record = await self._record(name)
        if record is not None:
            value, now = with_last_run(record.value, instant - 1000), self._clock.now_ms()
            await self._records.put_record(JOBS, name, value, expect=record.version, now=now)

    return put_last_run


PLANTED: Final = {
    "registry.put_last_run: writes what was not run": Planted(
        "C", Registry, "put_last_run", _the_last_run_is_one_that_was_not_run
    ),
    "overlap.step: catch-up skips what is on time": Planted("C", queue, "step", _what_is_on_time_is_skipped),
    "row_store.add_runs: swallows a row that failed": Planted(
        "C", RowStore, "add_runs", _a_row_that_failed_is_forgotten
    ),
    "ledger._enter: overwrites": Planted("C", Ledger, "_enter", _what_is_on_record_gives_way),
    "clock_state._adopted: keeps a dead job's state": Planted(
        "C", clock_state, "_adopted", _a_new_job_goes_on_where_the_old_one_was
    ),
}


if __name__ == "__main__":
    tell(PLANTED, "jobs")
