"""Functions on a calendar, inside a program."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from mainspring import DueJob, Mainspring
from mainspring.errors import InvalidInput, NotFound, StoreUnavailable
from mainspring.jobs.messages import RunView
from mainspring.model import RetryPolicy

ONCE = RetryPolicy(max_attempts=1)
LEAP_DAYS = "0 0 29 2 *"
"""So rarely that no test sees it."""


async def ended(ms: Mainspring, asked: RunView) -> RunView:
    async with asyncio.timeout(10):
        while True:
            async for run in ms.jobs.iterate_runs(asked.name):
                if run.launch_id == asked.launch_id and run.finished_at is not None:
                    return run
            await asyncio.sleep(0.01)


async def test_a_function_is_run_by_its_calendar() -> None:
    got: asyncio.Queue[DueJob] = asyncio.Queue()
    ms = Mainspring("memory://")

    @ms.job("* * * * * *", seconds=True)
    async def tick(job: DueJob) -> None:
        got.put_nowait(job)

    async with ms:
        first = await asyncio.wait_for(got.get(), 10)
        second = await asyncio.wait_for(got.get(), 10)
    assert (first.name, first.kind, first.attempt, first.body) == ("tick", "scheduled", 1, None)
    assert second.scheduled_at - first.scheduled_at == timedelta(seconds=1)
    assert second.previous_at == first.scheduled_at
    assert first.next_at == tuple(first.scheduled_at + timedelta(seconds=step) for step in range(1, 6))
    assert first.delivery_id != second.delivery_id


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    ran_in: list[str] = []
    async with Mainspring("memory://") as ms:

        @ms.job(LEAP_DAYS, name="plain")
        def work(_: DueJob) -> None:
            ran_in.append(threading.current_thread().name)

        run = await ended(ms, await ms.jobs.trigger("plain"))
    assert (run.state, run.status, run.attempts) == ("succeeded", 200, 1)
    assert ran_in != [threading.current_thread().name]


async def test_a_function_that_raises_is_retried_under_one_delivery_id() -> None:
    seen: list[DueJob] = []
    async with Mainspring("memory://") as ms:

        @ms.job(LEAP_DAYS, retry_policy=RetryPolicy(initial_interval_seconds=0.01, jitter=0))
        async def work(job: DueJob) -> None:
            seen.append(job)
            if job.attempt == 1:
                raise ValueError("not yet")

        run = await ended(ms, await ms.jobs.trigger("work", body={"day": 1}, by="ann"))
    assert (run.state, run.attempts, run.by) == ("succeeded", 2, "ann")
    assert len({job.delivery_id for job in seen}) == 1
    assert [job.body for job in seen] == [{"day": 1}] * 2


async def test_the_registry_follows_the_code_and_nothing_is_written_for_what_is_the_same(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'app.db'}"

    async def generation_after_a_start(schedule: str, **labels: str) -> tuple[int, str]:
        ms = Mainspring(store)

        @ms.job(schedule, timezone="Europe/Berlin", labels=labels)
        async def report(job: DueJob) -> None: ...

        async with ms:
            view = await ms.jobs.get("report")
            assert (view.timezone, view.labels, view.url) == ("Europe/Berlin", labels, "handler:report")
            return view.generation, view.schedule

    assert await generation_after_a_start("0 9 * * *") == (1, "0 9 * * *")
    assert await generation_after_a_start("0 9 * * *") == (1, "0 9 * * *")
    assert await generation_after_a_start("0 8 * * *") == (2, "0 8 * * *")
    assert await generation_after_a_start("0 8 * * *", team="blue") == (3, "0 8 * * *")


async def test_a_pause_outlives_the_program(tmp_path: Path) -> None:
    for state in ("scheduled", "paused"):
        ms = Mainspring(f"sqlite:///{tmp_path / 'app.db'}")

        @ms.job(LEAP_DAYS)
        async def report(job: DueJob) -> None: ...

        async with ms:
            assert (await ms.jobs.get("report")).state == state
            await ms.jobs.pause("report", note="audit")


async def test_a_job_whose_function_is_gone_fails_with_that_reason(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'app.db'}"
    first = Mainspring(store)

    @first.job(LEAP_DAYS, retry_policy=ONCE)
    async def report(job: DueJob) -> None: ...

    async with first:
        pass
    async with Mainspring(store) as ms:
        run = await ended(ms, await ms.jobs.trigger("report"))
        assert run.state == "failed"
        assert run.reason.startswith("Handler 'report' does not exist.")
        await ms.jobs.delete("report")
        assert [job.name async for job in ms.jobs.iterate()] == []


async def test_a_wrong_calendar_is_raised_where_the_function_stands() -> None:
    ms = Mainspring("memory://")

    async def report(job: DueJob) -> None: ...

    with pytest.raises(InvalidInput, match="five fields"):
        ms.job("0 9 * *")(report)
    with pytest.raises(InvalidInput, match="Europe/Berlin"):
        ms.job("@daily", timezone="Europe/Berln")(report)
    with pytest.raises(InvalidInput, match=r"^name: Expected only letters"):
        ms.job("@daily", name="a b")(report)
    ms.job("@daily")(report)
    with pytest.raises(InvalidInput, match="already has a function"):
        ms.job("@hourly")(report)


async def test_jobs_of_urls_are_checked_like_those_of_the_server() -> None:
    async with Mainspring("memory://", allow_loopback=True) as ms:
        with pytest.raises(InvalidInput):
            await ms.jobs.create("far", "@daily", url="http://10.0.0.1/")
        with pytest.raises(InvalidInput, match="declared"):
            await ms.jobs.create("none", "@daily", url="handler:nobody")
        created = await ms.jobs.create("near", LEAP_DAYS, url="http://127.0.0.1:9/")
        assert (await ms.jobs.update("near", schedule="@daily")).generation == created.generation + 1
        preview = await ms.jobs.preview("near", count=3)
        assert (preview.schedule, len(preview.instants)) == ("@daily", 3)
        since = preview.instants[0].at - timedelta(days=4)
        counted = await ms.jobs.backfill("near", since=since, until=since + timedelta(days=2), dry_run=True)
        assert (counted.instants, counted.launched) == (2, 2)
        with pytest.raises(NotFound, match="Run 'near@5' does not exist"):
            await ms.jobs.rerun("near@5", by="ann")


async def test_a_function_that_cannot_be_declared_inside_the_block_does_not_end_the_program() -> None:
    async with Mainspring("memory://") as ms:
        service = ms.jobs._service
        create = service.create

        async def away(_: object) -> NoReturn:
            raise StoreUnavailable("away")

        service.create = away  # type: ignore[assignment]

        @ms.job(LEAP_DAYS)
        async def report(job: DueJob) -> None: ...

        await asyncio.sleep(0.05)
        with pytest.raises(StoreUnavailable):
            await ms.jobs.get("report")
        service.create = create  # type: ignore[method-assign]
        assert (await ms.jobs.get("report")).state == "scheduled"
