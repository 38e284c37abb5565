"""The registry is written by others, too, and not always well. In simulated time; on Redis in `test_every_store`."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from mainspring.errors import Conflict, StoreUnavailable
from mainspring.jobs.messages import JobRef, ListJobs, TriggerJob, UpdateJob
from mainspring.jobs.reconciler import FULL_LOOK_SECONDS
from mainspring.jobs.registry import JOBS
from mainspring.jobs.rows import CLOCKS
from mainspring.kernel.ownership import Lease
from mainspring.locks import LOCKS, Lock
from mainspring.model import FOREVER, Record, Timer, TimerKey, to_json
from mainspring.store import START as FIRST
from mainspring.store import Store, TimerFilter
from mainspring.testing.simulation import EPOCH_MS, FaultyStore
from mainspring.wire.instants import to_instant
from tests.support.simulated_jobs import World, simulate


async def write(world: World, name: str, text: bytes | object) -> None:
    """As another program does: whatever is there is written over."""
    now = world.clock.now_ms()
    present = await world.store.get_record(JOBS, name, now=now)
    value = text if isinstance(text, bytes) else json.dumps(text).encode()
    await world.store.put_record(JOBS, name, value, expect=0 if present is None else present.version, now=now)


async def never() -> bool:
    return False


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
            [row] = await instance.jobs_assembly.rows.clocks(["routed"])
            assert row is not None
            assert row.due_at == FOREVER
        async with world.running(job_base_url="https://example.com") as instance:
            await world.until(180)
            assert (await instance.jobs.get(JobRef(name="routed"))).state == "scheduled"
            [row] = await instance.jobs_assembly.rows.clocks(["routed"])
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
            assert (await world.store.list_timers(namespace.shards, TimerFilter(), after=FIRST, limit=10)).timers == []

    simulate(main)


def test_a_clock_that_was_never_made_is_made_at_the_next_look() -> None:
    async def main(world: World) -> None:
        """As after a crash between the definition and its row."""
        async with world.running() as instance:
            await world.create(schedule="*/10 * * * *")
            namespace = await instance.namespaces.system(CLOCKS)
            [row] = await world.store.get([namespace.key_of("job")])
            assert row is not None
            await instance.jobs_assembly.rows.stop_clock("job", is_wanted=never)
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


@pytest.mark.parametrize("wanted", [{}, {"labels": {"size": "large"}}], ids=["all", "by label"])
def test_a_list_of_large_jobs_comes_in_pages_that_are_bounded_in_bytes(wanted: dict[str, Any]) -> None:
    definition = {"schedule": "0 9 * * *", "url": "handler:work", "body": "x" * 100_000, "labels": {"size": "large"}}

    async def main(world: World) -> None:
        names = [f"job-{number:03}" for number in range(120)]
        for name in names:
            await write(world, name, definition)
        async with world.running() as instance:
            first = await instance.jobs.list(ListJobs(limit=1000, **wanted))
            assert first.next_cursor is not None
            rest = await instance.jobs.list(ListJobs(limit=1000, cursor=first.next_cursor, **wanted))
            assert rest.next_cursor is None
            assert [job.name for job in (*first.jobs, *rest.jobs)] == names

    simulate(main)


@pytest.mark.parametrize("seed", range(8))
def test_a_job_that_is_created_beside_its_deletion_has_a_clock_at_once(seed: int) -> None:
    async def main(world: World) -> None:
        dice = random.Random(seed)
        store = FaultyStore(world.store, dice, fault_rate=0.0, latency_seconds=0.1)
        async with world.running(store=store) as instance:

            async def recreate() -> None:
                while True:
                    try:
                        return await world.create(schedule="* * * * * *", seconds=True)
                    except Conflict:
                        await asyncio.sleep(dice.random() * 0.05)

            for _ in range(20):
                await recreate()
                await asyncio.sleep(dice.random() * 3)
                async with asyncio.TaskGroup() as both:
                    both.create_task(world.delete())
                    both.create_task(recreate())
                created = world.clock.now_ms()
                await asyncio.sleep(8)
                assert world.calls[-1][0] > created + 6_000, "its clock stands still"
                assert (await instance.jobs.get(JobRef(name="job"))).runs <= 25
                await world.delete()

    simulate(main)


class LateReads:
    """A store of which one read takes long."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.delay = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        delay, self.delay = self.delay, 0.0
        await asyncio.sleep(delay)
        return await self._inner.get(keys)


def test_a_deletion_that_comes_to_the_clock_late_leaves_that_of_the_new_job_alone() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            rows: Any = instance.jobs_assembly.rows
            rows._store = late = LateReads(rows._store)
            stop_clock = rows.stop_clock

            async def stop(name: str, **named: Any) -> None:
                late.delay = 1.0
                await stop_clock(name, **named)

            rows.stop_clock = stop
            await world.create(schedule="* * * * * *", seconds=True)
            await world.until(20)
            deletion = asyncio.create_task(world.delete())
            await asyncio.sleep(0.3)
            await world.create(schedule="* * * * * *", seconds=True)
            await deletion
            before = len(world.calls)
            await asyncio.sleep(20)
            assert len(world.calls) - before >= 19

    simulate(main)


def test_a_slow_change_of_a_deleted_job_brings_nothing_of_it_back() -> None:
    class LateWrites:
        delay = 0.0

        def __getattr__(self, name: str) -> Any:
            return getattr(world_store, name)

        async def put_record(self, *arguments: Any, **named: Any) -> Record | None:
            delay, self.delay = self.delay, 0.0
            await asyncio.sleep(delay)
            return await world_store.put_record(*arguments, **named)

    world_store: Store

    async def main(world: World) -> None:
        nonlocal world_store
        world_store = world.store
        async with world.running() as instance:
            late: Any = LateWrites()
            instance.jobs_assembly.registry._records = late
            await world.create(schedule="*/5 * * * * *", seconds=True)
            await world.until(10)
            late.delay = 2.0
            change = asyncio.create_task(instance.jobs.update(UpdateJob(name="job", labels={"changed": "yes"})))
            await asyncio.sleep(0.5)
            await world.delete()
            await world.create(schedule="0 0 1 1 *")
            before = len(world.calls)
            await change  # of the new one, which is there by then
            assert (await instance.jobs.get(JobRef(name="job"))).schedule == "0 0 1 1 *"
            await world.until(60)
            assert len(world.calls) == before

    simulate(main)


def test_a_clock_that_looks_at_a_deleted_job_does_not_take_the_new_one_with_it() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * * *", seconds=True, max_runs=1)
            await world.until(30)
            slow: Any = FaultyStore(world.store, random.Random(1), fault_rate=0.0, latency_seconds=5.0)
            instance.jobs_assembly.registry._records = slow  # the look takes long
            await instance.jobs_assembly.rows.hasten_clock("job")
            await asyncio.sleep(0.1)
            instance.jobs_assembly.registry._records = world.store
            await world.delete()
            await world.create(schedule="* * * * * *", seconds=True, max_runs=3)
            await world.until(60)
            assert (await instance.jobs.get(JobRef(name="job"))).runs == 3
            assert len(world.calls) == 4
            await world.until(120)
            assert len(world.calls) == 4

    simulate(main)


def test_after_all_instances_were_killed_the_registry_is_looked_at_at_once() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.until(10)
            record = await world.store.get_record("lock", "cron:psj", now=world.clock.now_ms())
            assert record is not None
        # As a kill leaves it: the lock is held, and nobody lives.
        lock = await world.store.get_record("lock", "cron:psj", now=world.clock.now_ms())
        assert lock is not None
        held = {**json.loads(record.value), "leaseUntil": world.clock.now_ms() + 90_000}
        await world.store.put_record(
            "lock", "cron:psj", json.dumps(held).encode(), expect=lock.version, now=world.clock.now_ms()
        )
        await world.until(20)
        await write(world, "foreign", {"schedule": "* * * * * *", "seconds": True, "url": "handler:work"})
        async with world.running():
            await world.until(25)
            assert world.calls, "nobody has looked at the registry"

    simulate(main)


def test_a_lock_that_an_instance_of_another_machine_left_is_taken_when_its_lease_has_ended() -> None:
    async def main(world: World) -> None:
        now = world.clock.now_ms()
        lease = Lease(instance="elsewhere", machine="another", pid=1)
        await world.store.put_record("instance", "elsewhere", to_json(lease), expect=0, now=now, expires_at=now + 6_000)
        await Lock(world.store, world.clock, "cron:psj", owner="elsewhere").try_acquire()
        await write(world, "foreign", {"schedule": "* * * * * *", "seconds": True, "url": "handler:work"})
        async with world.running():
            await world.until(5.5)
            assert world.calls == []  # it may be alive
            await world.until(15)
            assert world.calls

    simulate(main)


def test_a_lock_that_another_program_wrote_is_waited_for_and_ends_no_instance() -> None:
    async def main(world: World) -> None:
        await world.store.put_record("lock", "cron:psj", b"mine", expect=0, now=world.clock.now_ms())
        async with world.running():
            await world.create(schedule="* * * * *")
            await world.until(185)
            assert len(world.calls) == 3
            record = await world.store.get_record("lock", "cron:psj", now=world.clock.now_ms())
            assert record is not None
            assert record.value == b"mine"

    simulate(main)


class _Away:
    """A store whose registry is away, with the lock on it, while it `is_away`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if not name.endswith(("_record", "_records")):
            return verb

        async def ask(collection: str, *about: Any, **how: Any) -> Any:
            if self.is_away and (name == "get_records" or collection in (JOBS, LOCKS)):
                raise StoreUnavailable("simulated: the registry is away")
            return await verb(collection, *about, **how)

        return ask


def test_a_registry_that_was_away_for_a_moment_is_looked_at_within_five_seconds() -> None:
    async def main(world: World) -> None:
        store: Any = _Away(world.store)
        async with world.running(store=store):
            await world.until(FULL_LOOK_SECONDS - 0.5)
            store.is_away = True
            await world.until(FULL_LOOK_SECONDS + 0.5)
            store.is_away = False
            await write(world, "foreign", {"schedule": "* * * * * *", "seconds": True, "url": "handler:work"})
            await world.until(FULL_LOOK_SECONDS + 7)
            assert world.calls

    simulate(main)


def test_of_large_jobs_nothing_is_remembered() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            for number in range(20):
                body = "x" * 50_000 if number % 2 else "x"
                await write(world, f"job{number}", {"schedule": "0 0 1 1 *", "url": "handler:work", "body": body})
            registry = instance.jobs_assembly.registry
            jobs, _ = await registry.page(after="", limit=100)
            assert len(jobs) == 20
            kept = [understood.record for understood in registry._read.values()]
            assert len(kept) == 10
            assert sum(len(record.value) for record in kept) < 10_000

    simulate(main)
