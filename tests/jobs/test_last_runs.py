"""`lastRun` in the records of jobs: read when another program wrote it, written when a run has begun. In simulated
time; on Redis in `test_every_store`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.last_runs import LATEST_SECONDS, QUIET_SECONDS
from mainspring.jobs.messages import BackfillJob, JobRef, PauseJob, TriggerJob, UpdateJob
from mainspring.jobs.reconciler import FULL_LOOK_SECONDS
from mainspring.jobs.registry import JOBS
from mainspring.model import Record
from mainspring.store import Finish, Store, Verdict
from mainspring.testing.simulation import EPOCH_MS
from mainspring.wire.instants import to_instant
from tests.support.simulated_jobs import World, clock_time, simulate
from tests.support.troubled_store import TroubledStore

HOUR = 3_600_000
FOREIGN: dict[str, Any] = {"schedule": "0 * * * *", "url": "handler:work", "team": {"name": "ours", "size": 3}}


async def write(world: World, document: object, name: str = "job") -> None:
    """As another program does: whatever is there is written over."""
    now = world.clock.now_ms()
    present = await world.store.get_record(JOBS, name, now=now)
    value = json.dumps(document, indent=1).encode()
    await world.store.put_record(JOBS, name, value, expect=0 if present is None else present.version, now=now)


async def document(world: World, name: str = "job") -> dict[str, Any]:
    record = await world.store.get_record(JOBS, name, now=world.clock.now_ms())
    assert record is not None
    found: dict[str, Any] = json.loads(record.value)
    return found


class Registry:
    """A store in which others write, and that counts what is written to the records of jobs."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.puts: list[tuple[str, bytes]] = []
        self.is_away = False
        self.meanwhile: Any = None
        """What another program does just before a write."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put_record(self, collection: str, key: str, value: bytes, **how: Any) -> Record | None:
        if collection == JOBS and b"lastRun" in value:
            if self.is_away:
                raise StoreUnavailable("simulated: away")
            if self.meanwhile is not None:
                step, self.meanwhile = self.meanwhile, None
                await step()
            self.puts.append((key, value))
        return await self._inner.put_record(collection, key, value, **how)


def test_a_run_is_written_into_the_record_of_its_job_a_moment_after_it_began_and_nothing_else_is() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await write(world, FOREIGN)
            await world.until(3600 + QUIET_SECONDS / 2)
            assert len(world.calls) == 1
            assert await document(world) == FOREIGN
            await world.until(3600 + 2 * QUIET_SECONDS + 1)
            assert await document(world) == {**FOREIGN, "lastRun": EPOCH_MS + HOUR}
            await world.until(2 * 3600 + 10)
            assert await document(world) == {**FOREIGN, "lastRun": EPOCH_MS + 2 * HOUR}
            assert (await instance.jobs.get(JobRef(name="job"))).generation == 1

    simulate(main)


def test_a_failing_run_has_been_run_and_a_skipped_one_has_not() -> None:
    async def main(world: World) -> None:
        async def work(due: DueJob) -> object:
            await asyncio.sleep(90)
            return {"ok": False}

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", timeout_seconds=600.0)
            await world.until(65)
            assert (await document(world))["lastRun"] == EPOCH_MS + 60_000
            await world.until(150.5)
            assert [run.state for run in await world.runs()] == ["retrying", "skipped"]
            assert (await document(world))["lastRun"] == EPOCH_MS + 60_000

    simulate(main)


def test_what_was_run_outside_the_calendar_is_not_the_last_run() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *")
            await instance.jobs.trigger(TriggerJob(name="job"))
            asked = BackfillJob(name="job", since=EPOCH_MS - 2 * HOUR, until=EPOCH_MS)
            await instance.jobs.backfill(asked)
            await world.until(60)
            assert len(world.calls) == 3
            assert "lastRun" not in await document(world)

    simulate(main)


@pytest.mark.parametrize(
    ("written", "then"),
    [
        (EPOCH_MS - 2 * HOUR, EPOCH_MS),
        (str(EPOCH_MS - 2 * HOUR), str(EPOCH_MS)),
        ((EPOCH_MS - 2 * HOUR) // 1000, EPOCH_MS // 1000),
        ("2027-01-15T06:00:00.000Z", "2027-01-15T08:00:00Z"),
        ("2027-01-15T06:00:00", "2027-01-15T08:00:00Z"),
    ],
)
def test_an_instant_that_was_missed_since_another_program_ran_the_job_is_made_up_for(
    written: object, then: object
) -> None:
    async def main(world: World) -> None:
        """The instant of 08:00 is the very start."""
        await world.until(30)
        await write(world, {**FOREIGN, "lastRun": written})
        async with world.running() as instance:
            await world.until(60)
            [(_, due)] = world.calls
            assert (due.kind, clock_time(due.scheduled_at)) == ("catchup", "08:00:00")
            assert due.previous_at is not None
            assert clock_time(due.previous_at) == "06:00:00"
            assert [(run.scheduled_at.hour, run.reason or run.state) for run in await world.runs()] == [
                (7, "outside-window"),
                (8, "succeeded"),
            ]
            assert (await document(world))["lastRun"] == then
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.last_run, job.runs) == (to_instant(EPOCH_MS), 1)

    simulate(main)


def test_a_calendar_that_was_changed_before_anybody_looked_counts_from_its_change_on() -> None:
    async def main(world: World) -> None:
        await world.until(30)
        await write(world, {**FOREIGN, "catchup": "all", "lastRun": EPOCH_MS - 2 * HOUR})
        async with world.running() as instance:
            await instance.jobs.update(UpdateJob(name="job", schedule="*/10 * * * *"))
            await world.until(1210)
            assert [clock_time(due.scheduled_at) for _, due in world.calls] == ["08:10:00", "08:20:00"]

    simulate(main)


@pytest.mark.parametrize("written", [None, 0, "", "never", [], -1, 10**20])
def test_a_last_run_that_makes_no_sense_is_none_and_breaks_nothing(written: object) -> None:
    async def main(world: World) -> None:
        await world.until(30)
        await write(world, {**FOREIGN, "lastRun": written})
        async with world.running() as instance:
            await world.until(60)
            assert world.calls == []
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.state, job.last_run) == ("scheduled", None)
            await world.until(3610)
            assert (await document(world))["lastRun"] == EPOCH_MS + HOUR

    simulate(main)


def test_what_another_program_has_run_meanwhile_is_not_run_here_and_on_record_as_such() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *")
            await world.until(700)
        await world.until(1900)
        await write(world, {**await document(world), "lastRun": EPOCH_MS + 1_800_500})  # just after 08:30
        async with world.running() as instance:
            await world.until(2410)
            assert await world.told() == [
                ("08:10:00", "succeeded", ""),
                ("08:20:00", "skipped", "run-elsewhere"),
                ("08:40:00", "succeeded", ""),
            ]
            [elsewhere] = await world.runs(states=("skipped",))
            assert elsewhere.count == 2
            assert (await document(world))["lastRun"] == EPOCH_MS + 2_400_000
            assert (await instance.jobs.get(JobRef(name="job"))).last_run == to_instant(EPOCH_MS + 2_400_000)

    simulate(main)


def test_a_last_run_that_is_still_to_come_is_not_believed_and_replaced() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await write(world, {**FOREIGN, "schedule": "*/10 * * * *", "lastRun": EPOCH_MS + 1000 * HOUR})
            await world.until(100)
            assert (await instance.jobs.get(JobRef(name="job"))).last_run is None
            await world.until(1300)
            assert len(world.calls) == 2
            assert (await document(world))["lastRun"] == EPOCH_MS + 1_200_000

    simulate(main)


def test_a_change_of_another_program_at_the_same_moment_stays() -> None:
    async def main(world: World) -> None:
        store: Any = Registry(world.store)

        async def edit() -> None:
            await write(world, {**FOREIGN, "schedule": "30 * * * *", "note": "edited"})

        async with world.running(store=store):
            await world.create(schedule="0 * * * *")
            store.meanwhile = edit
            await world.until(3605)
            found = await document(world)
            assert (found["schedule"], found["note"], found["team"]) == ("30 * * * *", "edited", FOREIGN["team"])
            assert len(world.calls) == 1

    simulate(main)


def test_it_never_moves_backwards() -> None:
    async def main(world: World) -> None:
        store: Any = Registry(world.store)

        async def run_later() -> None:
            await write(world, {**await document(world), "lastRun": EPOCH_MS + 61_000})

        async with world.running(store=store):
            await world.create(schedule="* * * * *")
            store.meanwhile = run_later
            await world.until(70)
            assert (await document(world))["lastRun"] == EPOCH_MS + 61_000
            await world.until(130)
            assert (await document(world))["lastRun"] == EPOCH_MS + 120_000

    simulate(main)


def test_where_runs_begin_all_the_time_only_the_newest_is_written_now_and_then() -> None:
    async def main(world: World) -> None:
        store: Any = Registry(world.store)
        async with world.running(store=store):
            for number in range(5):  # with a jitter of its own each
                await world.create(f"job{number}", schedule="* * * * * *", seconds=True, jitter_seconds=1.0)
            await world.until(61)
            assert len(world.calls) >= 5 * 55
            assert 5 * 4 <= len(store.puts) <= 5 * 7
            last_run = (await document(world, "job0"))["lastRun"]
            assert last_run >= EPOCH_MS + 61_000 - (LATEST_SECONDS + 2 * QUIET_SECONDS) * 1000

    simulate(main)


def test_what_an_instance_has_not_written_when_it_stops_is_written_at_its_end() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="0 * * * *")
            await world.until(3600.2)
            assert len(world.calls) == 1
        assert (await document(world))["lastRun"] == EPOCH_MS + HOUR

    simulate(main)


def test_what_an_instance_could_not_write_is_completed_by_the_reconciler() -> None:
    async def main(world: World) -> None:
        store: Any = Registry(world.store)
        async with world.running(store=store):
            await world.create(schedule="@yearly", start_at=EPOCH_MS)
            await world.instance.jobs.update(UpdateJob(name="job", schedule="0 9 15 1 *"))
            store.is_away = True
            await world.until(3605)
            assert len(world.calls) == 1
        assert "lastRun" not in await document(world)
        async with world.running():
            await world.until(3605 + FULL_LOOK_SECONDS + 5)
            assert (await document(world))["lastRun"] == EPOCH_MS + HOUR
            assert len(world.calls) == 1

    simulate(main)


def test_it_waits_until_the_clock_has_accounted_for_the_run() -> None:
    """Else a look that is repeated would take it for a run of somebody else, and leave out what it has to plan."""

    async def main(world: World) -> None:
        troubled = TroubledStore(world.store)
        store: Any = troubled
        async with world.running(store=store) as instance:
            await world.create(schedule="0 * * * *", max_runs=2)
            clock = (await instance.jobs_assembly.rows.clocks(["job"]))[0]
            assert clock is not None

            def fault(verb: str, item: object) -> Verdict | None:
                is_clock = isinstance(item, Finish) and item.key == clock.key
                return Verdict.UNAVAILABLE if verb == "finish" and is_clock else None

            await world.until(3000)
            troubled.fault = fault
            await world.until(3608)
            assert len(world.calls) == 1
            assert "lastRun" not in await document(world)
            troubled.fault = lambda _verb, _item: None
            await world.until(3800)
            assert (await document(world))["lastRun"] == EPOCH_MS + HOUR
            await world.until(4 * 3600)
            assert [run.reason or run.state for run in await world.runs()] == ["succeeded", "succeeded"]

    simulate(main)


def test_a_job_whose_rows_are_lost_goes_on_from_its_last_run() -> None:
    """As with a registry of its own, whose main store was replaced."""

    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="*/10 * * * *", catchup="all")
            await world.until(1810)
        record = await world.store.get_record(JOBS, "job", now=world.clock.now_ms())
        assert record is not None
        other = World(world.loop)
        await other.store.put_record(JOBS, "job", record.value, expect=0, now=world.clock.now_ms())
        async with other.running():
            await world.until(3010)
            assert [clock_time(due.scheduled_at) for _, due in other.calls] == ["08:40:00", "08:50:00"]

    simulate(main)


def test_a_write_tells_no_clock_to_look_again() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *")
            await world.until(3606)
            [before] = await instance.jobs_assembly.rows.clocks(["job"])
            await world.until(3606 + 2 * FULL_LOOK_SECONDS)
            [after] = await instance.jobs_assembly.rows.clocks(["job"])
            assert before == after

    simulate(main)


def test_a_pause_keeps_the_last_run() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="0 * * * *")
            await world.until(3606)
            await instance.jobs.pause(PauseJob(name="job"))
            assert (await document(world))["lastRun"] == EPOCH_MS + HOUR

    simulate(main)
