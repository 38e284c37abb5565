"""What a run does about the one before it that is not over, for every policy. In simulated time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.errors import InvalidInput
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.messages import BackfillJob, CreateJob, JobRef, TriggerJob, UpdateJob
from mainspring.jobs.rows import RUNS
from mainspring.model import Record, RetryPolicy
from mainspring.store import Put, Verdict
from mainspring.testing.simulation import EPOCH_MS
from mainspring.wire.instants import to_instant
from mainspring.wire.strict_json import decode
from tests.support.simulated_jobs import START, World, simulate
from tests.support.troubled_store import TroubledStore


class SlowLedger(TroubledStore):
    """The ledger takes a while to read."""

    seconds = 0.0

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return (await self.get_records([(collection, key)], now=now))[0]

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        found = [await self._inner.get_record(collection, key, now=now) for collection, key in wanted]
        await asyncio.sleep(self.seconds if any(name.startswith("launch:") for name, _ in wanted) else 0)
        return found


@pytest.mark.parametrize(
    ("overlap", "told"),
    [
        ("skip", ["01 succeeded", "02 overlap", "03 overlap", "04 running", "05 overlap", "06 overlap"]),
        ("bufferOne", ["01 succeeded", "02 succeeded", "03 overlap", "04 running", "05 overlap", "06 buffered"]),
        ("bufferAll", ["01 succeeded", "02 succeeded", "03 running", "04 buffered", "05 buffered", "06 buffered"]),
        ("allowAll", ["01 succeeded", "02 succeeded", "03 succeeded", "04 running", "05 running", "06 running"]),
        ("cancelOther", ["01 cancelled", "02 cancelled", "03 cancelled", "04 cancelled", "05 cancelled", "06 running"]),
    ],
)
def test_overlapping_runs_follow_the_policy(overlap: str, told: list[str]) -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(140)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", overlap=overlap, timeout_seconds=600.0)
            await world.until(6 * 60 + 5)
            runs = await world.runs()
            words = [f"{run.scheduled_at:%M} {run.reason if run.state == 'skipped' else run.state}" for run in runs]
            assert words == told

    simulate(main)


@pytest.mark.parametrize(("schedule", "seconds", "work_seconds"), [("* * * * *", 60, 140), ("* * * * * *", 1, 3.5)])
def test_so_many_runs_as_max_runs_says_are_made_however_many_are_skipped(
    schedule: str, seconds: int, work_seconds: float
) -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(work_seconds)

        world.behave = work
        async with world.running() as instance:
            await world.create(schedule=schedule, seconds=seconds == 1, timeout_seconds=600.0, max_runs=3)
            await world.until(seconds * 30)
            runs = await world.runs()
            made = [run for run in runs if run.state == "succeeded"]
            assert (len(made), len(world.calls)) == (3, 3)
            assert {run.reason for run in runs if run not in made} == {"overlap"}
            instants = [run.scheduled_at for run in runs]
            assert all((later - earlier).seconds == seconds for earlier, later in itertools.pairwise(instants))
            assert runs[-1] == made[-1]
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.runs, job.state) == (3, "finished")

    simulate(main)


def test_buffered_runs_begin_as_soon_as_the_one_before_ends() -> None:
    async def main(world: World) -> None:
        starts: list[tuple[str, int]] = []

        async def work(due: DueJob) -> None:
            starts.append((f"{due.scheduled_at:%M}", world.clock.now_ms() - EPOCH_MS))
            await asyncio.sleep(90)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", overlap="bufferAll", timeout_seconds=600.0, max_runs=4)
            await world.until(15 * 60)
            assert [minute for minute, _ in starts] == ["01", "02", "03", "04"]
            gaps = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(starts)]
            assert all(90_000 <= gap < 90_200 for gap in gaps), gaps
            assert {run.state for run in await world.runs()} == {"succeeded"}

    simulate(main)


def test_a_cancelled_run_says_that_its_call_may_have_taken_effect() -> None:
    async def main(world: World) -> None:
        async def work(due: DueJob) -> None:
            await asyncio.sleep(100 if due.scheduled_at.minute == 1 else 0)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", overlap="cancelOther", timeout_seconds=600.0, max_runs=2)
            await world.until(10 * 60)
            first, second = await world.runs()
            assert (first.state, second.state) == ("cancelled", "succeeded")
            assert (first.attempts, "may have taken effect" in first.reason) == (1, True)

    simulate(main)


@pytest.mark.parametrize("is_ok", [True, False])
def test_a_run_that_was_cancelled_during_its_call_tells_how_that_ended(*, is_ok: bool) -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> object:
            is_first = len(world.calls) == 1
            await asyncio.sleep(90 if is_first else 1)
            return {"ok": is_ok or not is_first}

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", overlap="cancelOther", timeout_seconds=600.0, max_runs=2)
            await world.until(130)
            [first, _] = await world.runs()
            assert (first.state, first.attempts, first.duration_ms) == ("cancelled", 1, None)
            await world.until(10 * 60)
            [first, second] = await world.runs()
            assert (first.state, first.attempts, first.status, first.duration_ms) == ("cancelled", 1, 200, 90_000)
            assert f"it ended as {'succeeded' if is_ok else 'failed: '}" in first.reason
            assert first.started_at == first.scheduled_at
            assert second.state == "succeeded"
            assert len(world.calls) == 2

    simulate(main)


def test_a_run_that_was_cancelled_between_two_attempts_keeps_what_came_of_the_first() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> object:
            await asyncio.sleep(2)
            return {"ok": len(world.calls) > 1}

        world.behave = work
        policy = RetryPolicy(max_attempts=3, initial_interval_seconds=300.0)
        async with world.running():
            await world.create(schedule="* * * * *", overlap="cancelOther", max_runs=2, retry_policy=policy)
            await world.until(70)
            [first] = await world.runs()
            assert (first.state, first.status, first.duration_ms) == ("retrying", 200, 2000)
            await world.until(200)
            [first, second] = await world.runs()
            assert (first.state, first.attempts, first.status, first.duration_ms) == ("cancelled", 1, 200, 2000)
            assert second.state == "succeeded"

    simulate(main)


def test_terminating_another_call_is_not_offered() -> None:
    with pytest.raises(InvalidInput, match=r"^The request is not valid: /overlap: Expected one of skip, bufferOne, "):
        decode(b'{"name": "job", "schedule": "@daily", "overlap": "terminateOther"}', CreateJob)


def test_a_manual_run_waits_for_nobody_and_nobody_waits_for_it() -> None:
    async def main(world: World) -> None:
        async def work(due: DueJob) -> None:
            await asyncio.sleep(100 if due.kind == "manual" else 0)

        world.behave = work
        async with world.running() as instance:
            await world.create(schedule="* * * * *", timeout_seconds=600.0)
            await world.until(50)
            run = await instance.jobs.trigger(TriggerJob(name="job", by="ann"))
            assert (run.kind, run.by) == ("manual", "ann")
            await world.until(190)
            states = [(run.kind, run.state) for run in await world.runs()]
            assert states == [("manual", "succeeded")] + [("scheduled", "succeeded")] * 3

    simulate(main)


def test_a_backfill_runs_once_what_was_never_run_one_after_another() -> None:
    async def main(world: World) -> None:
        running = 0
        most = 0

        async def work(_: DueJob) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(3)
            running -= 1

        world.behave = work
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *", catchup="none", overlap="allowAll")
            await world.until(30)
        await world.until(3 * 3600 + 30)
        async with world.running() as instance:
            await world.until(3 * 3600 + 700)
            wanted: dict[str, Any] = {"name": "job", "since": START, "until": EPOCH_MS + 3 * 3_600_000 + 600_001}
            counted = await instance.jobs.backfill(BackfillJob(**wanted, dry_run=True))
            assert (counted.instants, counted.launched) == (20, 19)  # one of the minute it began, one on time
            done = await instance.jobs.backfill(BackfillJob(**wanted, by="ann"))
            assert (done.instants, done.launched) == (20, 19)
            again = await instance.jobs.backfill(BackfillJob(**wanted))
            assert again.launched == 0
            await world.until(3 * 3600 + 800)
            assert most == 1
            backfilled = await world.runs(kinds=("backfill",))
            assert [run.state for run in backfilled] == ["succeeded"] * 19
            assert {run.by for run in backfilled} == {"ann"}
            calls = [call.scheduled_at for _, call in world.calls if call.kind == "backfill"]
            assert calls == sorted(calls)
            assert len(set(calls)) == 19

    simulate(main)


def test_a_backfill_of_the_future_or_of_too_much_is_refused() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * *")
            with pytest.raises(InvalidInput, match="not in the future"):
                await instance.jobs.backfill(BackfillJob(name="job", since=START, until=EPOCH_MS + 3_600_000))
            with pytest.raises(InvalidInput, match="at most 10000 instants, got more"):
                await instance.jobs.backfill(BackfillJob(name="job", since=EPOCH_MS - 10 * 86_400_000, until=EPOCH_MS))

    simulate(main)


def test_a_missed_run_that_was_planned_does_not_stop_the_one_that_supersedes_it() -> None:
    """Else neither would go: the one because it is not the latest, the other because of the one."""

    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *", catchup_window_seconds=86_400.0)
            await world.until(3597)
            [planned] = await world.runs()
            key = (await instance.namespaces.system(RUNS)).key_of(planned.launch_id)
        await world.until(7205)
        [row] = await world.store.get([key])
        assert row is not None
        # Its shard has another owner, and that one comes a little later.
        await world.store.write([Put(replace(row, due_at=row.due_at + 3_608_000), row.version)])
        async with world.running():
            await world.until(7230)
            assert await world.told() == [("09:00:00", "skipped", "superseded"), ("10:00:00", "succeeded", "")]

    simulate(main)


@pytest.mark.parametrize("look_seconds", [0.0, 0.2])
@pytest.mark.parametrize("ahead_ms", [0, 300])
@pytest.mark.parametrize("overlap", ["skip", "bufferOne", "bufferAll"])
def test_a_missed_run_and_the_one_that_supersedes_it_may_be_looked_at_at_the_same_time(
    overlap: str, ahead_ms: int, look_seconds: float
) -> None:
    async def main(world: World) -> None:
        store: Any = SlowLedger(world.store)
        async with world.running(store=store) as instance:
            await world.create(schedule="0 * * * *", catchup_window_seconds=86_400.0, overlap=overlap)
            await world.until(3597)
            key = (await instance.namespaces.system(RUNS)).key_of(f"job@{EPOCH_MS + 3_600_000}")
            [row] = await world.store.get([key])
            assert row is not None
            # Its shard has no owner for a while.
            await world.store.write([Put(replace(row, due_at=row.due_at + 3_600_000 + ahead_ms), row.version)])
            await world.until(7199)
            store.seconds = look_seconds
            await world.until(7230)
            assert await world.told() == [("09:00:00", "skipped", "superseded"), ("10:00:00", "succeeded", "")]

    simulate(main)


@pytest.mark.parametrize("overlap", ["skip", "bufferOne"])
@pytest.mark.parametrize(
    ("catchup", "held_up_ms", "first", "done_at"),
    [
        ("latest", 7_000, "succeeded", 25),
        ("latest", 30_000, "superseded", 35),
        ("none", 30_000, "missed", 35),
        ("all", 30_000, "succeeded", 50),
    ],
)
def test_a_run_that_is_held_up_and_has_not_begun_costs_none_of_those_behind_it(
    catchup: str, held_up_ms: int, first: str, done_at: int, overlap: str
) -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(0.1)

        world.behave = work
        async with world.running() as instance:
            await world.create(schedule="*/2 * * * * *", seconds=True, catchup=catchup, overlap=overlap)
            await world.until(11)
            key = (await instance.namespaces.system(RUNS)).key_of(f"job@{EPOCH_MS + 12_000}")
            [row] = await world.store.get([key])
            assert row is not None
            # Its shard has no owner for a while.
            await world.store.write([Put(replace(row, due_at=row.due_at + held_up_ms), row.version)])
            await world.until(done_at)
            behind = await world.runs(since=to_instant(EPOCH_MS + 13_000), until=to_instant(EPOCH_MS + 24_000))
            assert {run.reason or run.state for run in behind} == {"succeeded"}
            await world.until(60)
            runs = await world.runs(until=to_instant(EPOCH_MS + 59_000))
            assert [(run.scheduled_at, run.reason or run.state) for run in runs] == [
                (START + timedelta(seconds=at), first if at == 12 else "succeeded") for at in range(2, 59, 2)
            ]
            calls = [call.scheduled_at for _, call in world.calls]
            assert calls == sorted(set(calls))

    simulate(main)


def test_under_the_catchup_all_an_outage_is_no_reason_to_skip_for_overlap() -> None:
    """What was planned before it, missed in it, and has just come meets at the start, and all of it is run."""

    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(0.1)

        world.behave = work
        async with world.running():
            await world.create(schedule="*/2 * * * * *", seconds=True, catchup="all")
            await world.until(9)
        await world.until(61.5)
        async with world.running():
            await world.until(180)
            runs = await world.runs(until=to_instant(EPOCH_MS + 61_500))
            assert [run.state for run in runs] == ["succeeded"] * 30
            calls = [call.scheduled_at for _, call in world.calls]
            assert calls == sorted(set(calls))

    simulate(main)


@pytest.mark.parametrize("overlap", ["skip", "bufferOne"])
@pytest.mark.parametrize(("catchup", "caught_up"), [("latest", ["04"]), ("all", ["02", "03", "04"])])
def test_an_instant_that_is_on_time_is_not_skipped_because_a_catch_up_is_under_way(
    catchup: str, caught_up: list[str], overlap: str
) -> None:
    async def main(world: World) -> None:
        running: list[str] = []

        async def work(due: DueJob) -> None:
            running.append(due.launch_id)
            assert len(running) == 1, "one after another"
            await asyncio.sleep(45 if due.scheduled_at.minute > 1 else 1)
            running.clear()

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", catchup=catchup, overlap=overlap, timeout_seconds=600.0)
            await world.until(90)
        await world.until(290)
        async with world.running():
            await world.until(900)
            runs = await world.runs(since=to_instant(EPOCH_MS + 120_000))
            assert [f"{run.scheduled_at:%M}" for run in runs if run.kind == "catchup"] == caught_up
            on_time = [run for run in runs if run.kind == "scheduled" and run.state != "skipped"]
            assert [f"{run.scheduled_at:%M}" for run in on_time][:10] == [f"{n:02}" for n in range(5, 15)]
            assert {run.reason for run in runs if run.state == "skipped"} <= {"superseded"}
            assert on_time[9].late_ms == 0
            calls = [call.scheduled_at for _, call in world.calls]
            assert calls == sorted(set(calls))

    simulate(main)


@pytest.mark.parametrize("catchup", ["latest", "all"])
def test_one_that_was_planned_before_an_outage_and_comes_after_it_is_a_catch_up_for_those_on_time(catchup: str) -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(45)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", catchup=catchup, timeout_seconds=600.0)
            await world.until(58)
            assert [run.state for run in await world.runs()] == ["planned"]
        await world.until(110)
        async with world.running():
            await world.until(400)
            assert {run.reason for run in await world.runs()} == {""}
            assert [f"{call.scheduled_at:%M}" for _, call in world.calls] == ["01", "02", "03", "04", "05", "06"]

    simulate(main)


def test_a_job_that_takes_longer_than_its_interval_does_not_fall_behind_for_ever_after_a_catch_up() -> None:
    """It skips what it would have skipped had there been no outage, and the delay shrinks with every run."""

    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(100)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", catchup="all", timeout_seconds=600.0)
            await world.until(30)
        await world.until(170)
        async with world.running():
            await world.until(3000)
            runs = await world.runs(until=to_instant(EPOCH_MS + 2_700_000))
            told = [f"{run.scheduled_at:%M} {run.reason or run.state}" for run in runs]
            assert told[:3] == ["01 succeeded", "02 succeeded", "03 succeeded"]  # two of the outage, and the next
            assert told[3:] == [f"{n:02} {'overlap' if n % 2 == 0 else 'succeeded'}" for n in range(4, 45)]
            late = [run.late_ms or 0 for run in runs if run.state == "succeeded"]
            assert late[2:] == sorted(late[2:], reverse=True)
            assert late[-1] == 0

    simulate(main)


def test_a_job_that_buffers_all_skips_nothing_after_a_catch_up_either() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(100)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", catchup="all", overlap="bufferAll", timeout_seconds=600.0)
            await world.until(30)
        await world.until(170)
        async with world.running():
            await world.until(1500)
            assert {run.state for run in await world.runs()} <= {"succeeded", "running", "buffered", "planned"}

    simulate(main)


def test_a_cancelled_run_is_counted_once() -> None:
    async def main(world: World) -> None:
        async def work(due: DueJob) -> None:
            await asyncio.sleep(100 if due.scheduled_at.minute == 1 else 0)

        world.behave = work
        before = dict(telemetry.runs.values)
        async with world.running():
            await world.create(schedule="* * * * *", overlap="cancelOther", timeout_seconds=600.0, max_runs=2)
            await world.until(10 * 60)
            assert [run.state for run in await world.runs()] == ["cancelled", "succeeded"]
        counted = {state: count - before.get(state, 0) for state, count in telemetry.runs.values.items()}
        assert {state: count for state, count in counted.items() if count} == {"cancelled": 1, "succeeded": 1}

    simulate(main)


def test_a_run_that_is_long_about_to_wait_is_told_all_the_same_that_its_turn_has_come() -> None:
    async def main(world: World) -> None:
        store: Any = TroubledStore(world.store)

        async def work(_: DueJob) -> None:
            await asyncio.sleep(60.5 if len(world.calls) == 1 else 1)

        world.behave = work
        async with world.running(store=store) as instance:
            await world.create(schedule="* * * * *", overlap="bufferAll", timeout_seconds=120.0)
            second = (await instance.namespaces.system(RUNS)).key_of(f"job@{EPOCH_MS + 120_000}")
            await world.until(119.9)
            store.fault = lambda verb, item: Verdict.UNAVAILABLE if verb == "finish" and item.key == second else None
            await world.until(128)
            store.fault = lambda _verb, _item: None
            await world.until(200)
            assert [round((at - EPOCH_MS) / 1000) for at, _ in world.calls][0::2] == [60, 180]
            assert 128_000 <= world.calls[1][0] - EPOCH_MS < 131_000

    simulate(main)


def test_a_run_that_waited_and_now_cancels_the_other_does_not_wait_for_itself() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(150 if len(world.calls) == 1 else 1)

        world.behave = work
        async with world.running() as instance:
            await world.create(schedule="* * * * *", overlap="bufferAll", timeout_seconds=170.0)
            await world.until(125)
            await instance.jobs.update(UpdateJob(name="job", overlap="cancelOther"))
            await instance.jobs_assembly.rows.hasten_run(f"job@{EPOCH_MS + 120_000}")
            await world.until(130)
            assert [(at - EPOCH_MS) // 1000 for at, _ in world.calls] == [60, 125]

    simulate(main)


def test_a_run_that_was_told_that_its_turn_has_come_goes_although_the_answer_about_its_wait_was_lost() -> None:
    async def main(world: World) -> None:
        store: Any = TroubledStore(world.store)

        async def work(_: DueJob) -> None:
            await asyncio.sleep(60.25 if len(world.calls) == 1 else 1)

        world.behave = work
        async with world.running(store=store):
            await world.create(schedule="* * * * *", overlap="bufferAll", timeout_seconds=120.0)
            await world.until(119.95)
            store.lose_answers = {"finish"}
            await world.until(120.35)
            store.lose_answers = set()
            await world.until(190)
            assert [(at - EPOCH_MS) // 1000 for at, _ in world.calls] == [60, 120, 180]

    simulate(main)
