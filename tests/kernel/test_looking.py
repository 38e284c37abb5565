"""What the engine asks of the store when nothing is due, and how it finds what nobody announced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.kernel.reader import BREATH
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Result, Timer
from mainspring.store import BATCH_LIMIT, START
from tests.support.engine_cluster import NAMESPACE, Cluster, Member, done, simulate


def watch(member: Member) -> Counter[str]:
    """Count the calls that a member makes from now on."""
    calls: Counter[str] = Counter()
    call = member.store._call  # the test watches the store from outside

    async def watched(verb: Any, *args: Any, **kwargs: Any) -> Any:
        calls[verb.__name__] += 1
        return await call(verb, *args, **kwargs)

    member.store._call = watched  # type: ignore[method-assign]
    return calls


class Others:
    """Counts the writes of others, as SQLite does."""

    def __init__(self) -> None:
        self.writes = 0
        self.asked = 0

    async def count(self) -> int:
        self.asked += 1
        return self.writes


def test_alone_on_a_store_that_notices_writers_an_idle_hour_reads_no_timer() -> None:
    async def scenario(cluster: Cluster) -> None:
        others = Others()
        cluster.foreign_writes = others.count
        member = await cluster.join("a")
        await cluster.create("t", in_ms=10**9)
        await asyncio.sleep(10)
        calls = watch(member)
        others.asked = 0
        await asyncio.sleep(3600)
        assert calls.keys() == {"time", "put_record", "scan_records"}
        assert 3590 <= others.asked <= 3601

    simulate(scenario)


def test_an_idle_hour_on_another_store_costs_one_call_a_second_for_all_shards() -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        await cluster.create("t", in_ms=10**9)
        await asyncio.sleep(10)
        calls = watch(member)
        await asyncio.sleep(3600)
        assert calls.keys() == {"time", "put_record", "scan_records", "next_due"}
        assert 3590 <= calls["next_due"] <= 3601

    simulate(scenario)


def test_many_shards_are_asked_for_in_batches() -> None:
    async def scenario(cluster: Cluster) -> None:
        async def shard_ids() -> list[int]:
            return list(range(BATCH_LIMIT + 1))

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
        member = await cluster.join("a")
        await asyncio.sleep(5)
        calls = watch(member)
        await asyncio.sleep(10)
        assert 18 <= calls["next_due"] <= 22
        assert calls["load_due"] == 0

    simulate(scenario)


def test_thousands_of_new_shards_hold_back_nothing_that_is_due_and_what_is_due_in_them_is_found() -> None:
    async def scenario(cluster: Cluster) -> None:
        shards = list(NAMESPACE.shards)[:-1]

        async def shard_ids() -> list[int]:
            return list(shards)

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
        cluster.latency_seconds = 0.005
        member = await cluster.join("a")
        for number in range(60):
            await cluster.create(f"t{number}", in_ms=1000 + number * 50)
        await asyncio.sleep(1)
        calls = watch(member)
        shards[:] = range(2_000)
        member.engine.claim_soon()
        await asyncio.sleep(4)
        assert member.engine.owned_shards == 2_000
        assert calls["load_due"] < 150, "shards in which nothing is due are not read one by one"
        assert len(cluster.ledger.sendings) == 60
        new = NAMESPACE.shards[-1]
        for sending in cluster.ledger.sendings:
            late = sending.at - sending.timer.due_at
            assert late <= (1000 if sending.timer.shard_id == new else 100)

    simulate(scenario)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("a defect")])
def test_new_shards_that_cannot_be_asked_together_are_read_one_by_one(error: Exception) -> None:
    async def scenario(cluster: Cluster) -> None:
        async def shard_ids() -> list[int]:
            return list(range(200))

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
        cluster.settings = EngineSettings(look_seconds=3600)
        await cluster.create("t")
        member = Member("a", cluster)
        cluster.members.append(member)
        call = member.store._call

        async def failing(verb: Any, *args: Any, **kwargs: Any) -> Any:
            if verb.__name__ == "next_due":
                raise error
            return await call(verb, *args, **kwargs)

        member.store._call = failing  # type: ignore[method-assign]
        await member.engine.start()
        await asyncio.sleep(1)
        assert len(cluster.ledger.of("t")) == 1

    simulate(scenario)


def test_what_another_program_writes_unannounced_fires_within_a_look_although_this_instance_is_alone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.join("a")
        await asyncio.sleep(5)
        for number in range(20):
            await cluster.create(f"t{number}", in_ms=number * 100 - 500, announce=False)
            await asyncio.sleep(0.37)
        await asyncio.sleep(2)
        assert len(cluster.ledger.sendings) == 20
        for sending in cluster.ledger.sendings:
            assert sending.at - max(sending.timer.due_at, sending.timer.detail.created_at) <= 1010

    simulate(scenario)


def test_a_foreign_write_that_the_store_notices_is_found_within_a_look() -> None:
    async def scenario(cluster: Cluster) -> None:
        others = Others()
        cluster.foreign_writes = others.count
        await cluster.join("a")
        await cluster.create("before", in_ms=100)
        await asyncio.sleep(5)
        timer = await cluster.create("t", in_ms=-60_000, announce=False)
        others.writes += 1
        await asyncio.sleep(1.1)
        [sending] = cluster.ledger.of("t")
        assert sending.at - timer.detail.created_at <= 1010

    simulate(scenario)


def test_a_foreign_write_behind_a_long_backlog_is_found_although_nobody_writes_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        others = Others()
        cluster.foreign_writes = others.count
        cluster.lane_limit = 1
        cluster.behave = lambda timer: (1000.0 if timer.detail.callback_url == "http://slow" else 0.0, done())
        await cluster.join("a")
        for number in range(60):
            await cluster.create(f"slow{number}", in_ms=-1000 + number, url="http://slow")
        await asyncio.sleep(5)
        await cluster.create("t", in_ms=-5980, url="http://good", announce=False)
        others.writes += 1
        await asyncio.sleep(15)
        assert len(cluster.ledger.of("t")) == 1

    simulate(scenario, EngineSettings(page_size=5, window_limit=16))


def test_a_page_read_before_an_ending_was_recorded_does_not_end_the_attempt_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.latency_seconds = 0.5
        cluster.behave = lambda _: (0.0, done())
        await cluster.join("a")
        timers = [await cluster.create(f"t{number}", in_ms=number * 50) for number in range(200)]
        await asyncio.sleep(30)
        for timer in timers:
            [attempt] = await cluster.store.history(timer.key)
            assert attempt.outcome is Result.SUCCEEDED

    simulate(scenario, EngineSettings(look_seconds=0.1))


def test_a_member_that_joins_takes_its_share_within_five_seconds() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        for number in range(100):
            await cluster.create(f"t{number}", in_ms=number * 100)
        await asyncio.sleep(2)
        await cluster.join("c")
        await asyncio.sleep(5)
        assert {shard.owner for shard in await cluster.owners()} == {"a", "c"}
        await asyncio.sleep(20)
        assert len(cluster.ledger.sendings) == 100
        assert await cluster.rows() == []

    simulate(scenario)


def test_members_that_are_told_change_hands_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.join("a")
        await asyncio.sleep(0.1)
        second = await cluster.join("c")
        first.engine.claim_soon()
        await asyncio.sleep(0.5)
        assert {shard.owner for shard in await cluster.owners()} == {"a", "c"}
        await cluster.leave(first)
        second.engine.claim_soon()
        await asyncio.sleep(0.1)
        assert {shard.owner for shard in await cluster.owners()} == {"c"}

    simulate(scenario)


def test_ownership_stays_calm_for_a_minute_of_work() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.latency_seconds = 0.2
        for name in "xyz":
            await cluster.join(name)
        await asyncio.sleep(5)
        before = await cluster.owners()
        assert len({shard.owner for shard in before}) > 1
        for number in range(120):
            await cluster.create(f"t{number}", announce=number % 2 == 0)
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        assert await cluster.owners() == before
        assert len(cluster.ledger.sendings) == 120

    simulate(scenario)


def test_the_owner_of_a_shard_is_known_to_everybody() -> None:
    async def scenario(cluster: Cluster) -> None:
        members = [await cluster.join(name) for name in "xyz"]
        await asyncio.sleep(8)
        owners = {shard.shard_id: shard.owner for shard in await cluster.owners()}
        for member in members:
            for shard_id in NAMESPACE.shards:
                lease = member.ownership.owner_of(shard_id)
                assert lease is not None
                assert lease.instance == owners[shard_id]

    simulate(scenario)


@pytest.mark.slow
def test_what_nobody_announced_behind_a_backlog_of_thousands_fires_within_a_look_and_a_little() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = lambda timer: (1000.0 if timer.detail.callback_url == "http://slow" else 0.0, done())
        await cluster.join("a")
        key = NAMESPACE.key_of("t")
        names = (f"slow{number}" for number in range(50_000))
        behind = [name for name in names if NAMESPACE.key_of(name).shard_id == key.shard_id][:10_000]
        for place, name in enumerate(behind):
            await cluster.create(name, in_ms=place - 10_000, url="http://slow", announce=False)
        await asyncio.sleep(10)
        timer = await cluster.create("t", in_ms=-10_010, url="http://good", announce=False)
        await asyncio.sleep(5)
        [sending] = cluster.ledger.of("t")
        assert sending.at - timer.detail.created_at <= 1500

    simulate(scenario)


def test_a_page_that_comes_late_does_not_move_what_a_sweep_has_bookmarked_meanwhile() -> None:
    async def scenario(cluster: Cluster) -> None:
        others = Others()
        cluster.foreign_writes = others.count
        cluster.lane_limit = 1
        cluster.behave = lambda _: (0.05, done())
        started_at = cluster.clock.now_ms()
        member = await cluster.join("a")
        names = [name for name in (f"t{n}" for n in range(900)) if NAMESPACE.key_of(name).shard_id == 0]
        for place, name in enumerate(names[:60]):
            await cluster.create(name, in_ms=place)
        await asyncio.sleep(0.9)
        load_due = member.store.load_due
        late = asyncio.Event()

        async def slow_once(shard_id: int, **arguments: Any) -> Any:
            page = await load_due(shard_id, **arguments)
            if not late.is_set() and arguments["after"] != START:
                late.set()
                await asyncio.sleep(0.6)
            return page

        setattr(member.store, "load_due", slow_once)  # noqa: B010 - it has what its store has
        await late.wait()
        for place, name in enumerate(names[60:80]):
            in_ms = started_at + 19 + 2 * place - cluster.clock.now_ms()
            await cluster.create(name, in_ms=in_ms, announce=False)
        others.writes += 1
        await asyncio.sleep(60)
        assert len(cluster.ledger.sendings) == 80

    simulate(scenario, EngineSettings(window_limit=8))


def test_others_get_a_turn_while_a_long_page_is_offered() -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        count = 4 * BREATH * len(NAMESPACE.shards)
        for n in range(count):
            await cluster.create(f"t{n}", in_ms=10_000)
        turn = 0
        ticking: list[asyncio.Task[None]] = []
        offered: Counter[tuple[int, int]] = Counter()
        dispatcher = member.engine.dispatcher
        offer = dispatcher.offer

        async def take_turns() -> None:
            nonlocal turn
            while offered.total() < count:
                turn += 1
                await asyncio.sleep(0)

        def counted(timers: Iterable[Timer], page: int) -> None:
            if not ticking:
                ticking.append(asyncio.create_task(take_turns()))
            offered.update((turn, timer.shard_id) for timer in timers)
            offer(timers, page)

        dispatcher.offer = counted  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert offered.total() >= count
        assert max(offered.values()) == BREATH

    simulate(scenario)


def test_what_was_read_is_called_while_another_shard_is_still_being_read() -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        for n in range(40):
            await cluster.create(f"t{n}", in_ms=10_000)
        load_due = member.store.load_due

        async def slow_in_one(shard_id: int, **arguments: Any) -> Any:
            if shard_id == NAMESPACE.shards[0]:
                await asyncio.sleep(0.15)
            return await load_due(shard_id, **arguments)

        setattr(member.store, "load_due", slow_in_one)  # noqa: B010 - it has what its store has
        await asyncio.sleep(20)
        late = {
            is_slow: max(
                sending.at - sending.timer.due_at
                for sending in cluster.ledger.sendings
                if (sending.timer.shard_id == NAMESPACE.shards[0]) is is_slow
            )
            for is_slow in (False, True)
        }
        assert len(cluster.ledger.sendings) == 40
        assert late[False] < 10
        assert late[True] >= 150

    simulate(scenario)
