"""How runs end, and what is told of them: outcomes, retries, the ledger and its filters. In simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.jobs import ledgers, runs
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.messages import (
    CreateJob,
    JobRef,
    ListJobs,
    ListRuns,
    PauseJob,
    PreviewJob,
    ResumeJob,
    RunView,
    TriggerJob,
    UpdateJob,
)
from mainspring.model import Record, RetryPolicy
from mainspring.testing.simulation import EPOCH_MS
from mainspring.wire.instants import to_instant
from tests.support.simulated_jobs import START, World, simulate


def test_a_failing_run_is_tried_three_times_under_one_delivery_id() -> None:
    async def main(world: World) -> None:
        async def refuse(_: DueJob) -> object:
            return {"ok": False, "nextExecuteAt": EPOCH_MS}  # the wish of a receiver, which jobs do not grant

        world.behave = refuse
        async with world.running():
            await world.create(schedule="0 * * * *")
            await world.until(3601)
            [run] = await world.runs()
            assert (run.state, run.attempts, run.status) == ("retrying", 1, 200)
            await world.until(3660)
            [run] = await world.runs()
            assert (run.state, run.attempts, run.status) == ("failed", 3, 200)
            assert "ok: false" in run.reason
            assert run.answer_head.startswith('{"ok":false')
            assert [call.attempt for _, call in world.calls] == [1, 2, 3]
            assert len({call.delivery_id for _, call in world.calls}) == 1

    simulate(main)


def test_a_retry_that_succeeds_is_a_success_with_its_attempts() -> None:
    async def main(world: World) -> None:
        async def second_time(due: DueJob) -> object:
            return {"ok": due.attempt == 2}

        world.behave = second_time
        async with world.running():
            await world.create(schedule="0 * * * *", retry_policy=RetryPolicy(max_attempts=5))
            await world.until(3660)
            [run] = await world.runs()
            assert (run.state, run.attempts, run.late_ms) == ("succeeded", 2, 0)

    simulate(main)


def test_a_run_falls_under_the_limit_of_the_address_that_its_job_has_by_then() -> None:
    async def main(world: World) -> None:
        running, most = 0, 0

        async def other(_: DueJob) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(2)
            running -= 1

        async with world.running(host_limit=1) as instance:
            instance.jobs_assembly.run_carrier.handlers["other"] = other
            await world.create("later")
            await instance.jobs.create(CreateJob(name="sooner", schedule="0 * * * *", url="handler:other"))
            await world.until(3597)
            await instance.jobs.update(UpdateJob(name="later", url="handler:other"))
            await world.until(3610)
            assert most == 1
            for name in ("sooner", "later"):
                [run] = await world.runs(name)
                assert (run.state, run.attempts) == ("succeeded", 1)

    simulate(main)


def test_a_new_address_between_two_attempts_costs_none_of_them() -> None:
    async def main(world: World) -> None:
        tried: list[int] = []

        async def refuse(_: DueJob) -> object:
            return {"ok": False}

        async def other(due: DueJob) -> None:
            tried.append(due.attempt)

        world.behave = refuse
        async with world.running() as instance:
            instance.jobs_assembly.run_carrier.handlers["other"] = other
            policy = RetryPolicy(max_attempts=2, initial_interval_seconds=10.0)
            await world.create(schedule="0 * * * *", retry_policy=policy)
            await world.until(3605)
            await instance.jobs.update(UpdateJob(name="job", url="handler:other"))
            await world.until(3660)
            [run] = await world.runs()
            assert (run.state, run.attempts, tried) == ("succeeded", 2, [2])

    simulate(main)


def test_a_run_without_an_answer_is_unknown() -> None:
    async def main(world: World) -> None:
        async def never(_: DueJob) -> None:
            await asyncio.sleep(10_000)

        world.behave = never
        async with world.running():
            await world.create(schedule="0 * * * *", retry_policy=RetryPolicy(max_attempts=1), timeout_seconds=5.0)
            await world.until(3603)
            assert [run.state for run in await world.runs()] == ["running"]
            await world.until(3660)
            [run] = await world.runs()
            assert (run.state, run.attempts, run.duration_ms) == ("unknown", 1, 5000)
            assert "may have acted" in run.reason

    simulate(main)


def test_a_job_whose_function_is_gone_fails_with_the_reason() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *", retry_policy=RetryPolicy(max_attempts=1))
            del instance.jobs_assembly.run_carrier.handlers["work"]
            await world.until(3660)
            [run] = await world.runs()
            assert run.state == "failed"
            assert run.reason.startswith("Handler 'work' does not exist.")

    simulate(main)


def test_what_was_triggered_by_hand_has_its_own_body_and_leaves_the_calendar_alone() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *", body=Raw(b'{"size":1}'))
            await world.until(10)
            await instance.jobs.trigger(TriggerJob(name="job", body=Raw(b'{"size":2}')))
            await world.until(11)
            await instance.jobs.trigger(TriggerJob(name="job"))
            await world.until(3660)
            assert [(call.kind, call.body) for _, call in world.calls] == [
                ("manual", {"size": 2}),
                ("manual", {"size": 1}),
                ("scheduled", {"size": 1}),
            ]
            job = await instance.jobs.get(JobRef(name="job"))
            assert job.runs == 1
            with pytest.raises(NotFound):
                await instance.jobs.trigger(TriggerJob(name="none"))

    simulate(main)


def test_the_ledger_is_filtered_and_paged() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create("a", "*/10 * * * *")
            await world.create("b", "*/30 * * * *")
            await world.until(3660)
            await instance.jobs.trigger(TriggerJob(name="a"))
            await world.until(3670)
            assert len(await world.runs("a")) == 7
            assert [run.kind for run in await world.runs("a", kinds=("manual",))] == ["manual"]
            assert await world.runs("a", states=("failed",)) == []
            some = await world.runs("a", since=EPOCH_MS + 1_200_000, until=EPOCH_MS + 2_400_000)
            assert [run.scheduled_at.minute for run in some] == [20, 30]
            seen: list[str] = []
            request = ListRuns(limit=2)
            while True:
                page = await instance.jobs.runs(request)
                seen += [run.launch_id for run in page.runs]
                if page.next_cursor is None:
                    break
                request = ListRuns(limit=2, cursor=page.next_cursor)
            assert [identity.split("@")[0] for identity in seen] == ["a", "a", "b", "a", "a", "a", "b", "a", "a"]
            assert len(set(seen)) == 9

    simulate(main)


def _stamps(runs: Sequence[RunView]) -> list[tuple[datetime, str]]:
    return [(run.scheduled_at, run.name) for run in runs]


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
@pytest.mark.parametrize("wanted", [{}, {"states": ("skipped",)}, {"kinds": ("manual", "catchup")}])
def test_the_runs_of_all_jobs_are_in_the_order_of_their_instants_page_by_page(
    limit: int, wanted: dict[str, Any]
) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            for number in range(4):
                await world.create(f"job{number}", f"*/{5 + number} * * * *", overlap="skip", timeout_seconds=1000.0)
            await world.create("paused", "* * * * *", paused=True)
            await world.until(1000)
            await instance.jobs.trigger(TriggerJob(name="job2"))
            await world.until(1803)
            await instance.jobs.resume(ResumeJob(name="paused"))
            await world.until(1900)
            names = [job.name for job in (await instance.jobs.list(ListJobs())).jobs]
            each = [run for name in names for run in await world.runs(name, **wanted)]
            expected = sorted(each, key=lambda run: run.name)
            expected.sort(key=lambda run: run.scheduled_at, reverse=True)
            assert len(expected) == len(each)
            seen: list[RunView] = []
            cursor: str | UnsetType | None = UNSET
            while cursor is not None:
                page = await instance.jobs.runs(ListRuns(limit=limit, cursor=cursor, **wanted))
                assert len(page.runs) <= limit
                seen += page.runs
                cursor = page.next_cursor
            assert _stamps(seen) == _stamps(expected)
            bounds: dict[str, Any] = {"since": EPOCH_MS + 600_000, "until": EPOCH_MS + 1_200_000}
            some = await instance.jobs.runs(ListRuns(limit=1000, **bounds, **wanted))
            within = [run for name in names for run in await world.runs(name, **bounds, **wanted)]
            assert sorted(_stamps(some.runs)) == sorted(_stamps(within))

    simulate(main)


def test_a_page_of_all_jobs_reads_one_entry_of_each_and_few_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "FIRST_ENTRIES", 1)

    async def main(world: World) -> None:
        async with world.running() as instance:
            for number in range(50):
                await world.create(f"job{number:02}", "* * * * *" if number < 5 else "0 * * * *")
            await world.until(3605)
            reads = 0
            scan = world.store.scan_records

            async def counted(collection: str, **how: Any) -> list[Record]:
                nonlocal reads
                reads += collection.startswith("launch:")
                return await scan(collection, **how)

            monkeypatch.setattr(world.store, "scan_records", counted)
            page = await instance.jobs.runs(ListRuns(limit=100))
            assert len(page.runs) == 100
            assert {run.scheduled_at for run in page.runs[:50]} == {to_instant(EPOCH_MS + 3_600_000)}
            assert reads <= 50 + 50 + 5 * 6

    simulate(main)


def test_a_list_of_all_jobs_that_finds_little_ends_early_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "ENTRIES_LIMIT", 10)
    monkeypatch.setattr(runs, "_AT_ONCE", 5)

    async def main(world: World) -> None:
        async with world.running() as instance:
            for name in ("a", "b"):
                await world.create(name, "* * * * *")
            await world.until(605)
            request = ListRuns(states=("failed",))
            for _ in range(2):
                page = await instance.jobs.runs(request)
                assert page.runs == ()
                assert page.next_cursor is not None
                request = replace(request, cursor=page.next_cursor)
            assert (await instance.jobs.runs(request)).next_cursor is None

    simulate(main)


def test_the_runs_of_too_many_jobs_are_not_listed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "JOBS_LIMIT", 2)

    async def main(world: World) -> None:
        async with world.running() as instance:
            for name in ("a", "b", "c"):
                await world.create(name)
            with pytest.raises(InvalidInput, match="Expected the name of a job"):
                await instance.jobs.runs(ListRuns())
            assert (await instance.jobs.runs(ListRuns(name="a"))).runs == ()

    simulate(main)


def test_what_a_function_raises_is_told_as_the_reason() -> None:
    async def main(world: World) -> None:
        async def fail(_: DueJob) -> None:
            raise ValueError("no such customer")

        world.behave = fail
        async with world.running():
            await world.create(retry_policy=RetryPolicy(max_attempts=1))
            await world.until(3601)
            [run] = await world.runs()
            assert (run.state, run.status) == ("failed", 500)
            assert run.reason.startswith("The handler 'work' raised ValueError: no such customer.")

    simulate(main)


@pytest.mark.parametrize("max_runs", [1, 3, 12])
def test_the_next_instant_of_a_job_is_right_up_to_its_last_run(max_runs: int) -> None:
    async def main(world: World) -> None:
        """Several runs are planned ahead."""
        async with world.running() as instance:
            await world.create(schedule="*/2 * * * * *", seconds=True, max_runs=max_runs)
            for number in range(max_runs):
                await world.until(2 * number + 0.5)
                job = await instance.jobs.get(JobRef(name="job"))
                assert job.next_at == to_instant(EPOCH_MS + 2000 * (number + 1))
            await world.until(2 * max_runs + 0.5)
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.next_at, job.state) == (None, "finished")

    simulate(main)


def test_the_ledger_forgets_after_its_retention() -> None:
    async def main(world: World) -> None:
        async with world.running(run_retention_days=1):
            await world.create(schedule="0 9 * * *", catchup="none")
            await world.until(3660)
        for seconds, days in ((86_000, [15]), (91_000, [16])):
            await world.until(seconds)
            async with world.running(run_retention_days=1):
                await asyncio.sleep(30)
                assert [run.scheduled_at.day for run in await world.runs()] == days

    simulate(main)


def test_jobs_are_listed_by_name_with_their_state() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            for name in ("b-1", "a-1", "a-2", "c"):
                await world.create(name, labels={"team": name[0]}, paused=name == "a-2")
            everything = (await instance.jobs.list(ListJobs())).jobs
            assert [(job.name, job.state) for job in everything] == [
                ("a-1", "scheduled"),
                ("a-2", "paused"),
                ("b-1", "scheduled"),
                ("c", "scheduled"),
            ]
            assert [job.name for job in (await instance.jobs.list(ListJobs(name_prefix="a-"))).jobs] == ["a-1", "a-2"]
            assert [job.name for job in (await instance.jobs.list(ListJobs(labels={"team": "b"}))).jobs] == ["b-1"]
            assert [job.name for job in (await instance.jobs.list(ListJobs(states=("paused",)))).jobs] == ["a-2"]
            first = await instance.jobs.list(ListJobs(limit=3))
            assert first.next_cursor is not None
            rest = await instance.jobs.list(ListJobs(limit=3, cursor=first.next_cursor))
            assert [job.name for job in rest.jobs] == ["c"]
            assert rest.next_cursor is None

    simulate(main)


def test_changes_are_compared_with_what_is_there() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create()
            with pytest.raises(Conflict, match="already exists"):
                await world.create()
            changed = await instance.jobs.update(UpdateJob(name="job", if_generation=1, timeout_seconds=3.0))
            assert (changed.generation, changed.timeout_seconds, changed.schedule) == (2, 3.0, "0 * * * *")
            with pytest.raises(Conflict, match="generation 1, got 2"):
                await instance.jobs.update(UpdateJob(name="job", if_generation=1, timeout_seconds=4.0))
            with pytest.raises(Conflict, match="is not paused"):
                await instance.jobs.resume(ResumeJob(name="job"))
            await instance.jobs.pause(PauseJob(name="job", note="once"))
            again = await instance.jobs.pause(PauseJob(name="job", note="twice"))
            assert again.note == "twice"
            await world.delete()
            with pytest.raises(NotFound):
                await instance.jobs.get(JobRef(name="job"))

    simulate(main)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"schedule": "61 * * * *"}, "/schedule"),
        ({"timezone": "Mars/Base"}, "/timezone"),
        ({"url": "handler:nobody"}, "/url"),
        ({"url": None}, "/url"),
        ({"url": "http://127.0.0.1/x", "route": "/y"}, "/route"),
        ({"headers": {"webhook-id": "mine"}}, "/headers/webhook-id"),
        ({"start_at": START, "end_at": EPOCH_MS - 1}, "/endAt"),
        ({"body": Raw(b'"' + b"x" * 200_000 + b'"')}, "/body"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_and_the_field_named(fields: dict[str, object], pointer: str) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            given = {"name": "job", "schedule": "0 * * * *", "url": "handler:work", **fields}
            with pytest.raises(InvalidInput) as caught:
                await instance.jobs.create(CreateJob(**given))  # type: ignore[arg-type]
            assert [error.pointer for error in caught.value.errors] == [pointer]
            assert (await instance.jobs.list(ListJobs())).jobs == ()

    simulate(main)


def test_a_preview_is_of_a_job_or_of_a_schedule_to_be() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="30 2 * * *", timezone="Europe/Berlin")
            of_job = await instance.jobs.preview(PreviewJob(name="job", count=2))
            assert [instant.local for instant in of_job.instants] == [
                "2027-01-16T02:30:00+01:00",
                "2027-01-17T02:30:00+01:00",
            ]
            gap = await instance.jobs.preview(PreviewJob(name="job", from_=1_805_976_000_000, count=1))  # 2027-03-25
            assert len(gap.instants) == 1
            marks = await instance.jobs.preview(
                PreviewJob(schedule="30 2 * * *", timezone="Europe/Berlin", from_=1_806_148_800_000, count=2)
            )
            assert "gap" in [instant.mark for instant in marks.instants]
            with pytest.raises(InvalidInput, match="a name or a schedule"):
                await instance.jobs.preview(PreviewJob())
            with pytest.raises(InvalidInput, match="a date that exists") as refused:
                await instance.jobs.preview(PreviewJob(schedule="0 0 30 2 *"))
            assert [error.pointer for error in refused.value.errors] == ["/schedule"]

    simulate(main)


def test_a_preview_looks_a_hundred_years_ahead_and_no_further() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            leap_days = PreviewJob(schedule="59 59 23 29 2 *", seconds=True, timezone="Europe/Berlin", count=1000)
            found = (await instance.jobs.preview(leap_days)).instants
            assert [instant.local[:10] for instant in (found[0], found[-1])] == ["2028-02-29", "2124-02-29"]
            assert len(found) == 24  # 2100 has none
            later = await instance.jobs.preview(replace(leap_days, from_=found[-1].at, count=1))
            assert [instant.local[:10] for instant in later.instants] == ["2128-02-29"]

    simulate(main)
