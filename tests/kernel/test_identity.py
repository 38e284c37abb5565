"""What was decided upon a row touches that row only, and what was written is written once."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec.structs import replace

from mainspring.kernel.carrier import Ending
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Attempt, Delivery, Result, Shard, State, Timer
from mainspring.store import Begin, Finish, Put, Verdict
from tests.support.engine_cluster import NAMESPACE, Cluster, Member, done, simulate
from tests.support.troubled_store import TroubledStore


def test_a_timer_created_again_is_not_lost_to_its_deleted_twin() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = lambda timer: (2.0 if timer.timer_id == "slow" else 0.0, done())
        await cluster.join("a")
        await cluster.create("slow")
        await asyncio.sleep(0.1)
        await cluster.create("t", payload='"old"')
        await asyncio.sleep(0.1)  # it waits for the slot
        await cluster.delete("t")
        new = await cluster.create("t", in_ms=3_600_000, payload='"new"')
        await asyncio.sleep(10)
        assert cluster.ledger.of("t") == []
        assert await cluster.store.get([new.key]) == [new]
        await asyncio.sleep(3600)
        assert [sending.timer.payload for sending in cluster.ledger.of("t")] == ['"new"']

    simulate(scenario)


def test_a_timer_created_again_while_the_call_of_its_twin_is_in_flight_fires_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        await cluster.create("t", payload='"old"')
        await asyncio.sleep(0.5)
        await cluster.delete("t")
        new = await cluster.create("t", payload='"new"')
        await asyncio.sleep(10)
        assert [sending.timer.payload for sending in cluster.ledger.of("t")] == ['"old"', '"new"']
        history = await cluster.store.history(new.key)
        assert [attempt.next for attempt in history] == ["done", "superseded"]

    simulate(scenario)


def test_a_row_in_another_shard_with_the_uuid_of_one_in_flight_fires_when_that_is_over() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (5.0, done())
        cluster.foreign_writes = nobody_else
        await cluster.join("a")
        old = await cluster.create("t", payload='"old"')
        await asyncio.sleep(0.5)
        await cluster.delete("t")
        elsewhere = next(shard for shard in NAMESPACE.shards if shard != old.shard_id)
        new = replace(old, shard_id=elsewhere, payload='"new"', due_at=cluster.clock.now_ms(), version=77)
        assert await cluster.store.write([Put(new, 0)]) == [Verdict.APPLIED]
        cluster.announce(new)
        await asyncio.sleep(30)
        assert [sending.timer.payload for sending in cluster.ledger.of("t")] == ['"old"', '"new"']

    simulate(scenario)


async def nobody_else() -> int:
    return 0


def test_a_record_of_an_outcome_whose_answer_was_lost_is_the_only_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        await cluster.join("a")
        store.lose_answers = {"finish"}
        timer = await cluster.create("t")
        await asyncio.sleep(0.3)
        assert await cluster.rows() == []
        store.lose_answers = set()
        await asyncio.sleep(5)
        [attempt] = await cluster.store.history(timer.key)
        assert (attempt.outcome, attempt.next) == (Result.SUCCEEDED, "done")

    simulate(scenario)


def test_an_outcome_of_a_row_that_a_user_replaced_is_recorded_once_although_answers_are_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        recorded = []
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        timer = await cluster.create("t")
        await asyncio.sleep(0.5)
        await cluster.delete("t")
        store.fault = lambda verb, _: recorded.append(verb) if verb == "finish" else None
        store.lose_answers = {"finish"}
        await asyncio.sleep(3)
        store.lose_answers = set()
        await asyncio.sleep(3)
        assert len(recorded) == 2  # as of a row that is there, and as of one that is gone
        [attempt] = await cluster.store.history(timer.key)
        assert attempt.next == "superseded"

    simulate(scenario)


def test_a_lease_that_lapses_here_during_a_stalled_begin_leaves_no_row_behind() -> None:
    async def scenario(cluster: Cluster) -> None:
        async def nobody() -> int:  # whose rows would make the engine look, and hide one that was forgotten
            return 0

        cluster.foreign_writes = nobody
        cluster.store = store = TroubledStore(cluster.store)
        member = await cluster.join("a")
        store.delays = {"begin": 3.7}
        await cluster.create("least")
        await cluster.create("once", delivery=Delivery.AT_MOST_ONCE)
        await asyncio.sleep(3.65)
        # Not renewed in time as far as this instance knows, but its lease is still there.
        member.ownership.renewed_at -= 6.0
        assert not member.ownership.valid()
        store.delays = {}
        await asyncio.sleep(0.1)
        assert State.RUNNING in [timer.state for timer in await cluster.rows()]
        assert not cluster.ledger.sendings
        await asyncio.sleep(30)
        assert member.ownership.valid()
        assert await cluster.rows() == []
        assert len(cluster.ledger.of("least")) == len(cluster.ledger.of("once")) == 1
        for name in ("least", "once"):
            history = await cluster.store.history(NAMESPACE.key_of(name))
            assert [attempt.outcome for attempt in history] == [Result.SUCCEEDED], "nothing had been sent"

    simulate(scenario)


def test_a_stop_is_bounded_by_the_drain_although_the_store_does_not_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (60.0, done())
        member = await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(0.5)
        store.delays = dict.fromkeys(("finish", "release_shards", "claim_shards"), 100.0)
        began = cluster.loop.time()
        await member.engine.stop()
        assert cluster.loop.time() - began < 1 + 1 + 1.1

    simulate(scenario, EngineSettings(drain_seconds=1))


def test_an_ending_from_before_a_shard_was_lost_does_not_touch_what_another_owner_has_begun() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: (20.0 if timer.attempts == 1 else 60.0, done())
        member = await cluster.join("a")
        timer = await cluster.create("t")
        await asyncio.sleep(1)
        [shard] = [shard for shard in await cluster.owners() if shard.shard_id == timer.shard_id]
        # Somebody else owns the shard for a while: judges the attempt, begins another, and gives the shard back.
        assert await cluster.store.claim_shards([replace(shard, owner="b")]) == [Verdict.APPLIED]
        [row] = await cluster.store.get([timer.key])
        assert row is not None
        retried = replace(row, state=State.RETRYING)
        judged = Attempt(
            attempt=1,
            generation=1,
            delivery_id=timer.detail.delivery_id,
            scheduled_at=0,
            started_at=1,
            outcome=Result.UNKNOWN,
            next="retry",
        )
        fence = shard.version + 1
        await cluster.store.finish([Finish(row.key, fence, Put(retried, row.version), judged)])
        await cluster.store.begin([Begin(row.key, fence, row.version + 1)])
        await cluster.store.release_shards([Shard(shard.shard_id, fence, "b")])
        await asyncio.sleep(15)
        assert member.engine.owned_shards == NAMESPACE.shard_count
        await asyncio.sleep(10)
        history = await cluster.store.history(timer.key)
        assert [(entry.attempt, entry.outcome) for entry in history if entry.attempt == 1] == [(1, Result.UNKNOWN)]
        assert [entry.attempt for entry in history] in ([1], [2, 1])

    simulate(scenario)


def test_a_begin_whose_answer_was_lost_is_not_taken_for_a_call() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        await cluster.join("a")
        store.lose_answers = {"begin"}
        await cluster.create("t", delivery=Delivery.AT_MOST_ONCE)
        await asyncio.sleep(0.3)
        store.lose_answers = set()
        await asyncio.sleep(5)
        assert len(cluster.ledger.of("t")) == 1
        assert await cluster.rows() == []

    simulate(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_late_page_makes_nothing_unknown_that_was_recorded(seed: int) -> None:
    """Users change rows while their calls are in flight, and pages come late."""

    async def scenario(cluster: Cluster) -> None:
        dice = random.Random(seed)
        cluster.latency_seconds = 0.05

        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.attempts < 4:
                next_at = cluster.clock.now_ms() + 3100
                return 0.1, Ending(outcome=Result.FAILED, next="retry", next_at=next_at, started_at=0)
            return 0.1, done()

        cluster.behave = behave
        await cluster.join("a")

        async def use(name: str) -> None:
            await asyncio.sleep(dice.random() * 5)
            await cluster.create(name, delivery=Delivery.AT_MOST_ONCE)
            for _ in range(60):
                await asyncio.sleep(dice.random() * 0.4)
                [row] = await cluster.store.get([NAMESPACE.key_of(name)])
                if row is None:
                    break
                if row.state is State.RUNNING:
                    await cluster.change(name, payload='"x"')

        names = [f"t{number}" for number in range(60)]
        await asyncio.gather(*map(use, names))
        await asyncio.sleep(60)
        for name in names:
            history = await cluster.store.history(NAMESPACE.key_of(name))
            assert Result.UNKNOWN not in [attempt.outcome for attempt in history]
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_lease_that_was_lost_and_taken_anew_is_not_taken_for_one_that_nobody_renews() -> None:
    async def scenario(cluster: Cluster) -> None:
        a, b = (Member(name, cluster).ownership for name in "ab")
        for _ in range(3):
            await b.renew()
        await a.renew()
        assert {member.instance for member in a.members} == {"a", "b"}
        await asyncio.sleep(10)  # both leases run out, because nobody reaches the store
        for _ in range(3):
            await b.renew()
        await b.place()
        await b.claim()
        await a.renew()
        await a.place()
        assert {member.instance for member in a.members} == {"a", "b"}
        assert await a.claim() == [], "they are those of one who is alive"

    simulate(scenario)
