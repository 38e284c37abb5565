"""The engine on a simulated clock: when it calls, what it calls, and what it must never call."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from mainspring.kernel.carrier import Ending
from mainspring.kernel.settings import EngineSettings
from mainspring.model import FOREVER, Delivery, Result, RetryPolicy, State, Timer
from mainspring.store import Begin, Finish, Verdict
from tests.support.engine_cluster import Cluster, done, simulate

FAILED = Ending(outcome=Result.FAILED, next="parked", started_at=0)


def test_a_timer_fires_at_its_instant_and_is_then_gone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.join("a")
        timer = await cluster.create("t", in_ms=5000)
        await asyncio.sleep(4.9)
        assert cluster.ledger.sendings == []
        await asyncio.sleep(0.2)
        [sending] = cluster.ledger.sendings
        assert timer.due_at <= sending.at <= timer.due_at + 10
        assert sending.timer.attempts == 1
        assert await cluster.rows() == []
        [attempt] = await cluster.store.history(timer.key)
        assert (attempt.outcome, attempt.next) == (Result.SUCCEEDED, "done")

    simulate(scenario)


def test_a_row_written_behind_the_read_position_fires() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.join("a")
        for number in range(20):
            await cluster.create(f"early{number}", in_ms=100)
        await asyncio.sleep(1)
        await cluster.create("behind", in_ms=-60_000)
        await asyncio.sleep(0.1)
        assert len(cluster.ledger.of("behind")) == 1

    simulate(scenario)


def test_a_page_that_is_wholly_due_does_not_stall_the_reader() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.01, done())
        await cluster.join("a")
        for number in range(2000):
            await cluster.create(f"t{number}", in_ms=100)
        await asyncio.sleep(5)
        assert len(cluster.ledger.sendings) == 2000
        assert len({sending.timer.uuid for sending in cluster.ledger.sendings}) == 2000

    simulate(scenario, EngineSettings(page_size=7, window_limit=50))


def test_one_slow_destination_holds_back_nothing_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 4
        cluster.behave = lambda timer: (30.0 if timer.detail.callback_url == "http://slow" else 0.0, done())
        await cluster.join("a")
        for number in range(500):
            await cluster.create(f"slow{number}", in_ms=100, url="http://slow")
        good = [
            await cluster.create(f"good{number}", in_ms=200, url=f"http://good{number % 3}") for number in range(60)
        ]
        await asyncio.sleep(0.9)
        sent = {sending.timer.uuid: sending.at for sending in cluster.ledger.sendings}
        assert all(sent[timer.uuid] - timer.due_at < 500 for timer in good)
        late = await cluster.create("good-later", in_ms=1000)
        await asyncio.sleep(1.1)
        assert cluster.ledger.of("good-later")[0].at - late.due_at < 100

    simulate(scenario, EngineSettings(page_size=10, window_limit=64))


def test_a_backlog_larger_than_the_window_is_worked_off_whole() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 3
        cluster.behave = lambda _: (0.05, done())
        await cluster.join("a")
        for number in range(300):
            await cluster.create(f"t{number}", url=f"http://host{number % 2}")
        await asyncio.sleep(10)
        assert len(cluster.ledger.sendings) == 300
        assert await cluster.rows() == []

    simulate(scenario, EngineSettings(page_size=5, window_limit=16))


def test_calls_in_flight_stay_within_the_limits() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 3
        flying: dict[str, int] = {}
        peak: dict[str, int] = {}

        def behave(timer: Timer) -> tuple[float, Ending]:
            url = timer.detail.callback_url
            flying[url] = flying.get(url, 0) + 1
            peak[url] = max(peak.get(url, 0), flying[url])
            cluster.loop.call_later(0.5, lambda: flying.__setitem__(url, flying[url] - 1))
            return 0.5, done()

        cluster.behave = behave
        member = await cluster.join("a")
        for number in range(40):
            await cluster.create(f"t{number}", url=f"http://host{number % 4}")
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert member.engine.dispatcher.in_flight <= 8
        assert max(peak.values()) <= 3
        assert len(cluster.ledger.sendings) == 40

    simulate(scenario, EngineSettings(in_flight_limit=8))


def test_a_deleted_timer_that_is_loaded_is_not_sent() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        for number in range(5):
            await cluster.create(f"t{number}")
        await asyncio.sleep(0.5)  # one is in flight, four are loaded and wait for the slot
        states = {f"t{number}": await cluster.delete(f"t{number}") for number in range(5)}
        await asyncio.sleep(10)
        running = [name for name, state in states.items() if state is State.RUNNING]
        assert len(running) == 1
        assert [sending.timer.timer_id for sending in cluster.ledger.sendings] == running

    simulate(scenario)


def test_a_loaded_timer_that_is_moved_fires_only_at_its_new_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        await cluster.create("first")
        await asyncio.sleep(0.1)
        moved = await cluster.create("moved")
        await asyncio.sleep(0.1)
        await cluster.change(
            "moved",
            due_at=moved.due_at + 60_000,
            generation=2,
            detail=replace(moved.detail, delivery_id="msg_new", execute_at=moved.due_at + 60_000),
        )
        await asyncio.sleep(30)
        assert cluster.ledger.of("moved") == []
        await asyncio.sleep(32)
        [sending] = cluster.ledger.of("moved")
        assert (sending.timer.generation, sending.at >= moved.due_at + 60_000) == (2, True)

    simulate(scenario)


def test_a_change_during_the_call_is_kept_and_a_new_time_fires_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        timer = await cluster.create("t")
        await asyncio.sleep(0.5)
        await cluster.change(
            "t",
            state=State.SCHEDULED,
            attempts=0,
            generation=2,
            due_at=timer.due_at + 5000,
            detail=replace(timer.detail, delivery_id="msg_second"),
        )
        await asyncio.sleep(10)
        assert [s.timer.detail.delivery_id for s in cluster.ledger.of("t")] == [timer.detail.delivery_id, "msg_second"]
        history = await cluster.store.history(timer.key)
        assert [attempt.next for attempt in history] == ["done", "superseded"]
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_label_changed_during_the_call_does_not_send_twice() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (1.0, done())
        await cluster.join("a")
        timer = await cluster.create("t", delivery=Delivery.AT_MOST_ONCE)
        await asyncio.sleep(0.5)
        await cluster.change("t", generation=2, detail=replace(timer.detail, labels={"a": "b"}))
        await asyncio.sleep(10)
        assert len(cluster.ledger.of("t")) == 1
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_timer_parked_during_a_failing_call_stays_parked() -> None:
    async def scenario(cluster: Cluster) -> None:
        now = cluster.clock.now_ms()
        cluster.behave = lambda _: (1.0, replace(FAILED, next="retry", next_at=now + 3000))
        await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(0.5)
        await cluster.change("t", state=State.PARKED, due_at=FOREVER)
        await asyncio.sleep(10)
        [row] = await cluster.rows()
        assert (row.state, len(cluster.ledger.of("t"))) == (State.PARKED, 1)
        assert row.detail.last_outcome is not None

    simulate(scenario)


def test_a_retry_keeps_its_delivery_id_and_counts_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.attempts < 3:
                at = cluster.clock.now_ms() + 1000
                return 0.0, Ending(outcome=Result.FAILED, next="retry", next_at=at, started_at=0)
            return 0.0, done()

        cluster.behave = behave
        await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(5)
        sendings = cluster.ledger.of("t")
        assert [sending.timer.attempts for sending in sendings] == [1, 2, 3]
        assert len({sending.timer.detail.delivery_id for sending in sendings}) == 1

    simulate(scenario)


def test_a_reschedule_starts_a_new_delivery_with_the_new_payload() -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.generation == 1:
                at = cluster.clock.now_ms() + 2000
                return 0.0, done(next="rescheduled", next_at=at, delivery_id="msg_next", payload='{"n":2}')
            return 0.0, done()

        cluster.behave = behave
        await cluster.join("a")
        timer = await cluster.create("t")
        await asyncio.sleep(5)
        first, second = cluster.ledger.of("t")
        assert second.at - first.at >= 2000
        assert (second.timer.attempts, second.timer.generation) == (1, 2)
        assert (second.timer.detail.delivery_id, second.timer.payload) == ("msg_next", '{"n":2}')
        assert second.timer.detail.delivery_id != timer.detail.delivery_id

    simulate(scenario)


def test_a_reschedule_can_give_the_row_other_labels() -> None:
    async def scenario(cluster: Cluster) -> None:
        at = cluster.clock.now_ms() + 60_000
        ending = done(next="rescheduled", next_at=at, delivery_id="msg_next", labels={"state": "sent"}, kept=False)
        cluster.behave = lambda _: (0.0, ending)
        await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(5)
        [row] = await cluster.rows()
        assert (row.detail.labels, row.detail.delivery_id) == ({"state": "sent"}, "msg_next")

    simulate(scenario)


def test_a_lane_waits_for_room_that_comes_from_elsewhere_and_begins_nothing_before() -> None:
    async def scenario(cluster: Cluster) -> None:
        room = 0
        cluster.lane_room = lambda: room
        member = await cluster.join("a")
        for n in range(5):
            await cluster.create(f"t{n}")
        await asyncio.sleep(5)
        assert cluster.ledger.sendings == []
        assert {row.state for row in await cluster.rows()} == {State.SCHEDULED}
        room = 2
        member.engine.dispatcher.pump()
        await asyncio.sleep(1)
        assert len(cluster.ledger.sendings) == 5

    simulate(scenario)


def test_a_refused_timer_is_never_begun() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.refuse = lambda _timer, now: replace(FAILED, started_at=now)
        await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(1)
        [row] = await cluster.rows()
        assert (row.state, row.attempts, cluster.ledger.sendings) == (State.PARKED, 0, [])

    simulate(scenario)


def test_an_open_circuit_probes_and_ramps_up_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        healthy = False

        def behave(_: Timer) -> tuple[float, Ending]:
            if healthy:
                return 0.0, done()
            at = cluster.clock.now_ms() + 100
            return 0.0, Ending(outcome=Result.FAILED, next="retry", next_at=at, started_at=0, reachable=False)

        cluster.behave = behave
        await cluster.join("a")
        for number in range(50):
            await cluster.create(f"t{number}")
        await asyncio.sleep(1)
        opened = len(cluster.ledger.sendings)
        await asyncio.sleep(20)
        probes = len(cluster.ledger.sendings) - opened
        assert 3 <= probes <= 5
        healthy = True
        await asyncio.sleep(10)
        assert await cluster.rows() == []

    simulate(scenario, EngineSettings(circuit_failures=10, circuit_seconds=5))


def test_at_most_once_rows_found_in_flight_become_unknown_and_others_are_sent_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (60.0, done())
        first = await cluster.join("a")
        once = await cluster.create("once", delivery=Delivery.AT_MOST_ONCE)
        least = await cluster.create("least")
        await asyncio.sleep(1)
        cluster.kill(first)
        cluster.behave = lambda _: (0.0, done())
        await cluster.join("b")
        await asyncio.sleep(20)
        assert len(cluster.ledger.of("once")) == 1
        assert [s.timer.detail.delivery_id for s in cluster.ledger.of("least")] == [least.detail.delivery_id] * 2
        [row] = await cluster.rows()
        assert (row.timer_id, row.state) == ("once", State.PARKED)
        assert row.detail.last_outcome is not None
        assert row.detail.last_outcome.outcome is Result.UNKNOWN
        [attempt] = await cluster.store.history(once.key)
        assert attempt.outcome is Result.UNKNOWN

    simulate(scenario)


def test_a_lost_last_attempt_is_not_repeated() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (60.0, done())
        first = await cluster.join("a")
        await cluster.create("t", policy=RetryPolicy(max_attempts=1))
        await asyncio.sleep(1)
        cluster.kill(first)
        await cluster.join("b")
        await asyncio.sleep(20)
        [row] = await cluster.rows()
        assert (row.state, len(cluster.ledger.of("t"))) == (State.PARKED, 1)

    simulate(scenario)


def test_a_stop_waits_for_calls_in_flight_and_begins_no_more() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (3.0, done())
        member = await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(1)
        stopping = asyncio.get_running_loop().create_task(cluster.leave(member))
        await asyncio.sleep(0)
        await cluster.create("later")
        await stopping
        assert [row.timer_id for row in await cluster.rows()] == ["later"]
        assert all(shard.owner == "" for shard in await cluster.owners())

    simulate(scenario)


def test_a_stop_records_a_call_that_does_not_end_as_unknown() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (600.0, done())
        member = await cluster.join("a")
        timer = await cluster.create("t")
        await asyncio.sleep(1)
        await cluster.leave(member)
        [row] = await cluster.rows()
        assert row.state is State.RETRYING
        [attempt] = await cluster.store.history(timer.key)
        assert attempt.outcome is Result.UNKNOWN
        cluster.behave = lambda _: (0.0, done())
        await cluster.join("b")
        await asyncio.sleep(1)
        assert [s.timer.detail.delivery_id for s in cluster.ledger.of("t")] == [timer.detail.delivery_id] * 2

    simulate(scenario)


def test_what_a_carrier_writes_after_a_call_holds_no_slot_and_comes_before_the_row() -> None:
    async def scenario(cluster: Cluster) -> None:
        written: list[str] = []

        def behave(timer: Timer) -> tuple[float, Ending]:
            async def write() -> Ending:
                await asyncio.sleep(5)
                written.append(timer.timer_id)
                return done(started_at=0)

            return 1.0, done(write=write)

        cluster.lane_limit = 1
        cluster.behave = behave
        await cluster.join("a")
        for name in ("t1", "t2"):
            await cluster.create(name)
        await asyncio.sleep(2.5)
        assert len(cluster.ledger.sendings) == 2
        assert {row.state for row in await cluster.rows()} == {State.RUNNING}
        await asyncio.sleep(5)
        assert sorted(written) == ["t1", "t2"]
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_stop_does_not_wait_forever_for_what_a_carrier_has_to_write() -> None:
    async def scenario(cluster: Cluster) -> None:
        async def write() -> Ending:
            await asyncio.sleep(10_000)
            return done()

        cluster.behave = lambda _: (0.0, done(write=write))
        member = await cluster.join("a")
        await cluster.create("t")
        await asyncio.sleep(1)
        await member.engine.stop()
        [row] = await cluster.rows()
        assert (row.state, row.detail.last_outcome and row.detail.last_outcome.outcome) == (
            State.RETRYING,
            Result.UNKNOWN,
        )
        cluster.kill(member)

    simulate(scenario)


def test_an_owner_cut_off_from_the_store_stops_sending_within_its_lease() -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.join("a")
        for number in range(40):
            await cluster.create(f"t{number}", in_ms=number * 500)
        await asyncio.sleep(3.1)
        member.store.cut = True
        cut_at = cluster.clock.now_ms()
        await asyncio.sleep(30)
        assert all(sending.at <= cut_at + 6000 for sending in cluster.ledger.sendings)
        member.store.cut = False
        await asyncio.sleep(30)
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_deposed_owner_writes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (20.0, done())
        old = await cluster.join("a")
        timer = await cluster.create("t")
        await asyncio.sleep(1)
        fence = old.ownership.fences[timer.shard_id]
        old.store.cut = True
        await cluster.join("b")
        await asyncio.sleep(10)
        key = timer.key
        assert await cluster.store.begin([Begin(key, fence, 1)]) == [Verdict.FENCED]
        assert await cluster.store.finish([Finish(key, fence, None, None)]) == [Verdict.FENCED]
        old.store.cut = False
        await asyncio.sleep(60)
        assert await cluster.rows() == []

    simulate(scenario)


def test_a_carrier_that_raises_ends_its_own_timer_and_no_other() -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.timer_id == "bad":
                raise RuntimeError("unforeseen")
            return 0.0, done()

        cluster.behave = behave
        await cluster.join("a")
        await cluster.create("bad", delivery=Delivery.AT_MOST_ONCE)
        await cluster.create("good", in_ms=1000)
        await asyncio.sleep(3)
        [row] = await cluster.rows()
        assert (row.timer_id, row.state) == ("bad", State.PARKED)
        assert row.detail.last_outcome is not None
        assert row.detail.last_outcome.outcome is Result.UNKNOWN
        assert len(cluster.ledger.of("good")) == 1

    simulate(scenario)


def test_many_dead_destinations_cannot_take_every_slot() -> None:
    async def scenario(cluster: Cluster) -> None:
        unreachable = Ending(outcome=Result.UNKNOWN, next="parked", started_at=0, reachable=False)
        cluster.behave = lambda timer: (30.0, unreachable) if "dead" in timer.detail.callback_url else (0.01, done())
        await cluster.join("a")
        await cluster.create("first", url="http://good")
        await asyncio.sleep(1)
        for number in range(1500):
            await cluster.create(f"dead{number}", in_ms=100, url=f"http://dead{number % 30}")
        good = [
            await cluster.create(f"good{number}", in_ms=200 + number * 50, url="http://good") for number in range(60)
        ]
        new = await cluster.create("new", in_ms=1000, url="http://new")
        await asyncio.sleep(5)
        sent = {sending.timer.uuid: sending.at for sending in cluster.ledger.sendings}
        assert all(sent[timer.uuid] - timer.due_at < 500 for timer in (*good, new))

    simulate(scenario, EngineSettings(in_flight_limit=512))
