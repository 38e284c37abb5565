"""More destinations and more due timers than there is room for: whatever is due is sent, and in time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from mainspring.kernel.carrier import Ending
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Result, Timer
from tests.kernel.lateness import lateness, slow_by_name
from tests.support.engine_cluster import Cluster, done, simulate
from tests.support.troubled_store import TroubledStore


async def nobody_else() -> int:
    return 0


def test_many_slow_destinations_that_fill_the_window_hold_back_no_healthy_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = slow_by_name(5.0)  # type: ignore[assignment]
        await cluster.join("a")
        for number in range(400):
            await cluster.create(f"slow{number}", in_ms=100, url=f"http://slow{number % 40}")
        await asyncio.sleep(1)
        for number in range(20):
            await cluster.create(f"good{number}", url=f"http://good{number}")
        await asyncio.sleep(2)
        late = lateness(cluster, "good")
        assert len(late) == 20
        assert max(late) < 500
        await asyncio.sleep(120)
        assert len(cluster.ledger.sendings) == 420
        assert await cluster.rows() == []

    simulate(scenario, EngineSettings(window_limit=64))


def test_more_destinations_than_the_window_holds_are_all_served() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.foreign_writes = nobody_else  # which would be looked for once a second
        cluster.behave = lambda _: (0.2, done())
        member = await cluster.join("a")
        for number in range(3000):
            await cluster.create(f"t{number}", in_ms=500, url=f"http://host{number}")
        await asyncio.sleep(30)
        assert len(cluster.ledger.sendings) == 3000
        assert await cluster.rows() == []
        assert store.rows_read < 6 * 3000
        assert len(member.engine.dispatcher._lanes) <= 2 * 256  # the bound itself is what is tested

    simulate(scenario, EngineSettings(window_limit=256, in_flight_limit=128))


def test_a_long_queue_of_one_destination_is_refilled_before_it_is_empty_and_read_less_than_twice() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.store = store = TroubledStore(cluster.store)
        cluster.foreign_writes = nobody_else
        cluster.lane_limit = 128
        cluster.behave = lambda _: (0.02, done())
        await cluster.join("a")
        due_at = cluster.clock.now_ms() + 5_000
        for number in range(8_000):
            await cluster.create(f"t{number}", in_ms=due_at - cluster.clock.now_ms(), url="http://host")
        await asyncio.sleep(10)
        assert len(cluster.ledger.sendings) == 8_000
        # 63 rounds of 128 calls, and nothing between them. Read twice: when it is due, and when there is room for it.
        assert max(sending.at for sending in cluster.ledger.sendings) - due_at <= 63 * 20
        assert store.rows_read < 2 * 8_000

    simulate(scenario, EngineSettings(window_limit=1024, page_size=64))


def test_dead_destinations_without_number_leave_room_for_those_that_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            if "dead" in timer.detail.callback_url:
                next_at = cluster.clock.now_ms() + 60_000
                ending = Ending(outcome=Result.UNKNOWN, next="retry", next_at=next_at, started_at=0, reachable=False)
                return 30.0, ending
            return 0.01, done()

        cluster.behave = behave
        await cluster.join("a")
        for number in range(10):
            await cluster.create(f"known{number}", url=f"http://good{number}")
        await asyncio.sleep(1)
        for number in range(1000):
            await cluster.create(f"dead{number}", url=f"http://dead{number}")
        await asyncio.sleep(1)
        for number in range(200):
            await cluster.create(f"good{number}", url=f"http://good{number % 10}")
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        late = lateness(cluster, "good")
        assert len(late) == 200
        assert max(late) < 500

    simulate(scenario, EngineSettings(window_limit=256, in_flight_limit=64))


@pytest.mark.parametrize("in_flight", [1, 2, 16])
def test_an_endless_backlog_of_destinations_that_answer_does_not_shut_out_a_new_one(in_flight: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.05, done())
        await cluster.join("a")
        for number in range(200 * in_flight):
            await cluster.create(f"busy{number}", url=f"http://busy{number % (3 * in_flight)}")
        await asyncio.sleep(1)
        for number in range(4):
            await cluster.create(f"new{number}", url=f"http://new{number}")
        await asyncio.sleep(3)
        assert len(cluster.ledger.sendings) < 200 * in_flight
        late = lateness(cluster, "new")
        assert len(late) == 4
        assert max(late) < 1000

    simulate(scenario, EngineSettings(in_flight_limit=in_flight))


@pytest.mark.parametrize(
    ("window", "in_flight", "host", "page"),
    [*itertools.product((1, 2, 3, 8), (1, 2, 1024), (1, 128), (1, 7)), (64, 1, 1, 500), (8192, 1, 128, 500)],
)
def test_whatever_the_limits_are_everything_that_is_due_is_sent(
    window: int, in_flight: int, host: int, page: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = host
        cluster.behave = lambda _: (0.01, done())
        member = await cluster.join("a")
        for number in range(60):
            await cluster.create(f"t{number}", in_ms=number % 3, url=f"http://host{number % 12}")
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert len(member.engine.dispatcher.window) <= window
            assert member.engine.dispatcher.in_flight <= in_flight
        assert len(cluster.ledger.sendings) == 60
        assert await cluster.rows() == []

    simulate(scenario, EngineSettings(window_limit=window, in_flight_limit=in_flight, page_size=page))


def test_lanes_that_wait_for_a_slot_get_it_when_a_call_of_another_ends() -> None:
    """Also when slots are free that only proven destinations may use."""

    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        for number in range(96):
            await cluster.create(f"t{number}", url=f"http://host{number}")
        await asyncio.sleep(8.5)
        assert len(cluster.ledger.sendings) == 96  # 14 slots of 16 at a time, one second each

    simulate(scenario, EngineSettings(in_flight_limit=16))


def test_a_destination_that_is_proven_while_it_waits_is_served_before_those_that_never_answered() -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            return (8.0 if "slow" in timer.detail.callback_url else 0.6), done()

        cluster.behave = behave
        await cluster.join("a")
        for number in range(25):
            await cluster.create(f"slow{number}", url=f"http://slow{number}")
        await asyncio.sleep(0.1)
        await cluster.create("first", url="http://good")
        await asyncio.sleep(0.2)
        for number in range(5):
            await cluster.create(f"good{number}", url="http://good")
        for number in range(25, 425):
            await cluster.create(f"slow{number}", url=f"http://slow{number}")
        await asyncio.sleep(5)
        assert len(lateness(cluster, "good")) == 5

    simulate(scenario, EngineSettings(in_flight_limit=32))


def test_one_lost_connection_costs_a_destination_that_answers_nothing_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.timer_id == "reset":
                return 0.0, Ending(outcome=Result.FAILED, next="parked", started_at=0, reachable=False)
            return (8.0 if "slow" in timer.detail.callback_url else 0.01), done()

        cluster.behave = behave
        await cluster.join("a")
        await cluster.create("first", url="http://good")
        await asyncio.sleep(0.1)
        for number in range(300):
            await cluster.create(f"slow{number}", url=f"http://slow{number}")
        await asyncio.sleep(0.5)
        await cluster.create("reset", url="http://good")
        for number in range(50):
            await asyncio.sleep(0.1)
            await cluster.create(f"good{number}", url="http://good")
        await asyncio.sleep(0.5)
        late = lateness(cluster, "good")
        assert len(late) == 50
        assert max(late) < 500

    simulate(scenario, EngineSettings(in_flight_limit=32))


def test_what_was_left_before_its_destination_was_proven_does_not_stay_behind() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = slow_by_name(8.0)  # type: ignore[assignment]
        await cluster.join("a")
        for number in range(300):
            await cluster.create(f"slow{number}", url=f"http://slow{number}")
        for number in range(60):
            await cluster.create(f"good{number}", url="http://good")
            await asyncio.sleep(0.02)
        await asyncio.sleep(20)
        sent = [s for s in cluster.ledger.sendings if s.timer.timer_id.startswith("good")]
        assert sent
        assert len(sent) == 60
        assert max(sending.at for sending in sent) - min(sending.at for sending in sent) < 5000

    simulate(scenario, EngineSettings(window_limit=64, in_flight_limit=32))


class Measured(dict[str, Timer]):
    most = 0

    def __setitem__(self, uuid: str, timer: Timer) -> None:
        super().__setitem__(uuid, timer)
        self.most = max(self.most, len(self))


def test_what_a_dead_instance_had_in_flight_is_taken_over_within_the_window() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.05, done())
        first = await cluster.join("a")
        for number in range(40):
            await cluster.create(f"t{number}", url=f"http://host{number}")
        await asyncio.sleep(0.02)
        assert len(cluster.ledger.sendings) == 40
        cluster.kill(first)
        cluster.settings = EngineSettings(window_limit=8)
        second = await cluster.join("b")
        second.engine.dispatcher.window.rows = rows = Measured()
        await asyncio.sleep(20)
        assert 0 < rows.most <= 8
        assert await cluster.rows() == []

    simulate(scenario, EngineSettings(window_limit=256))
