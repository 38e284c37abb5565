"""Every instant of a job is run or accounted for: through calm, outages, pauses and changes. In simulated time."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.errors import StoreUnavailable
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.ledger import Ledger, Run, stamp_of
from mainspring.jobs.messages import JobRef, ListJobs, PauseJob, ResumeJob, TriggerJob, UpdateJob
from mainspring.jobs.record import Definition, Job
from mainspring.jobs.row_store import MissingRows
from mainspring.model import RetryPolicy
from mainspring.testing.simulation import EPOCH_MS
from mainspring.wire.instants import to_instant, to_ms
from tests.support.simulated_jobs import START, World, clock_time, simulate

HOUR = 3600


def test_every_instant_is_run_when_it_comes_and_recorded_once() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="*/10 * * * *")
            await world.until(HOUR + 1)
            runs = await world.runs()
            assert [run.scheduled_at.minute for run in runs] == [10, 20, 30, 40, 50, 0]
            assert {run.state for run in runs} == {"succeeded"}
            assert {run.late_ms for run in runs} == {0}
            assert [at for at, _ in world.calls] == [EPOCH_MS + 600_000 * n for n in range(1, 7)]
            assert world.calls[0][1].previous_at is None
            assert world.calls[1][1].previous_at == world.calls[0][1].scheduled_at
            assert world.calls[0][1].next_at[0] == world.calls[1][1].scheduled_at
            job = await world.instance.jobs.get(JobRef(name="job"))
            assert (job.runs, job.last_run) == (6, runs[-1].scheduled_at)

    simulate(main)


def test_a_job_may_run_every_second() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="* * * * * *", seconds=True)
            await world.until(60.5)
            assert [at - EPOCH_MS for at, _ in world.calls] == [1000 * n for n in range(1, 61)]

    simulate(main)


@pytest.mark.parametrize("schedule", ["* * * * *", "*/2 * * * * *"])
def test_the_last_run_is_never_one_that_is_still_to_come(schedule: str) -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule=schedule, seconds=schedule.count(" ") == 5)
            for second in range(1, 180):
                await world.until(second + 0.5)
                job = await world.instance.jobs.get(JobRef(name="job"))
                page = await world.instance.jobs.list(ListJobs())
                called = world.calls[-1][1].scheduled_at if world.calls else None
                assert (job.last_run, page.jobs[0].last_run) == (called, called), second
            assert world.calls

    simulate(main)


def test_the_last_run_is_not_one_that_was_skipped() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(900)

        world.behave = work
        async with world.running():
            await world.create(schedule="*/10 * * * * *", seconds=True, timeout_seconds=1800.0)
            await world.until(895)
            assert [run.reason for run in await world.runs(states=("skipped",))].count("overlap") >= 85
            job = await world.instance.jobs.get(JobRef(name="job"))
            assert job.last_run == to_instant(EPOCH_MS + 10_000)

    simulate(main)


def test_jitter_delays_a_run_by_less_than_it_says_and_is_not_lateness() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *", jitter_seconds=600.0)
            await world.until(3 * HOUR - 1)
            delays = [at - EPOCH_MS - HOUR * 1000 * n for n, (at, _) in enumerate(world.calls, 1)]
            assert len(set(delays)) == 2
            assert all(0 <= delay <= 600_000 for delay in delays)
            assert {run.late_ms for run in await world.runs(states=("succeeded",))} == {0}

    simulate(main)


def test_a_job_ends_with_its_last_run_or_its_last_instant() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create("counted", "*/10 * * * *", max_runs=2)
            await world.create("bounded", "*/10 * * * *", end_at=to_instant(EPOCH_MS + 1_200_000))
            await world.create("late", "*/10 * * * *", start_at=to_instant(EPOCH_MS + 1_800_000))
            await world.until(HOUR + 1)
            for name, runs, state in (("counted", 2, "finished"), ("bounded", 2, "finished"), ("late", 4, "scheduled")):
                job = await world.instance.jobs.get(JobRef(name=name))
                assert (job.runs, job.state, job.next_at is None) == (runs, state, state == "finished"), name
                assert len(await world.runs(name)) == runs
            await world.instance.jobs.update(UpdateJob(name="counted", max_runs=3))
            await world.until(2 * HOUR)
            assert len(await world.runs("counted", states=("succeeded",))) == 3

    simulate(main)


def test_a_run_that_was_skipped_before_the_clock_knew_of_it_uses_up_no_run() -> None:
    """As after a crash between the record of the run and the clock's own write: nobody tells the clock again."""

    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *", max_runs=1)
            instant = EPOCH_MS + 600_000
            skipped = Run(
                kind="scheduled", state="skipped", reason="overlap", counted=True, instant=instant, planned_at=instant
            )
            ledger = Ledger(world.store, world.clock, retention_ms=HOUR * 1000)
            await ledger.enter("job", [(stamp_of(instant), skipped)])
            await world.until(1201)
            assert await world.told() == [("08:10:00", "skipped", "overlap"), ("08:20:00", "succeeded", "")]
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.runs, job.state) == (1, "finished")

    simulate(main)


def test_a_run_that_a_pause_stops_uses_up_no_run() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *", max_runs=2)
            await world.until(1197)  # both are planned by now
            await instance.jobs.pause(PauseJob(name="job"))
            await world.until(1500)
            await instance.jobs.resume(ResumeJob(name="job"))
            await world.until(HOUR)
            assert await world.told() == [
                ("08:10:00", "succeeded", ""),
                ("08:20:00", "skipped", "paused"),
                ("08:30:00", "succeeded", ""),
            ]
            assert (await instance.jobs.get(JobRef(name="job"))).state == "finished"

    simulate(main)


@pytest.mark.parametrize(
    ("catchup", "told"),
    [
        ("none", [("09:00:00", "skipped", "missed")]),
        ("latest", [("09:00:00", "skipped", "outside-window"), ("12:00:00", "succeeded", "")]),
        (
            "all",
            [("09:00:00", "skipped", "outside-window"), ("12:00:00", "succeeded", "")],
        ),
    ],
)
def test_instants_of_an_outage_follow_the_catch_up(catchup: str, told: list[tuple[str, str, str]]) -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *", catchup=catchup)
            await world.until(600)
        await world.until(4.5 * HOUR)
        async with world.running():
            await world.until(4.5 * HOUR + 60)
            assert await world.told() == told
            runs = await world.runs()
            assert sum(run.count for run in runs) == 4
            assert [run.kind for run in runs if run.state == "succeeded"] == ["catchup"] * (len(told) - 1)
            assert [call.kind for _, call in world.calls] == ["catchup"] * (len(told) - 1)

    simulate(main)


def test_all_missed_instants_of_the_window_are_caught_up_with_one_after_another() -> None:
    async def main(world: World) -> None:
        async def slowly(_: object) -> None:
            await asyncio.sleep(2)

        world.behave = slowly
        async with world.running():
            await world.create(schedule="*/10 * * * *", catchup="all", catchup_window_seconds=86_400.0)
            await world.until(60)
        await world.until(2 * HOUR + 60)
        async with world.running():
            await world.until(2 * HOUR + 180)
            calls = [call for _, call in world.calls]
            assert [call.scheduled_at for call in calls] == sorted(call.scheduled_at for call in calls)
            assert len(calls) == 12
            starts = [at for at, _ in world.calls]
            assert all(later - earlier >= 2000 for earlier, later in itertools.pairwise(starts))
            assert {run.state for run in await world.runs()} == {"succeeded"}

    simulate(main)


@pytest.mark.parametrize(("catchup", "state"), [("none", "skipped"), ("latest", "succeeded"), ("all", "succeeded")])
def test_what_was_planned_when_all_went_down_follows_the_catch_up_too(catchup: str, state: str) -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *", catchup=catchup)
            await world.until(HOUR - 2)  # planned already, not run yet
            assert [run.state for run in await world.runs()] == ["planned"]
        await world.until(HOUR + 600)
        async with world.running():
            await world.until(HOUR + 660)
            [run] = await world.runs()
            assert (run.state, run.reason) == (state, "missed" if state == "skipped" else "")
            assert run.late_ms == (None if state == "skipped" else run.late_ms)

    simulate(main)


def test_the_instants_of_a_pause_are_recorded_when_it_ends() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="*/10 * * * *")
            await world.until(1190)  # that of 08:20 is planned already
            paused = await world.instance.jobs.pause(PauseJob(name="job", note="too loud", by="ann"))
            assert (paused.state, paused.note, paused.by, paused.next_at) == ("paused", "too loud", "ann", None)
            await world.until(HOUR - 30)
            assert [call.scheduled_at.minute for _, call in world.calls] == [10]
            await world.instance.jobs.resume(ResumeJob(name="job"))
            await world.until(HOUR + 30)
            assert await world.told() == [
                ("08:10:00", "succeeded", ""),
                ("08:20:00", "skipped", "paused"),
                ("08:30:00", "skipped", "paused"),
                ("09:00:00", "succeeded", ""),
            ]
            assert [run.count for run in await world.runs()] == [1, 1, 3, 1]

    simulate(main)


def test_a_pause_and_its_end_may_pass_while_nobody_runs() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *")
            await world.until(60)
        await world.until(2 * HOUR + 60)
        async with world.running() as instance:
            await instance.jobs.pause(PauseJob(name="job"))
        await world.until(4 * HOUR + 60)
        async with world.running() as instance:
            await instance.jobs.resume(ResumeJob(name="job"))
            await world.until(5 * HOUR + 60)
            assert [(run.reason or run.state, run.count) for run in await world.runs()] == [
                ("missed", 2),
                ("paused", 2),
                ("succeeded", 1),
            ]

    simulate(main)


def test_a_changed_calendar_counts_from_the_change_on() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 9 * * *")
            await world.until(HOUR - 4)  # 09:00 is planned
            await world.instance.jobs.update(UpdateJob(name="job", schedule="30 8-9 * * *"))
            await world.until(2 * HOUR)
            assert await world.told() == [("09:00:00", "skipped", "changed"), ("09:30:00", "succeeded", "")]

    simulate(main)


def test_an_instant_that_both_calendars_have_is_run_once() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *")
            await world.until(HOUR - 4)
            await world.instance.jobs.update(UpdateJob(name="job", schedule="0,30 * * * *"))
            await world.until(HOUR + 60)
            assert await world.told() == [("09:00:00", "succeeded", "")]
            assert len(world.calls) == 1

    simulate(main)


def test_a_deleted_job_runs_nothing_more_and_one_of_its_name_starts_anew() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *")
            await world.until(2 * HOUR - 3)
            await world.delete()
            await world.until(2 * HOUR + 60)
            assert len(world.calls) == 1
            await world.create(schedule="30 * * * *")
            job = await world.instance.jobs.get(JobRef(name="job"))
            assert (job.runs, job.last_run) == (0, None)
            await world.until(3 * HOUR)
            assert await world.told() == [
                ("09:00:00", "succeeded", ""),
                ("10:00:00", "skipped", "deleted"),
                ("10:30:00", "succeeded", ""),
            ]
            assert (await world.instance.jobs.get(JobRef(name="job"))).created_at > START

    simulate(main)


@pytest.mark.parametrize(
    ("bounds", "changed"),
    [
        ({"end_at": EPOCH_MS + 1_200_000}, {"end_at": EPOCH_MS + 86_400_000}),
        ({"end_at": EPOCH_MS + 1_200_000}, {"end_at": None}),
        ({"max_runs": 2}, {"max_runs": 20}),
        ({"max_runs": 2}, {"max_runs": None}),
        ({"start_at": EPOCH_MS + 7_200_000}, {"start_at": EPOCH_MS + 600_000}),
        ({"start_at": EPOCH_MS + 7_200_000}, {"start_at": None}),
        ({"max_runs": 2}, {"max_runs": 20, "schedule": "5,15,25,35,45,55 * * * *"}),
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("catchup", ["latest", "all"])
def test_bounds_that_are_extended_count_from_the_change_on(
    catchup: str, bounds: dict[str, Any], changed: dict[str, Any]
) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *", catchup=catchup, catchup_window_seconds=86_400.0, **bounds)
            await world.until(1.25 * HOUR)
            before = await world.told()
            assert [state for _, state, _ in before] == ["succeeded"] * (0 if "start_at" in bounds else 2)
            await instance.jobs.update(UpdateJob(name="job", **changed))
            await world.until(1.5 * HOUR + 1)
            instants = ["09:25:00"] if "schedule" in changed else ["09:20:00", "09:30:00"]
            assert await world.told() == [*before, *((at, "succeeded", "") for at in instants)]

    simulate(main)


def test_an_end_that_is_extended_at_the_last_moment_leaves_nothing_out() -> None:
    """What lay behind the old end had been looked past already."""

    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * * *", seconds=True, end_at=EPOCH_MS + 30_000)
            await world.until(29)
            await instance.jobs.update(UpdateJob(name="job", labels={"looked": "past"}))
            await world.until(30.5)
            await instance.jobs.update(UpdateJob(name="job", end_at=None))
            await world.until(60.5)
            assert [call.scheduled_at.second for _, call in world.calls] == [*range(1, 60), 0]
            assert (await instance.jobs.get(JobRef(name="job"))).runs >= 60

    simulate(main)


def test_instants_before_a_start_that_was_moved_away_are_not_run() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * *")
            await world.until(118)  # 08:02 is planned
            await instance.jobs.update(UpdateJob(name="job", start_at=EPOCH_MS + 240_000))
            await world.until(310)
            assert await world.told() == [
                ("08:01:00", "succeeded", ""),
                ("08:02:00", "skipped", "changed"),
                ("08:04:00", "succeeded", ""),
                ("08:05:00", "succeeded", ""),
            ]

    simulate(main)


def test_what_is_planned_again_after_a_change_uses_up_no_second_run() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *", max_runs=2)
            await world.until(HOUR - 4)  # 09:00 is planned
            await instance.jobs.update(UpdateJob(name="job", schedule="0,30 * * * *"))
            await world.until(3 * HOUR)
            assert await world.told() == [("09:00:00", "succeeded", ""), ("09:30:00", "succeeded", "")]
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.runs, job.state) == (2, "finished")

    simulate(main)


@pytest.mark.slow
def test_a_job_that_has_made_its_last_run_has_no_instants_to_skip() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *", max_runs=2)
            await world.until(HOUR)
            await instance.jobs.pause(PauseJob(name="job"))
            await world.until(2 * HOUR)
            await instance.jobs.resume(ResumeJob(name="job"))
            await world.until(3 * HOUR)
            await instance.jobs.update(UpdateJob(name="job", schedule="*/5 * * * *"))
            await world.until(4 * HOUR)
            assert [state for _, state, _ in await world.told()] == ["succeeded", "succeeded"]

    simulate(main)


def test_a_run_of_the_old_calendar_does_not_stop_one_of_the_new() -> None:
    """It is still to come, and will not be made; so it is nothing to wait for."""

    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 9 * * *")
            await world.until(HOUR - 4)  # 09:00:00 is planned
            await instance.jobs.update(UpdateJob(name="job", schedule="58 59 8 * * *", seconds=True))
            await world.until(HOUR + 10)
            assert await world.told() == [("08:59:58", "succeeded", ""), ("09:00:00", "skipped", "changed")]

    simulate(main)


def test_a_trigger_or_a_repeat_of_a_deleted_job_is_not_made_by_one_of_its_name() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            raise RuntimeError("not today")

        world.behave = work
        async with world.running() as instance:
            policy = RetryPolicy(max_attempts=9, initial_interval_seconds=60.0, jitter=0.0)
            await world.create(schedule="*/10 * * * *", retry_policy=policy)
            await world.until(601)
            run = await instance.jobs.trigger(TriggerJob(name="job"))
            await world.until(602)
            assert len(world.calls) == 2
            await world.delete()
            await world.create(schedule="0 12 * * *")
            await world.until(900)
            assert len(world.calls) == 2
            assert {run.launch_id: run.state for run in await world.runs()} == {
                f"job@{EPOCH_MS + 600_000}": "failed",
                run.launch_id: "failed",
            }

    simulate(main)


def test_a_calendar_that_is_changed_before_its_clock_has_looked_counts_from_the_change_on() -> None:
    async def main(world: World) -> None:
        """As after a create whose second half was lost: there is a definition, and no clock."""
        async with world.running() as instance:
            await world.until(1)
            now = world.clock.now_ms()
            old = Definition(
                schedule="*/10 * * * * *",
                seconds=True,
                url="handler:work",
                created_at=now,
                updated_at=now,
                catchup="all",
            )
            await instance.jobs_assembly.registry.put("job", old, expect=0)
            await world.until(26)
            await instance.jobs.update(UpdateJob(name="job", schedule="*/15 * * * * *"))
            await world.until(50)
            first, *launched = [run for run in await world.runs() if to_ms(run.scheduled_at) < world.clock.now_ms()]
            assert (clock_time(first.scheduled_at), first.state, first.reason, first.count) == (
                "08:00:10",
                "skipped",
                "changed",
                2,
            )
            assert [clock_time(run.scheduled_at) for run in launched] == ["08:00:30", "08:00:45"]

    simulate(main)


def test_what_was_planned_and_had_no_row_yet_is_skipped_when_its_job_is_deleted() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            rows = instance.jobs_assembly.rows
            add_runs = rows.add_runs

            async def fail(*_: object, **__: object) -> MissingRows:
                raise StoreUnavailable("simulated")

            rows.add_runs = fail  # type: ignore[method-assign]
            await world.create(schedule="*/5 * * * * *", seconds=True)
            await world.until(2)
            await world.delete()
            rows.add_runs = add_runs  # type: ignore[method-assign]
            await world.until(30)
            told = await world.told()
            assert told
            assert {(state, reason) for _, state, reason in told} == {("skipped", "deleted")}

    simulate(main)


def test_what_was_planned_ahead_by_the_old_calendar_holds_up_nothing_of_the_new_one_that_comes_before_it() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * * *", seconds=True)
            await world.until(13)
            await instance.jobs.update(UpdateJob(name="job", schedule="*/2 * * * * *"))
            await world.until(25)
            assert [at - EPOCH_MS for at, _ in world.calls] == [10_000, *range(14_000, 25_000, 2_000)]
            assert "skipped" not in {state for _, state, _ in await world.told()}

    simulate(main)


@pytest.mark.parametrize("change", ["bounds", "re-created"])
def test_the_instants_of_a_pause_are_on_record_although_one_of_them_was_planned_before_a_change(change: str) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * *")
            await world.until(178)  # that of 08:03 is planned already
            if change == "re-created":
                await world.delete()
                await world.create(schedule="* * * * *")
            await instance.jobs.pause(PauseJob(name="job"))
            await world.until(179)
            if change == "bounds":
                await instance.jobs.update(UpdateJob(name="job", end_at=to_instant(EPOCH_MS + 10 * HOUR * 1000)))
            await world.until(570)
            await instance.jobs.resume(ResumeJob(name="job"))
            await world.until(605)
            assert [(run.scheduled_at.minute, run.count, run.reason or run.state) for run in await world.runs()] == [
                (1, 1, "succeeded"),
                (2, 1, "succeeded"),
                (3, 1, "paused"),
                (4, 6, "paused"),
                (10, 1, "succeeded"),
            ]

    simulate(main)


def test_what_was_missed_after_a_change_is_on_record_although_some_of_it_was_planned_before() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * *")
            await world.until(178)  # that of 08:03 is planned already
            registry = instance.jobs_assembly.registry
            job = await registry.get("job")
            assert isinstance(job, Job)
            changed = replace(job.definition, end_at=EPOCH_MS + 10 * HOUR * 1000, updated_at=world.clock.now_ms())
            assert await registry.put("job", changed, expect=job.version)
        await world.until(HOUR + 30)
        async with world.running():
            await world.until(HOUR + 40)
            assert [
                (clock_time(run.scheduled_at), run.count, run.reason or run.state) for run in await world.runs()
            ] == [
                ("08:01:00", 1, "succeeded"),
                ("08:02:00", 1, "succeeded"),
                ("08:03:00", 1, "superseded"),
                ("08:04:00", 56, "superseded"),
                ("09:00:00", 1, "succeeded"),
            ]

    simulate(main)
