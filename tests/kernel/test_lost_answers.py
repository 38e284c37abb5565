"""A write was done, or may have been, and nobody was told: what is decided then must hold whichever it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import tests.support.engine_cluster
from mainspring.errors import StoreUnavailable
from mainspring.kernel.carrier import Ending
from mainspring.kernel.placement import Placement
from mainspring.kernel.settings import EngineSettings
from mainspring.kernel.unsent import FEW
from mainspring.model import Delivery, Result, State, Timer, TimerKey
from mainspring.store import Put, Store, Verdict
from mainspring.timers.record import resumed
from tests.support.engine_cluster import NAMESPACE, Cluster, done, simulate
from tests.support.troubled_store import TroubledStore


@pytest.mark.parametrize("change", ["deleted", "made again", "moved"])
def test_an_attempt_that_was_begun_and_not_sent_is_looked_at_before_it_is(change: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.lane_limit = 1
        cluster.behave = lambda timer: (20.0 if timer.timer_id == "slow" else 0.0, done())
        await cluster.join("a")
        store.lose_answers = {"begin"}
        await cluster.create("t", payload='"old"', delivery=Delivery.AT_MOST_ONCE)
        await asyncio.sleep(0.2)
        store.lose_answers = set()
        await cluster.create("slow")
        await asyncio.sleep(1)
        assert [sending.timer.timer_id for sending in cluster.ledger.sendings] == ["slow"]
        if change == "moved":
            await cluster.change("t", state=State.SCHEDULED, due_at=cluster.clock.now_ms() + 3_600_000)
        else:
            await cluster.delete("t")
        if change == "made again":
            await cluster.create("t", in_ms=3_600_000, payload='"new"')
        await asyncio.sleep(60)
        assert cluster.ledger.of("t") == []

    simulate(scenario)


def test_an_attempt_that_was_begun_and_not_sent_is_sent_if_nothing_has_changed() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        await cluster.join("a")
        store.lose_answers = {"begin"}
        await cluster.create("t", delivery=Delivery.AT_MOST_ONCE)
        await asyncio.sleep(0.2)
        store.lose_answers = set()
        await asyncio.sleep(5)
        assert len(cluster.ledger.of("t")) == 1
        assert await cluster.rows() == []

    simulate(scenario)


class CutOff(TroubledStore):
    """Its user may be unable to renew a lease."""

    is_cut = False

    async def put_record(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_cut:
            raise StoreUnavailable("simulated: cut off")
        return await self._inner.put_record(*args, **kwargs)


@pytest.mark.parametrize("change", ["deleted", "resumed"])
def test_what_another_owner_has_judged_meanwhile_is_not_sent(change: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        inner = cluster.store
        placement = Placement()
        await placement.follow(NAMESPACE.shards, ["a", "x"])
        [mine, *_] = placement.shards_of("a")
        names = (name for name in (f"t{number}" for number in range(100)) if NAMESPACE.key_of(name).shard_id == mine)
        judged, other = next(names), next(names)
        cluster.store = store = CutOff(inner)
        await cluster.join("a")
        cluster.store = inner
        await cluster.join("x")
        await asyncio.sleep(5)
        store.lose_answers = {"begin"}
        await cluster.create(judged, delivery=Delivery.AT_MOST_ONCE)
        await asyncio.sleep(0.2)
        store.lose_answers, store.delays = set(), {"begin": 30.0}
        await cluster.create(other)
        store.is_cut = True
        await asyncio.sleep(9)
        [row] = await inner.get([NAMESPACE.key_of(judged)])
        assert row is not None
        assert row.state is State.PARKED  # by x, as unknown
        store.is_cut = False
        await asyncio.sleep(6)
        if change == "resumed":
            again = resumed(row, now=cluster.clock.now_ms())
            assert await inner.write([Put(again, row.version)]) == [Verdict.APPLIED]
            cluster.announce(again)
        else:
            await cluster.delete(judged)
        await asyncio.sleep(90)
        assert len(cluster.ledger.of(judged)) == (change == "resumed")

    simulate(scenario)


def test_an_ending_that_leaves_no_history_is_applied_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)

        def behave(timer: Timer) -> tuple[float, Ending]:
            now = cluster.clock.now_ms()
            if timer.attempts < 3:
                return 0.0, Ending(outcome=Result.FAILED, next="retry", next_at=now + 1000, started_at=now)
            store.lose_answers = {"finish"}
            return 0.0, Ending(
                outcome=Result.FAILED, next="retry", next_at=now + 60_000, started_at=now, kept=False, is_attempt=False
            )

        cluster.behave = behave
        await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(2.3)
        assert store.lose_answers
        store.lose_answers = set()
        await asyncio.sleep(5)
        [row] = await cluster.rows()
        assert (row.state, row.attempts) == (State.RETRYING, 2)

    simulate(scenario)


def test_a_row_that_was_hastened_after_such_an_ending_stays_so() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)

        def behave(timer: Timer) -> tuple[float, Ending]:
            now = cluster.clock.now_ms()
            later = Ending(
                outcome=Result.SUCCEEDED, next="rescheduled", next_at=now + 300_000, started_at=now, kept=False
            )
            return 0.0, later if timer.generation == 1 else done()

        cluster.behave = behave
        await cluster.join("a")
        store.lose_answers = {"finish"}
        await cluster.create("t")
        await asyncio.sleep(0.1)
        await cluster.change("t", due_at=cluster.clock.now_ms() + 2_000)
        store.lose_answers = set()
        await asyncio.sleep(5)
        assert len(cluster.ledger.of("t")) == 2

    simulate(scenario)


class Unread(TroubledStore):
    """Rows that are asked for by their keys come late, or not at all."""

    get_fails_after: float | None = None

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        if self.get_fails_after is not None:
            await asyncio.sleep(self.get_fails_after)
            raise StoreUnavailable("simulated: a connection was cut")
        return await self._inner.get(keys)


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("lane_limit", [1, 8])
def test_a_look_whose_answer_is_lost_touches_nothing_of_the_row_that_came_after(
    delivery: Delivery, lane_limit: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        inner = cluster.store
        cluster.store = store = Unread(inner)
        cluster.lane_limit = lane_limit
        cluster.behave = lambda timer: (1.5 if timer.payload == '"new"' else 0.0, done())
        await cluster.join("a")
        store.delays = {"begin": 0.3}
        await cluster.create("t", payload='"old"', delivery=delivery)
        await asyncio.sleep(0.1)  # its begin is under way
        await cluster.change("t", payload='"new"')
        store.get_fails_after = 0.5
        store.delays = {}
        await asyncio.sleep(60)
        store.get_fails_after = None
        assert [(sending.timer.payload, sending.timer.attempts) for sending in cluster.ledger.of("t")] == [('"new"', 1)]
        [attempt] = await inner.history(NAMESPACE.key_of("t"))
        assert attempt.outcome is Result.SUCCEEDED
        await cluster.create("t", payload='"next"')
        await asyncio.sleep(5)
        assert [sending.timer.payload for sending in cluster.ledger.of("t")] == ['"new"', '"next"']

    simulate(scenario)


class Partitioned(TroubledStore):
    """Which cannot be read as a whole when a part of it is away."""

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        if self.bad_shards.intersection(key.shard_id for key in keys):
            raise StoreUnavailable("simulated: a partition is away")
        return await self._inner.get(keys)


def test_outcomes_of_healthy_shards_do_not_wait_for_one_that_is_away() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = Partitioned(cluster.store)
        cluster.behave = lambda _: (0.5, done())
        await cluster.join("a")
        for number in range(40):
            await cluster.create(f"t{number}")
        await asyncio.sleep(0.4)
        store.bad_shards = {0, 1, 2, 3}
        await asyncio.sleep(0.8)
        store.bad_shards = {0}
        await asyncio.sleep(3)
        assert {row.shard_id for row in await cluster.rows()} == {0}
        store.bad_shards = set()
        await asyncio.sleep(3)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == 40

    simulate(scenario)


class Odd(TroubledStore):
    """Which raises what no store should."""

    is_odd = False

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        if self.is_odd:
            raise ZeroDivisionError
        return await self._inner.get(keys)


def test_an_unforeseen_error_of_a_look_at_rows_loses_no_outcome() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = Odd(cluster.store)
        cluster.behave = lambda _: (0.5, done())
        await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(0.4)
        store.lose_answers, store.is_odd = {"finish"}, True
        await asyncio.sleep(2)
        store.lose_answers, store.is_odd = set(), False
        await asyncio.sleep(3)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == 1

    simulate(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "hung"), [(16, 5), (64, 21), (256, 85)])
def test_shards_that_hang_hold_up_no_timer_of_the_others(
    shards: int, hung: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = replace(NAMESPACE, shard_count=shards)
    monkeypatch.setattr(tests.support.engine_cluster, "NAMESPACE", namespace)
    bad = set(range(hung))

    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        store.hang_seconds = 3.0
        await cluster.join("a")
        await asyncio.sleep(5)
        for number in range(4 * shards):
            if namespace.key_of(f"bad{number}").shard_id in bad:
                await cluster.create(f"bad{number}", in_ms=1000)
        store.bad_shards = bad
        await asyncio.sleep(2)
        names = [name for name in (f"good{n}" for n in range(200)) if namespace.key_of(name).shard_id not in bad]
        for name in names:
            await cluster.create(name, in_ms=500)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        late = [s.at - s.timer.due_at for s in cluster.ledger.sendings if s.timer.timer_id.startswith("good")]
        assert len(late) == len(names)
        assert max(late) < 500

    simulate(scenario)


def test_shards_are_read_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = replace(NAMESPACE, shard_count=1024)
    monkeypatch.setattr(tests.support.engine_cluster, "NAMESPACE", namespace)

    async def scenario(cluster: Cluster) -> None:
        cluster.latency_seconds = 0.002
        await cluster.join("a")
        await asyncio.sleep(20)
        for number in range(1024):
            await cluster.create(f"t{number}", in_ms=30_000 - number)
            await asyncio.sleep(0.001)
        await asyncio.sleep(60)
        late = [sending.at - sending.timer.due_at for sending in cluster.ledger.sendings]
        assert len(late) == 1024
        assert max(late) < 500

    simulate(scenario)


class Fumbling(TroubledStore):
    """Which does what it is asked, and then raises what no store should, so many times."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.fumbles: dict[str, int] = {}

    async def _batch(self, verb: str, items: Sequence[Any], shard_of: Callable[[Any], int]) -> list[Verdict]:
        verdicts = await super()._batch(verb, items, shard_of)
        if self.fumbles.get(verb, 0):
            self.fumbles[verb] -= 1
            raise ZeroDivisionError
        return verdicts


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("count", [1, 5])
def test_attempts_that_were_begun_before_an_unforeseen_error_are_sent_once(delivery: Delivery, count: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = Fumbling(cluster.store)
        await cluster.join("a")
        store.fumbles = {"begin": 1}
        for number in range(count):
            await cluster.create(f"t{number}", in_ms=100, delivery=delivery)
        await asyncio.sleep(10)
        sent = [(sending.timer.timer_id, sending.timer.attempts) for sending in cluster.ledger.sendings]
        assert sorted(sent) == [(f"t{number}", 1) for number in range(count)]
        assert await cluster.rows() == []

    simulate(scenario)


@pytest.mark.parametrize("fumbles", [1, 2])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("kept", [True, False])
def test_an_ending_that_was_written_before_an_unforeseen_error_is_applied_once(
    kept: bool, count: int, fumbles: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = Fumbling(cluster.store)

        def behave(timer: Timer) -> tuple[float, Ending]:
            now = cluster.clock.now_ms()
            if timer.attempts < 3:
                return 0.0, Ending(outcome=Result.FAILED, next="retry", next_at=now + 1000, started_at=now)
            store.fumbles = {"finish": fumbles}
            return 0.0, Ending(
                outcome=Result.FAILED, next="retry", next_at=now + 60_000, started_at=now, kept=kept, is_attempt=False
            )

        cluster.behave = behave
        await cluster.join("a")
        for number in range(count):
            await cluster.create(f"t{number}", in_ms=100)
        await asyncio.sleep(10)
        assert [(row.state, row.attempts) for row in await cluster.rows()] == [(State.RETRYING, 2)] * count
        for number in range(count):
            entries = await store.history(NAMESPACE.key_of(f"t{number}"))
            assert [entry.attempt for entry in entries] == ([3, 2, 1] if kept else [2, 1])

    simulate(scenario)


@pytest.mark.parametrize(("window_limit", "count", "seconds"), [(3, 40, 3.0), (8, 100, 0.2), (64, 400, 3.0)])
def test_a_backlog_whose_begins_are_not_answered_is_sent_and_none_of_it_is_parked(
    window_limit: int, count: int, seconds: float
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        member = await cluster.join("a")
        for number in range(count):
            await cluster.create(f"t{number}", in_ms=1000, delivery=Delivery.AT_MOST_ONCE)
        store.lose_answers = {"begin"}
        await asyncio.sleep(1 + seconds)
        assert len(member.engine.dispatcher._unsent) <= max(FEW, window_limit) + NAMESPACE.shard_count
        store.lose_answers = set()
        await asyncio.sleep(60)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == count
        assert len(member.engine.dispatcher._unsent) == 0

    simulate(scenario, EngineSettings(window_limit=window_limit))


def test_unsent_attempts_of_rows_that_were_deleted_or_moved_keep_no_other_from_being_begun() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        await cluster.join("a")
        for number in range(100):
            await cluster.create(f"t{number}", in_ms=1000)
        store.lose_answers = {"begin"}
        await asyncio.sleep(1.1)
        sent = {sending.timer.timer_id for sending in cluster.ledger.sendings}
        unsent = [id for number in range(100) if (id := f"t{number}") not in sent]
        for id in unsent[::2]:
            await cluster.delete(id)
        for id in unsent[1::2]:
            await cluster.change(id, state=State.SCHEDULED, due_at=cluster.clock.now_ms() + 3_600_000)
        store.lose_answers = set()
        for number in range(100):
            await cluster.create(f"u{number}")
        await asyncio.sleep(30)
        assert {row.timer_id for row in await cluster.rows()} == set(unsent[1::2])
        assert len(cluster.ledger.sendings) == 100 + len(sent)

    simulate(scenario, EngineSettings(window_limit=8))
