"""Whatever fails, every instant ends exactly once: run, or skipped for a reason. Seeded, in simulated time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mainspring.cluster.instance import Instance
from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.jobs.calendar.calendar import Calendar, Dst
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.clock_state import UNWRITTEN_LIMIT
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.messages import JobRef, RunView, TriggerJob, UpdateJob
from mainspring.jobs.registry import JOBS as JOBS_META
from mainspring.jobs.rows import RUNS, read_state
from mainspring.kernel.ownership import INSTANCES
from mainspring.model import Record, Timer, TimerKey
from mainspring.store import Put, Remove, Store, Verdict
from mainspring.testing.simulation import EPOCH_MS, FaultyStore
from mainspring.wire.instants import to_ms
from tests.support.simulated_jobs import World, simulate
from tests.support.troubled_store import TroubledStore

SECONDS = 3600
JOBS: dict[str, dict[str, Any]] = {
    "caught-up": {"schedule": "* * * * *", "catchup": "all", "catchup_window_seconds": 86_400.0},
    "latest": {"schedule": "* * * * *", "catchup": "latest", "overlap": "bufferAll"},
    "missed": {"schedule": "*/2 * * * *", "catchup": "none", "overlap": "allowAll"},
    "one": {"schedule": "*/3 * * * *", "overlap": "bufferOne", "jitter_seconds": 20.0},
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_every_instant_ends_once_through_crashes_freezes_and_a_bad_store(seed: int) -> None:
    async def main(world: World) -> None:
        dice = random.Random(seed)

        async def work(_: DueJob) -> object:
            await asyncio.sleep(dice.choice([0.1, 0.1, 2, 30]))
            return {"ok": dice.random() > 0.1}

        world.behave = work
        async with world.running():
            for name, fields in JOBS.items():
                await world.create(name, timeout_seconds=60.0, **fields)
        while world.loop.time() < SECONDS:
            if dice.random() < 0.3:
                await asyncio.sleep(dice.random() * 600)  # nobody runs
            await _live(world, dice)
        async with world.running():
            await asyncio.sleep(1200)
            end = world.clock.now_ms()
            for name, fields in JOBS.items():
                _check(name, fields["schedule"], await world.runs(name), end, world.calls)

    simulate(main)


async def _live(world: World, dice: random.Random) -> None:
    """One or two instances for a while; they end well, lose their store for good, or are frozen for a while."""
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(dice.choice([1, 1, 2])):
            store = FaultyStore(world.store, dice, fault_rate=0.0, latency_seconds=0.02)
            await stack.enter_async_context(_Running(world, store))
            store.fault_rate = dice.choice([0.0, 0.02, 0.2])
            stores.append(store)
        for _ in range(dice.randrange(1, 4)):
            await asyncio.sleep(dice.random() * 300)
            frozen = dice.choice(stores)
            frozen.cut = True
            await asyncio.sleep(dice.random() * 20)
            frozen.cut = False
        for store in stores:
            store.fault_rate = 0.0
            store.cut = dice.random() < 0.5


class _Running:
    """An instance whose end is that of a crash when its store is cut."""

    def __init__(self, world: World, store: FaultyStore) -> None:
        self._context = world.running(store=store)

    async def __aenter__(self) -> Instance:
        return await self._context.__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        try:
            await self._context.__aexit__(None, None, None)
        except* StoreUnavailable:
            pass  # it died with its store


def _check(name: str, schedule: str, runs: list[RunView], end: int, calls: list[tuple[int, DueJob]]) -> None:
    calendar = Calendar(parse(schedule), "UTC", Dst())
    times: Counter[int] = Counter()
    for run in runs:
        assert run.state in ("succeeded", "failed", "unknown", "skipped") or to_ms(run.scheduled_at) > end - 300_000
        last = run.scheduled_at if run.scheduled_until is None else run.scheduled_until
        instants = calendar.between(to_ms(run.scheduled_at) - 1, to_ms(last), limit=100_000)
        assert len(instants) == run.count, run
        times.update(instants)
    expected = calendar.between(EPOCH_MS, end, limit=100_000)
    assert [instant for instant in expected if times[instant] != 1] == [], f"{name}: not accounted for once"
    deliveries: dict[int, set[str]] = defaultdict(set)
    last_call: dict[int, int] = {}
    for at, call in calls:
        if call.name == name:
            deliveries[to_ms(call.scheduled_at)].add(call.delivery_id)
            last_call[to_ms(call.scheduled_at)] = at
    assert [instant for instant, ids in deliveries.items() if len(ids) > 1] == []
    for run in runs:
        instant = to_ms(run.scheduled_at)
        if run.state == "skipped":
            assert instant not in deliveries, run
        elif run.finished_at is not None:
            assert last_call.get(instant, 0) <= to_ms(run.finished_at), f"called after its end: {run}"
            assert instant in last_call or run.state == "unknown", f"never called: {run}"


class _Judging:
    """A store that gives some of the rows that are written a verdict of its own, and does nothing about them."""

    def __init__(self, inner: Store, verdict: Verdict) -> None:
        self._inner = inner
        self._verdict = verdict
        self.is_judged: Callable[[str], bool] = lambda _: False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        judged = [isinstance(each, Put) and self.is_judged(each.timer.timer_id) for each in changes]
        others = [change for change, is_judged in zip(changes, judged, strict=True) if not is_judged]
        written = iter(await self._inner.write(others))
        return [self._verdict if is_judged else next(written) for is_judged in judged]


def test_a_job_whose_clock_cannot_be_reached_stops_no_other_and_has_its_own_later() -> None:
    async def main(world: World) -> None:
        store: Any = _Judging(world.store, Verdict.UNAVAILABLE)
        store.is_judged = lambda row: row == "b"
        for name in "abc":
            text = b'{"schedule": "* * * * *", "url": "handler:work"}'
            await world.store.put_record(JOBS_META, name, text, expect=0, now=world.clock.now_ms())
        async with world.running(store=store) as instance:
            await world.until(65)
            assert [call.name for _, call in world.calls] == ["a", "c"]
            with pytest.raises(StoreUnavailable):
                await instance.jobs.update(UpdateJob(name="b", labels={"in": "force"}))
            store.is_judged = lambda _: False
            await world.until(185)
            assert (await instance.jobs.get(JobRef(name="b"))).labels == {"in": "force"}
            assert [call.name for _, call in world.calls].count("b") >= 1

    simulate(main)


def test_a_run_of_which_nobody_knows_whether_it_was_written_is_written_again() -> None:
    async def main(world: World) -> None:
        store: Any = _Judging(world.store, Verdict.UNAVAILABLE)
        store.is_judged = lambda row: row == f"job@{EPOCH_MS + 60_000}"
        async with world.running(store=store):
            await world.create(schedule="* * * * *")
            await world.until(61)
            assert world.calls == []
            store.is_judged = lambda _: False
            await world.until(125)
            assert [(run.state, run.late_ms == 0) for run in await world.runs()] == [
                ("succeeded", False),
                ("succeeded", True),
            ]

    simulate(main)


def test_a_run_that_the_database_cannot_hold_has_failed_and_stops_no_other() -> None:
    async def main(world: World) -> None:
        store: Any = _Judging(world.store, Verdict.REFUSED)
        store.is_judged = lambda row: row == f"job@{EPOCH_MS + 60_000}"
        async with world.running(store=store) as instance:
            await world.create(schedule="* * * * *")
            await world.until(125)
            first, second = await world.runs()
            assert (first.state, second.state) == ("failed", "succeeded")
            assert "cannot hold" in first.reason
            store.is_judged = lambda row: row.startswith("job@")
            with pytest.raises(TooLarge):
                await instance.jobs.trigger(TriggerJob(name="job"))
            assert await world.runs(kinds=("manual",)) == []

    simulate(main)


class _Slow:
    """A store that, while it `is_slow`, keeps whoever reads a definition waiting, and renews no lease."""

    def __init__(self, inner: Store, *, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self.is_slow = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        if self.is_slow and collection == JOBS_META:
            await asyncio.sleep(self._seconds)
        return await self._inner.get_record(collection, key, now=now)

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        return [await self.get_record(collection, key, now=now) for collection, key in wanted]

    async def put_record(self, collection: str, key: str, value: bytes, **how: Any) -> Record | None:
        if self.is_slow and collection == INSTANCES:
            raise StoreUnavailable("simulated: slow")
        return await self._inner.put_record(collection, key, value, **how)


@pytest.mark.parametrize("until", [62.5, 66])
def test_nothing_is_run_by_an_instance_whose_lease_ended_while_it_looked_at_the_run(until: float) -> None:
    async def main(world: World) -> None:
        store: Any = _Slow(world.store, seconds=3)

        async def work(_: DueJob) -> None:
            assert world.instance.ownership.valid()

        world.behave = work
        async with world.running(store=store, lease_seconds=2.0, renew_seconds=0.5):
            await world.create(schedule="* * * * *")
            await world.until(59.9)
            store.is_slow = True
            await world.until(until)
            store.is_slow = False
            await world.until(80)
            assert [run.state for run in await world.runs() if run.attempts] == ["succeeded"]
            assert len(world.calls) == 1

    simulate(main)


class _Spoilt:
    """A store in which the definition of one job cannot be read."""

    def __init__(self, inner: Store, name: str) -> None:
        self._inner = inner
        self._name = name
        self.is_spoilt = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        if self.is_spoilt and (collection, key) == (JOBS_META, self._name):
            raise StoreUnavailable("simulated: that record cannot be read")
        return await self._inner.get_record(collection, key, now=now)

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        return [await self.get_record(collection, key, now=now) for collection, key in wanted]


def test_a_job_that_cannot_be_read_keeps_no_run_of_another_from_being_made() -> None:
    async def main(world: World) -> None:
        store: Any = _Spoilt(world.store, "bad")
        async with world.running(store=store):
            for name in ("bad", "good", "sound"):
                await world.create(name, schedule="* * * * *")
            await world.until(50)
            store.is_spoilt = True
            await world.until(60.5)
            assert sorted(call.name for _, call in world.calls) == ["good", "sound"]
            store.is_spoilt = False
            await world.until(90)
            assert sorted(call.name for _, call in world.calls) == ["bad", "good", "sound"]

    simulate(main)


def _minute(number: int) -> str:
    return f"job@{EPOCH_MS + number * 60_000}"


def test_a_run_whose_row_cannot_be_written_keeps_no_other_and_comes_when_it_can() -> None:
    async def main(world: World) -> None:
        store: Any = _Judging(world.store, Verdict.UNAVAILABLE)
        store.is_judged = lambda row: row in (_minute(2), _minute(5))
        async with world.running(store=store):
            await world.create(schedule="* * * * *", catchup="latest")
            await world.until(5 * 60 + 30)
            assert [to_ms(call.scheduled_at) - EPOCH_MS for _, call in world.calls] == [60_000, 180_000, 240_000]
            store.is_judged = lambda _: False
            await world.until(7 * 60 + 30)
            assert [state for _, state, _ in await world.told()][:7] == [
                "succeeded",
                "skipped",  # there was a newer one when it came to look
                *["succeeded"] * 5,
            ]
            assert next(call for _, call in world.calls if to_ms(call.scheduled_at) == EPOCH_MS + 300_000)

    simulate(main)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_run_whose_row_could_not_be_written_is_skipped_when_its_job_is_deleted(is_made_anew: bool) -> None:
    async def main(world: World) -> None:
        store: Any = _Judging(world.store, Verdict.UNAVAILABLE)
        store.is_judged = lambda row: row == _minute(2)
        async with world.running(store=store):
            await world.create(schedule="* * * * *")
            await world.until(150)
            await world.delete()
            if is_made_anew:
                await world.create(schedule="* * * * *")
            store.is_judged = lambda _: False
            await world.until(300)
            told = await world.told()
            assert ("08:02:00", "skipped", "changed" if is_made_anew else "deleted") in told
            assert all(row.attempts == 0 for row in await world.instance.jobs_assembly.rows.runs([_minute(2)]) if row)

    simulate(main)


def test_a_clock_leaves_no_more_runs_behind_than_it_can_remember() -> None:
    async def main(world: World) -> None:
        store: Any = _Judging(world.store, Verdict.UNAVAILABLE)
        store.is_judged = lambda row: row.startswith("job@")
        async with world.running(store=store) as instance:
            await world.create(schedule="* * * * * *", seconds=True, catchup="all", overlap="allowAll")
            await world.until(300)
            [row] = await instance.jobs_assembly.rows.clocks(["job"])
            assert row is not None
            assert 50 < len(read_state(row).unwritten) <= UNWRITTEN_LIMIT
            assert world.calls == []
            store.is_judged = lambda _: False
            await world.until(400.5)
            assert len({call.scheduled_at for _, call in world.calls}) == 400

    simulate(main)


class _Partitioned(TroubledStore):
    """Of which a part can be neither read nor written, and lets everybody wait."""

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        if self.bad_shards.intersection(key.shard_id for key in keys):
            await asyncio.sleep(self.hang_seconds)
            raise StoreUnavailable("simulated: a partition is away")
        return await self._inner.get(keys)

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        is_bad = [
            (change.timer if isinstance(change, Put) else change.key).shard_id in self.bad_shards for change in changes
        ]
        good = iter(await self._inner.write([change for change, bad in zip(changes, is_bad, strict=True) if not bad]))
        return [Verdict.UNAVAILABLE if bad else next(good) for bad in is_bad]


@pytest.mark.parametrize("hang_seconds", [0.0, 2.0])
@pytest.mark.parametrize("overlap", ["skip", "bufferAll", "bufferOne"])
@pytest.mark.parametrize("catchup", ["all", "latest"])
def test_runs_behind_rows_that_cannot_be_read_wait_are_told_of_and_go_afterwards(
    catchup: str, overlap: str, hang_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        store: Any = _Partitioned(world.store)
        store.hang_seconds = hang_seconds
        world.behave = lambda _: asyncio.sleep(5)
        async with world.running(store=store) as instance:
            await world.create("job", "* * * * *", overlap=overlap, catchup=catchup)
            await world.until(90)
            namespace = await instance.namespaces.system(RUNS)

            def shard(name: str, minute: int) -> int:
                return namespace.key_of(f"{name}@{EPOCH_MS + 60_000 * minute}").shard_id

            bad = shard("job", 2)
            other = next(name for n in range(999) if bad not in {shard(name := f"other{n}", m) for m in range(20)})
            await world.create(other, "* * * * *", overlap=overlap)
            store.bad_shards = {bad}
            await world.until(500)
            assert "a run is waiting for the store" in caplog.text
            store.bad_shards = set()
            await world.until(1175)
            assert [state for _, state, _ in await world.told(other)] == ["succeeded"] * 18
            assert {call.late_ms for call in await world.runs(other)} == {0}
            told = await world.told("job")
            assert sum(run.count for run in await world.runs("job")) == 19
            assert {reason for _, _, reason in told} <= ({""} if catchup == "all" else {"", "superseded"})
            assert [state for _, state, _ in told[-10:]] == ["succeeded"] * 10

    simulate(main)
