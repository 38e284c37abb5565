"""The registry is written by others, too, and not always well. In simulated time; on Redis in `test_every_store`."""

from __future__ import annotations

import asyncio
import json

import pytest

from mainspring.errors import Conflict
from mainspring.jobs.messages import JobRef, ListJobs, TriggerJob, UpdateJob
from mainspring.jobs.registry import JOBS
from mainspring.jobs.rows import CLOCKS
from mainspring.model import FOREVER
from mainspring.store import START as FIRST
from mainspring.store import TimerFilter
from mainspring.testing.simulation import EPOCH_MS
from mainspring.timers.messages import to_instant
from tests.jobs.simulated import World, simulate


async def write(world: World, name: str, text: bytes | object) -> None:
    """As another program does: whatever is there is written over."""
    now = world.clock.now_ms()
    present = await world.store.get_record(JOBS, name, now=now)
    value = text if isinstance(text, bytes) else json.dumps(text).encode()
    await world.store.put_record(JOBS, name, value, expect=0 if present is None else present.version, now=now)


def test_a_job_that_another_program_writes_is_picked_up_from_then_on() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await write(world, "foreign", {"schedule": "*/10 * * * *", "url": "handler:work", "team": "other"})
            await world.until(1250)
            assert [call.scheduled_at.minute for _, call in world.calls] == [10, 20]
            job = await instance.jobs.get(JobRef(name="foreign"))
            assert (job.state, job.runs, job.generation) == ("scheduled", 2, 1)
            await write(world, "foreign", {"schedule": "*/10 * * * *", "url": "handler:work", "paused": True})
            await world.until(2350)
            await write(world, "foreign", {"schedule": "*/5 * * * *", "url": "handler:work"})
            await world.until(2750)
            assert [(run.reason or run.state, run.count) for run in await world.runs("foreign")] == [
                ("succeeded", 1),
                ("succeeded", 1),
                ("paused", 2),
                ("succeeded", 1),
            ]

    simulate(main)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"not json", "Expected a job as JSON"),
        (b"{}", "schedule"),
        ({"schedule": "* * *", "url": "handler:work"}, "five fields"),
        ({"schedule": "0 0 30 2 *", "url": "handler:work"}, "a date that exists"),
        ({"schedule": "* * * * *", "url": "handler:work", "timezone": "Mars/Base"}, "time zone"),
        ({"schedule": "* * * * *"}, "job_base_url"),
        ({"schedule": "* * * * *", "url": "http://10.0.0.1/"}, "10.0.0.1"),
        ({"schedule": "* * * * *", "url": "ftp://example.com/"}, "http"),
        ({"schedule": "* * * * *", "url": "handler:work", "overlap": "terminateOther"}, "cannot be undone"),
        ({"schedule": "* * * * *", "url": "handler:work", "headers": {"a b": "c"}}, "header"),
        ({"schedule": "* * * * *", "url": "handler:work", "timeoutSeconds": "long"}, "timeoutSeconds"),
        (b'{"schedule": "* * * * *", "url": "handler:work"' + b"\xff}", "Expected a job as JSON"),
        (b"[" * 100_000, "Expected a job as JSON"),
    ],
)
def test_a_broken_record_is_shown_and_stops_no_other_job(text: bytes | object, problem: str) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await write(world, "a-broken", text)
            await world.create("sound", "* * * * *")
            await world.until(185)
            assert len(await world.runs("sound", states=("succeeded",))) == 3
            broken, sound = (await instance.jobs.list(ListJobs())).jobs
            assert (broken.name, broken.state, sound.state) == ("a-broken", "broken", "scheduled")
            assert problem in broken.problem
            assert await world.runs("a-broken") == []
            with pytest.raises(Conflict, match="broken"):
                await instance.jobs.trigger(TriggerJob(name="a-broken"))

    simulate(main)


def test_a_job_that_breaks_and_is_mended_accounts_for_the_time_between() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *", catchup="none")
            await world.until(1210)
            await write(world, "job", b"oops")
            await world.until(2950)
            assert (await instance.jobs.get(JobRef(name="job"))).state == "broken"
            await instance.jobs.update(UpdateJob(name="job", schedule="*/10 * * * *", url="handler:work"))
            assert (await instance.jobs.get(JobRef(name="job"))).state == "scheduled"
            await world.until(3700)
            assert await world.told() == [
                ("08:10:00", "succeeded", ""),
                ("08:20:00", "succeeded", ""),
                ("08:30:00", "skipped", "broken"),
                ("08:50:00", "succeeded", ""),
                ("09:00:00", "succeeded", ""),
            ]
            [meanwhile] = await world.runs(states=("skipped",))
            assert (meanwhile.count, meanwhile.scheduled_until) == (2, to_instant(EPOCH_MS + 2_400_000))

    simulate(main)


def test_a_job_that_other_settings_mend_has_a_clock_again() -> None:
    async def main(world: World) -> None:
        headers = {"authorization": "Bearer of-its-own"}
        async with world.running() as instance:
            await write(world, "routed", {"schedule": "@yearly", "route": "/work", "headers": headers})
            await world.until(90)
            assert (await instance.jobs.get(JobRef(name="routed"))).state == "broken"
            [row] = await instance.scheduling.rows.clocks(["routed"])
            assert row is not None
            assert row.due_at == FOREVER
        async with world.running(job_base_url="https://example.com") as instance:
            await world.until(180)
            assert (await instance.jobs.get(JobRef(name="routed"))).state == "scheduled"
            [row] = await instance.scheduling.rows.clocks(["routed"])
            assert row is not None
            assert world.clock.now_ms() < row.due_at < FOREVER

    simulate(main)


def test_a_job_that_another_program_removes_leaves_no_clock_behind() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await write(world, "running", {"schedule": "*/10 * * * *", "url": "handler:work"})
            await write(world, "resting", {"schedule": "*/10 * * * *", "url": "handler:work", "paused": True})
            await world.until(120)
            for name in ("running", "resting"):
                record = await world.store.get_record(JOBS, name, now=world.clock.now_ms())
                assert record is not None
                await world.store.delete_record(JOBS, name, expect=record.version, now=world.clock.now_ms())
            await world.until(700)
            assert world.calls == []
            namespace = await instance.namespaces.system(CLOCKS)
            assert await world.store.list_timers(namespace.shards, TimerFilter(), after=FIRST, limit=10) == []

    simulate(main)


def test_a_clock_that_was_never_made_is_made_at_the_next_look() -> None:
    async def main(world: World) -> None:
        """As after a crash between the definition and its row."""
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *")
            namespace = await instance.namespaces.system(CLOCKS)
            [row] = await world.store.get([namespace.key_of("job")])
            assert row is not None
            await instance.scheduling.rows.stop_clock("job")
            await world.until(700)
            assert len(world.calls) == 1

    simulate(main)


def test_one_instance_at_a_time_reconciles() -> None:
    async def main(world: World) -> None:
        async with world.running() as first, world.running() as second:
            await asyncio.sleep(100)
            record = await world.store.get_record("lock", "cron:psj", now=world.clock.now_ms())
            assert record is not None
            holder = json.loads(record.value)["owner"]
            assert holder == first.ownership.instance
            assert second.ownership.instance != holder
        record = await world.store.get_record("lock", "cron:psj", now=world.clock.now_ms())
        assert record is not None
        assert json.loads(record.value)["owner"] == ""  # let go at the end, not left to run out

    simulate(main)


def test_a_record_under_a_name_that_no_job_may_have_is_shown_and_can_be_removed() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await write(world, "no name/ö", {"schedule": "* * * * *", "url": "handler:work"})
            await world.until(130)
            [found] = (await instance.jobs.list(ListJobs())).jobs
            assert (found.state, "Expected a name of" in found.problem) == ("broken", True)
            assert await instance.jobs.get(JobRef(name=found.name)) == found
            await instance.jobs.delete(JobRef(name=found.name))
            assert (await instance.jobs.list(ListJobs())).jobs == ()
            assert world.calls == []

    simulate(main)
