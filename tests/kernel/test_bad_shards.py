"""What is wrong with one shard or with one row is nobody else's trouble."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.kernel.carrier import Ending
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Delivery, Result, State, Timer
from mainspring.store import Begin, Finish, Verdict
from tests.support.engine_cluster import NAMESPACE, Cluster, done, simulate
from tests.support.troubled_store import TroubledStore

FAILED = Ending(outcome=Result.FAILED, next="retry", started_at=0)


def shard_of(timer_id: str) -> int:
    return NAMESPACE.key_of(timer_id).shard_id


@pytest.mark.parametrize(
    ("trouble", "hang_seconds", "late_limit"), [("bad_shards", 0.0, 0), ("bad_shards", 3.5, 60), ("read_only", 0.0, 0)]
)
def test_one_unreachable_shard_holds_back_no_other_and_nothing_of_others_is_unknown(
    trouble: str, hang_seconds: float, late_limit: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        await cluster.join("a")
        await asyncio.sleep(1)
        store.hang_seconds = hang_seconds
        names = [f"t{number}" for number in range(400)]
        for number, name in enumerate(names):
            delivery = Delivery.AT_MOST_ONCE if number % 2 else Delivery.AT_LEAST_ONCE
            await cluster.create(name, in_ms=2000 + number // 20 * 400, delivery=delivery)
        await asyncio.sleep(3)
        setattr(store, trouble, {2})
        await asyncio.sleep(13)
        healthy = [name for name in names if shard_of(name) != 2]
        sent = {sending.timer.timer_id: sending.at - sending.timer.due_at for sending in cluster.ledger.sendings}
        assert set(healthy) <= sent.keys()
        # The first batch with the bad shard in it takes as long as that takes.
        assert sum(sent[name] > 100 for name in healthy) <= late_limit
        assert all(sent[name] < 500 for name in healthy[-200:])
        assert {row.shard_id for row in await cluster.rows()} == {2}
        setattr(store, trouble, set())
        await asyncio.sleep(10)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == 400

    simulate(scenario)


@pytest.mark.parametrize("window_limit", [3, 4, 8, 64, 256, 1024])
def test_outcomes_that_wait_for_one_shard_keep_no_other_from_being_sent_however_small_the_window_is(
    window_limit: int,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (0.3, done())
        await cluster.join("a")
        names = [f"t{number}" for number in range(4 * window_limit + 200)]
        bad = [name for name in names if shard_of(name) == 2]
        healthy = [name for name in names if shard_of(name) != 2][:60]
        for number, name in enumerate(bad):
            await cluster.create(name, in_ms=3000, url=f"http://h{number % 60}")
        for number, name in enumerate(healthy):
            await cluster.create(name, in_ms=4500 + number * 100, url=f"http://g{number % 60}")
        await asyncio.sleep(3.15)
        assert cluster.ledger.sendings
        store.read_only = {2}
        await asyncio.sleep(60)
        assert set(healthy) <= {sending.timer.timer_id for sending in cluster.ledger.sendings}
        store.read_only = set()
        await asyncio.sleep(window_limit * 0.3 + 60)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == len(bad) + len(healthy)

    simulate(scenario, EngineSettings(window_limit=window_limit))


def test_a_row_held_by_an_open_transaction_delays_nobody_and_fires_when_it_is_free() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (0.05, done())
        held = [NAMESPACE.key_of(f"held{number}") for number in range(3)]
        store.fault = lambda _, item: (
            Verdict.UNAVAILABLE if isinstance(item, Begin | Finish) and item.key in held else None
        )
        await cluster.join("a")
        for number in range(3):
            await cluster.create(f"held{number}")
        for number in range(200):
            await cluster.create(f"t{number}", in_ms=number * 50)
        await asyncio.sleep(12)
        others = [s for s in cluster.ledger.sendings if s.timer.timer_id.startswith("t")]
        assert len(others) == 200
        assert max(sending.at - sending.timer.due_at for sending in others) < 100
        assert cluster.ledger.of("held0") == []
        store.fault = lambda _verb, _item: None
        await asyncio.sleep(2)
        assert [len(cluster.ledger.of(f"held{number}")) for number in range(3)] == [1, 1, 1]
        assert await cluster.rows() == []

    simulate(scenario)


def test_an_outcome_that_cannot_be_recorded_yet_keeps_no_other_from_being_recorded() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        held = NAMESPACE.key_of("held")
        store.fault = lambda _, item: Verdict.UNAVAILABLE if isinstance(item, Finish) and item.key == held else None
        await cluster.join("a")
        await cluster.create("held")
        for number in range(50):
            await cluster.create(f"t{number}")
        await asyncio.sleep(1)
        assert [row.timer_id for row in await cluster.rows()] == ["held"]
        store.fault = lambda _verb, _item: None
        await asyncio.sleep(1)
        assert await cluster.rows() == []
        [attempt] = await cluster.store.history(held)
        assert (attempt.outcome, attempt.next) == (Result.SUCCEEDED, "done")
        assert len(cluster.ledger.of("held")) == 1

    simulate(scenario)


def test_a_row_that_the_database_cannot_hold_with_its_outcome_is_parked_and_no_other_suffers() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        large = NAMESPACE.key_of("large")

        def fault(verb: str, item: object) -> Exception | None:
            if verb != "finish" or not isinstance(item, Finish) or item.key != large:
                return None
            parked = isinstance(item.change, object) and "larger than" in str(item)
            return None if parked else TooLarge("The item is too large")

        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.timer_id == "large":
                return 0.0, replace(FAILED, next_at=cluster.clock.now_ms() + 1000, detail="x" * 100)
            return 0.0, done()

        store.fault = fault
        cluster.behave = behave
        await cluster.join("a")
        for name in ("large", *(f"t{number}" for number in range(50))):
            await cluster.create(name)
        await asyncio.sleep(5)
        [row] = await cluster.rows()
        assert (row.timer_id, row.state) == ("large", State.PARKED)
        assert row.detail.last_outcome is not None
        assert "larger than the database can hold" in row.detail.last_outcome.detail
        assert len(cluster.ledger.sendings) == 51

    simulate(scenario)


def test_a_row_that_cannot_be_begun_for_a_reason_of_its_own_is_parked_and_no_other_suffers() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        odd = NAMESPACE.key_of("odd")
        store.fault = lambda verb, item: (
            RuntimeError("unforeseen") if verb == "begin" and isinstance(item, Begin) and item.key == odd else None
        )
        await cluster.join("a")
        for name in ("odd", *(f"t{number}" for number in range(50))):
            await cluster.create(name)
        await asyncio.sleep(5)
        assert len(cluster.ledger.sendings) == 50
        [row] = await cluster.rows()
        assert (row.timer_id, row.state) == ("odd", State.PARKED)

    simulate(scenario)


def test_no_error_of_a_store_ends_the_engine() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        member = await cluster.join("a")
        broken = RuntimeError("unforeseen")

        async def fail(*_: object, **__: object) -> None:
            raise broken

        verbs = ("load_due", "next_due", "begin", "finish", "get", "shards", "put_record", "scan_records", "time")
        for verb in verbs:
            setattr(store, verb, fail)
        await cluster.create("t", in_ms=1000)
        await asyncio.sleep(20)
        for verb in verbs:
            delattr(store, verb)
        await asyncio.sleep(20)
        assert member.engine.owned_shards == NAMESPACE.shard_count
        assert len(cluster.ledger.of("t")) == 1
        assert await cluster.rows() == []

    simulate(scenario)


def test_an_instance_that_stops_beside_a_shard_that_hangs_says_that_it_has_left() -> None:
    async def scenario(cluster: Cluster) -> None:
        inner = cluster.store
        cluster.store = store = TroubledStore(inner)
        first = await cluster.join("a")
        cluster.store = inner
        second = await cluster.join("c")
        await asyncio.sleep(8)
        mine = set(first.ownership.fences)
        store.bad_shards, store.hang_seconds = {min(mine)}, 30.0
        await cluster.leave(first)
        await asyncio.sleep(2.5)  # a renewal, and not a lease
        assert second.ownership.fences.keys() >= mine - store.bad_shards

    simulate(scenario)


@pytest.mark.parametrize("hang_seconds", [0.0, 20.0])
def test_a_list_of_shards_that_cannot_be_read_costs_no_lease_and_keeps_nobody_from_what_is_known(
    hang_seconds: float,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        is_away = False

        async def shard_ids() -> list[int]:
            if is_away:
                await asyncio.sleep(hang_seconds)
                raise StoreUnavailable("simulated: a partition is away")
            return list(NAMESPACE.shards)

        cluster.shard_ids = shard_ids  # type: ignore[method-assign]
        first = await cluster.join("a")
        second = await cluster.join("c")
        await asyncio.sleep(8)
        is_away = True
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert first.ownership.valid()
        cluster.kill(second)
        await asyncio.sleep(6 + 2 + 2 + 2 * hang_seconds)
        assert first.engine.owned_shards == NAMESPACE.shard_count

    simulate(scenario)


@pytest.mark.parametrize("verb", ["claim_shards", "shards"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_unforeseen_error_about_one_shard_keeps_nobody_from_the_others(verb: str, is_first: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        if not is_first:
            await cluster.join("a")
            await asyncio.sleep(3)
        store.fault = lambda asked, item: (
            RuntimeError("unforeseen") if asked == verb and (item == 1 or getattr(item, "shard_id", 0) == 1) else None
        )
        await cluster.join("b")
        await asyncio.sleep(10)
        owned = {shard_id for member in cluster.members for shard_id in member.ownership.fences}
        assert owned >= {0, 2, 3}
        for number in range(40):
            await cluster.create(f"t{number}")
        await asyncio.sleep(5)
        assert {row.shard_id for row in await cluster.rows()} <= {1}
        store.fault = lambda _verb, _item: None
        await asyncio.sleep(10)
        assert await cluster.rows() == []

    simulate(scenario)


def test_an_unforeseen_error_about_one_shard_keeps_no_other_from_being_released() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        first = await cluster.join("a")
        store.fault = lambda verb, item: (
            RuntimeError("unforeseen") if verb == "release_shards" and getattr(item, "shard_id", 0) == 1 else None
        )
        await cluster.leave(first)
        assert [shard.shard_id for shard in await cluster.owners() if shard.owner] == [1]

    simulate(scenario)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_instance_starts_although_all_shards_that_belong_to_it_are_away(is_first: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        if not is_first:
            await cluster.join("a")
            await asyncio.sleep(3)
        store.bad_shards = set(NAMESPACE.shards)
        await cluster.join("b")
        await cluster.create("t")
        await asyncio.sleep(10)
        store.bad_shards = set()
        await asyncio.sleep(10)
        assert sum(member.engine.owned_shards for member in cluster.members) == NAMESPACE.shard_count
        assert len(cluster.ledger.of("t")) == 1

    simulate(scenario)


def test_a_row_that_cannot_be_begun_although_it_has_not_changed_is_asked_for_with_pauses() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        asked: list[str] = []

        def fault(verb: str, item: object) -> Verdict | None:
            asked.append(verb)
            return Verdict.STALE if verb == "begin" else None

        store.fault = fault
        await cluster.join("a")
        asked.clear()
        await cluster.create("t")
        await asyncio.sleep(10)
        assert 5 < len(asked) <= 25
        store.fault = lambda _verb, _item: None
        await asyncio.sleep(1)
        assert len(cluster.ledger.of("t")) == 1

    simulate(scenario)


def test_an_outcome_that_is_stale_although_its_row_has_not_changed_is_asked_for_with_pauses() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        asked: list[str] = []

        def fault(verb: str, item: object) -> Verdict | None:
            asked.append(verb)
            return Verdict.STALE if verb == "finish" and isinstance(item, Finish) else None

        store.fault = fault
        await cluster.join("a")
        asked.clear()
        await cluster.create("t")
        await asyncio.sleep(10)
        assert 5 < len(asked) <= 25
        store.fault = lambda _verb, _item: None
        await asyncio.sleep(1)
        assert await cluster.rows() == []
        assert len(cluster.ledger.of("t")) == 1

    simulate(scenario)
