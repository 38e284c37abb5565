"""Every row in memory is in one stage, and nobody's rows that cannot move keep others from moving."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from mainspring.kernel.carrier import Ending, Lane
from mainspring.kernel.lanes import LaneState
from mainspring.kernel.settings import EngineSettings
from mainspring.kernel.stages import Stages
from mainspring.kernel.turns import Turns
from mainspring.model import Result, State, Timer
from mainspring.store import Finish, Verdict
from tests.kernel.lateness import lateness
from tests.support.engine_cluster import NAMESPACE, Cluster, LedgerCarrier, Member, done, simulate
from tests.support.troubled_store import TroubledStore

LARGE = '"' + "x" * 102_000 + '😀"'
"""As large as a row gets by default: it takes four bytes a character."""


@pytest.fixture(autouse=True)
def namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before the first slash of a timer's id is its namespace; each host is a site."""

    def lane(self: LedgerCarrier, timer: Timer) -> Lane:
        url = timer.detail.callback_url
        namespace = timer.timer_id.partition("/")[0]
        return Lane(f"{namespace} {url}", self.cluster.lane_limit, namespace=namespace, site=url)

    monkeypatch.setattr(LedgerCarrier, "lane", lane)


def expect_one_stage_each(member: Member) -> None:
    """All that is counted adds up to the rows that there are."""
    dispatcher = member.engine.dispatcher
    stages, window, lanes = dispatcher._stages, dispatcher.window, list(dispatcher._lanes)
    queued = [timer.uuid for lane in lanes for timer in (*lane.queue.small, *lane.queue.large)]
    in_flight, unrecorded = set(stages._slots._calls), set(stages._unrecorded._rows)
    assert len(queued) == len(set(queued))
    assert len(queued) + len(in_flight) + len(unrecorded) == len(window.rows)
    assert {*queued, *in_flight, *unrecorded} == window.rows.keys()
    assert in_flight == dispatcher._calls.keys()
    assert window._places.used == len(window.rows)
    assert window.bytes == sum(window._sizes.values())
    assert stages._bytes._calls.keys() == (in_flight | unrecorded) & window._sizes.keys()
    assert stages._bytes._taken == sum(window.size(str(uuid)) for uuid in stages._bytes._calls)
    assert {lane for lane, _ in dispatcher._calls.values()} <= set(lanes)
    assert {part for part, _, _ in stages._bytes._calls.values()} <= {lane.large for lane in lanes}
    for lane in lanes:
        assert dispatcher._lanes.get(lane.name) is lane
        assert lane.large.queued == sum(window._sizes[timer.uuid] for timer in lane.queue.large)
        assert bool(lane.turn) == bool(lane.queue)
        assert lane.queue or lane.weight == lane.large.weight == 0
    expect_one_turn_each(stages._turns, lanes)
    weights = {window._places: [lane.weight for lane in lanes], window._bytes: [lane.large.weight for lane in lanes]}
    for room, of_lanes in weights.items():
        assert room.everybody.weight == sum(of_lanes)
        assert room.queues == sum(weight > 0 for weight in of_lanes)


def expect_one_turn_each(turns: Turns, lanes: list[LaneState]) -> None:
    """Each lane that waits is listed where it says, and nobody else is listed: no lane of the same name, either."""
    ready = [
        (rota._tier, lane)
        for rota in turns._ready
        for sites in rota._lanes.values()
        for waiting in sites.values()
        for lane in waiting
    ]
    assert sum(rota.size for rota in turns._ready) == len(ready)
    assert Counter(ready) == Counter((lane.turn_tier, lane) for lane in lanes if lane.turn == "ready")
    assert set(turns._resting) == {lane for lane in lanes if lane.turn in ("resting", "short")}
    assert set(turns._short) == {lane for lane in lanes if lane.turn == "short"}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_every_row_in_memory_is_in_exactly_one_stage_whatever_happens(seed: int) -> None:
    dice = Random(seed)
    settings = EngineSettings(
        window_limit=dice.choice([1, 2, 5, 16, 64, 8192]),
        window_bytes=dice.choice([1, 500, 5_000, 50_000, 16_777_216]),
        in_flight_limit=dice.choice([1, 2, 6, 30, 1024]),
        page_size=dice.choice([1, 3, 20, 500]),
        drain_seconds=1.0,
    )

    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.lane_limit = dice.choice([1, 3, 100])
        in_trouble = True

        def behave(_: Timer) -> tuple[float, Ending]:
            seconds = dice.choice([0.0, 0.01, 0.3, 3.0])
            if dice.random() < 0.8:
                return seconds, done()
            next_at = cluster.clock.now_ms() + dice.choice([10, 1000])
            retry = Ending(outcome=Result.UNKNOWN, next="retry", next_at=next_at, started_at=0, reachable=False)
            return seconds, retry

        def fault(_verb: str, _item: object) -> Verdict | RuntimeError | None:
            chance = dice.random() if in_trouble else 1.0
            return Verdict.UNAVAILABLE if chance < 0.1 else RuntimeError("unforeseen") if chance < 0.11 else None

        cluster.behave = behave
        store.fault = fault
        for name in ("a", "b")[: dice.choice([1, 2])]:
            await cluster.join(name)
        for number in range(150):
            size = dice.choice([0, 0, 10, 400, 3000])
            await cluster.create(
                f"n{dice.randrange(4)}/t{number}",
                in_ms=dice.choice([0, 0, 50, 2000]),
                url=f"http://host{dice.randrange(5)}",
                payload=None if not size else '"' + "x" * size + dice.choice(["", "é", "😀"]) + '"',
            )
            if dice.random() < 0.1:
                store.read_only = {dice.randrange(4)} if dice.random() < 0.5 else set()
            await asyncio.sleep(dice.choice([0.0, 0.0, 0.1]))
            for member in cluster.members:
                expect_one_stage_each(member)
        in_trouble, store.read_only = False, set()
        for _ in range(100):
            await asyncio.sleep(10)
            for member in cluster.members:
                expect_one_stage_each(member)
        assert [row for row in await cluster.rows() if row.state is not State.PARKED] == []
        for member in cluster.members:
            assert not member.engine.dispatcher.window.rows

    simulate(scenario, settings)


@pytest.mark.parametrize("answers", [0, 10])
@pytest.mark.parametrize("namespaces", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_large_rows_of_namespaces_that_hang_make_no_small_row_of_others_late(namespaces: int, answers: int) -> None:
    """Whether its destinations hang from the beginning, or were trusted before."""

    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: (60.0 if "/bad" in timer.timer_id else 0.3, done())
        member = await cluster.join("a")
        for number in range(answers):
            for k in range(namespaces):
                for host in range(40):
                    await cluster.create(f"evil{k}/warm{host}-{number}", url=f"http://slow{host}")
            await asyncio.sleep(1)
        await cluster.create("good/known", url="http://good0")
        await asyncio.sleep(1)
        for k in range(namespaces):
            for number in range(80):
                await cluster.create(f"evil{k}/bad{number}", url=f"http://slow{number % 40}", payload=LARGE)
            await asyncio.sleep(0.2)
        for number in range(50):
            await cluster.create(f"good/known{number}", url="http://good0")
            await cluster.create(f"good/new{number}", url=f"http://new{number}")
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        expect_one_stage_each(member)
        for prefix, count in (("good/known", 51), ("good/new", 50)):
            late = lateness(cluster, prefix)
            assert len(late) == count
            assert max(late) < 500

    simulate(scenario)


@pytest.mark.slow
def test_a_namespace_without_a_call_finds_bytes_for_its_first_large_row_while_others_hang_with_theirs() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: (60.0 if "/bad" in timer.timer_id else 0.1, done())
        member = await cluster.join("a")
        for k in range(6):
            for number in range(80):
                await cluster.create(f"evil{k}/bad{number}", url=f"http://slow{number % 40}", payload=LARGE)
            await asyncio.sleep(0.5)
        for number in range(20):
            await cluster.create(f"good/t{number}", url=f"http://new{number}", payload=LARGE)
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        expect_one_stage_each(member)
        late = lateness(cluster, "good/t")
        assert len(late) == 20
        assert max(late) < 500

    simulate(scenario)


def test_a_small_row_passes_large_ones_of_its_own_lane_that_wait_for_bytes() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: (60.0 if "/bad" in timer.timer_id else 0.1, done())
        await cluster.join("a")
        for number in range(80):
            await cluster.create(f"evil/bad{number}", url=f"http://slow{number}", payload=LARGE)
        await asyncio.sleep(1)
        for number in range(30):
            await cluster.create(f"evil/large{number}", url="http://good", payload=LARGE)
        await asyncio.sleep(0.1)
        for number in range(20):
            await cluster.create(f"evil/small{number}", url="http://good")
        await asyncio.sleep(5)
        late = lateness(cluster, "evil/small")
        assert len(late) == 20
        assert max(late) < 1000

    simulate(scenario)


@pytest.mark.parametrize(("rows", "payload"), [pytest.param(1200, None, marks=pytest.mark.slow), (80, LARGE)])
@pytest.mark.parametrize("namespace", ["bad", "good"])
def test_rows_that_wait_for_their_record_leave_places_to_others(rows: int, payload: str | None, namespace: str) -> None:
    """Nothing can be recorded in one shard; others belong to another namespace, or to the same."""

    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (0.05, done())
        member = await cluster.join("a")
        store.fault = lambda _, item: (
            Verdict.UNAVAILABLE if isinstance(item, Finish) and item.key.shard_id == 1 else None
        )
        names = [f"bad/{number}" for number in range(5 * rows) if NAMESPACE.key_of(f"bad/{number}").shard_id == 1]
        for number, name in enumerate(names[:rows]):
            await cluster.create(name, url=f"http://host{number % 5}", payload=payload)
        await asyncio.sleep(20)
        others = [f"{namespace}/t{number}" for number in range(300)]
        others = [name for name in others if NAMESPACE.key_of(name).shard_id != 1][:100]
        for name in others:
            await cluster.create(name, url=f"http://host{len(name) % 2}")
            await asyncio.sleep(0.02)
        await asyncio.sleep(2)
        expect_one_stage_each(member)
        late = lateness(cluster, f"{namespace}/t")
        assert len(late) == 100
        assert max(late) < 500
        store.fault = lambda _verb, _item: None
        await asyncio.sleep(60)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == len(names[:rows]) + 100  # each once

    simulate(scenario, EngineSettings(window_limit=1024, in_flight_limit=128))


def test_locked_rows_of_one_namespace_in_all_shards_leave_places_and_bytes_to_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda _: (0.2, done())
        await cluster.join("a")
        locked = {NAMESPACE.key_of(f"bad/{number}") for number in range(140)}
        store.fault = lambda _, item: Verdict.UNAVAILABLE if isinstance(item, Finish) and item.key in locked else None
        for number in range(140):
            await cluster.create(f"bad/{number}", url=f"http://host{number % 3}", payload=LARGE)
        await asyncio.sleep(10)
        for number in range(20):
            await cluster.create(f"good/small{number}", url=f"http://good{number}")
            await cluster.create(f"good/large{number}", url=f"http://good{number}", payload=LARGE)
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        for prefix in ("good/small", "good/large"):
            late = lateness(cluster, prefix)
            assert len(late) == 20
            assert max(late) < 500

    simulate(scenario)


def test_rows_that_were_found_in_flight_and_cannot_be_recorded_leave_places_to_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.behave = lambda timer: (60.0 if timer.timer_id.startswith("bad") else 0.05, done())
        first = await cluster.join("a")
        for number in range(400):
            if NAMESPACE.key_of(f"bad/{number}").shard_id < 2:
                await cluster.create(f"bad/{number}", url=f"http://host{number}")
        await asyncio.sleep(1)
        cluster.kill(first)
        store.fault = lambda _, item: (
            Verdict.UNAVAILABLE if isinstance(item, Finish) and item.key.shard_id < 2 else None
        )
        cluster.settings = EngineSettings(window_limit=64)
        second = await cluster.join("b")
        await asyncio.sleep(10)
        names = [f"good/t{number}" for number in range(80) if NAMESPACE.key_of(f"good/t{number}").shard_id > 1][:20]
        for name in names:
            await cluster.create(name, url=f"http://{name[5:]}")
            await asyncio.sleep(0.2)
        await asyncio.sleep(2)
        expect_one_stage_each(second)
        late = lateness(cluster, "good/t")
        assert len(late) == 20
        assert max(late) < 500

    simulate(scenario)


def _in_one_shard(timer_id: str) -> str:
    """A name like this one in the shard that all of them are in: one page shows them together."""
    names = (f"{timer_id}{number}" for number in range(1000))
    return next(name for name in names if NAMESPACE.key_of(name).shard_id == 0)


def test_a_lane_that_was_short_and_then_forgotten_takes_nothing_from_the_next_one_of_its_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = lambda timer: (
            {"hog": 600.0, "busy": 0.004}.get(timer.timer_id.partition("/")[0], 1.0),
            done(),
        )
        member = await cluster.join("a")
        for timer_id, size in (("hog/big", 590), ("x/large", 20), ("other/large", 45)):
            payload = '"' + "x" * size + '"'
            await cluster.create(_in_one_shard(timer_id), url=f"http://{timer_id[:3]}", payload=payload)
            await asyncio.sleep(0.2)
        assert len(member.engine.dispatcher._stages._turns._short) == 2
        for number in range(1000):  # others, who give back what lanes may be short of
            await cluster.create(f"busy/{number}", url=f"http://busy{number % 3}")
            if number == 100:
                # What waits is changed: so it leaves the memory, and finds no room there again. Small ones do.
                row = await cluster.change(_in_one_shard("x/large"), due_at=cluster.clock.now_ms() - 1)
                for k in range(3):
                    await cluster.create(_in_one_shard(f"x/small{k}-"), url="http://x/l", announce=False)
                cluster.announce(row)
            await asyncio.sleep(0.002)
            expect_one_stage_each(member)
        await asyncio.sleep(10)
        assert not [row for row in await cluster.rows() if "/small" in row.timer_id]

    simulate(scenario, EngineSettings(window_limit=8, window_bytes=1000, page_size=50))


@pytest.mark.parametrize("step", ["release", "_fill", "gone"])
def test_an_unforeseen_error_while_others_get_what_a_call_has_given_back_loses_no_outcome(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    good = getattr(Stages, step)

    def broken(self: Stages, *arguments: object) -> None:
        good(self, *arguments)
        if cluster_is_broken:
            raise KeyError("unforeseen")

    monkeypatch.setattr(Stages, step, broken)
    cluster_is_broken = False

    async def scenario(cluster: Cluster) -> None:
        nonlocal cluster_is_broken
        retry = Ending(outcome=Result.FAILED, next="retry", next_at=cluster.clock.now_ms() + 5000, started_at=0)
        cluster.behave = lambda timer: (1.0, done() if timer.attempts > 1 else retry)
        member = await cluster.join("a")
        for number in range(20):
            await cluster.create(f"n/{number}", url=f"http://host{number}")
        await asyncio.sleep(0.5)
        cluster_is_broken = True
        await asyncio.sleep(2)
        cluster_is_broken = False
        assert {row.state for row in await cluster.rows()} == {State.RETRYING}
        expect_one_stage_each(member)
        await asyncio.sleep(10)
        assert await cluster.rows() == []
        assert len(cluster.ledger.sendings) == 40

    simulate(scenario)
