"""Results against watchdogs, in simulated time: one of them counts, whatever the order in which they come."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from mainspring.delivery.call import Call, Reply
from mainspring.errors import NotFound, StoreUnavailable
from mainspring.fetches.messages import FetchRef, FetchView, ListFetches
from mainspring.fetches.record import WATCHDOG_MS
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.support.fetch_requests import asking
from tests.support.simulated_fetches import answer, world

ORIGIN = "http://origin.example/results"
RACES = 10_000
WAITING = 1_500
"""More than are read at a time."""


@pytest.mark.slow
def test_of_a_result_and_a_watchdog_that_come_together_one_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="mainspring")  # ten thousand times "a second result arrived for a fetch"

    async def main(loop: SimulatedLoop) -> tuple[Counter[str], Counter[str]]:
        dice = random.Random(1)
        async with world(loop, latency_seconds=0.004) as here:
            # The executor is stuck and comes back at about the instant of the watchdog.
            here.network.behave = lambda _: (1.0 + WATCHDOG_MS / 1000 + dice.uniform(-0.01, 0.03), answer())
            ids = [
                (
                    await here.fetches.create(asking(f"http://t.example/{n}", timeout_seconds=1.0, result_url=ORIGIN))
                ).req_id
                for n in range(RACES)
            ]
            await asyncio.sleep(60)
            states: Counter[str] = Counter()
            late: Counter[str] = Counter()
            for req_id in ids:
                view = await here.fetches.wait(req_id, 0)
                assert here.network.results[req_id] == [view.state]
                assert view.delivery.state == "delivered"
                states[view.state] += 1
                late[view.late_result.state if view.late_result else "none"] += 1
            assert set(here.network.calls.values()) == {1}
            return states, late

    states, late = run_simulated(main)
    assert states.keys() == {"succeeded", "unknown"}, "both have won"
    assert min(states.values()) > RACES / 20
    assert late == {"succeeded": states["unknown"], "none": states["succeeded"]}, "late results are kept"


def test_a_fetch_that_ends_exactly_at_its_timeout_succeeds() -> None:
    async def main(loop: SimulatedLoop) -> FetchView:
        async with world(loop) as here:
            here.network.behave = lambda call: (call.timeout_ms / 1000, answer())
            asked = await here.fetches.create(asking("http://t.example/", "POST", timeout_seconds=30.0))
            await asyncio.sleep(120)
            return await here.fetches.wait(asked.req_id, 0)

    view = run_simulated(main)
    assert (view.state, view.late_result) == ("succeeded", None)


def test_steady_traffic_does_not_delay_a_watchdog() -> None:
    async def main(loop: SimulatedLoop) -> tuple[FetchView, int]:
        async with world(loop, latency_seconds=0.004) as here:

            def behave(call: Call) -> tuple[float, Reply]:
                return (10_000.0 if call.url.endswith("/silent") else 0.5), answer()

            here.network.behave = behave
            silent = await here.fetches.create(asking("http://t.example/silent", timeout_seconds=20.0))
            for _ in range(60):
                await here.fetches.create(asking("http://t.example/steady", timeout_seconds=20.0))
                await asyncio.sleep(1)
            return await here.fetches.wait(silent.req_id, 0), here.network.calls["http://t.example/steady"]

    view, others = run_simulated(main)
    assert others == 60
    assert view.state == "unknown"
    assert view.started_at is not None
    assert view.result is not None
    waited = (view.result.finished_at - view.started_at).total_seconds()
    assert 30.0 <= waited < 30.2


@pytest.mark.parametrize("seed", range(5))
def test_no_fault_of_the_store_makes_a_second_call_or_loses_a_result(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="mainspring")

    async def main(loop: SimulatedLoop) -> None:
        dice = random.Random(seed)
        async with world(loop, seed, latency_seconds=0.01, fault_rate=0.1) as here:
            here.network.behave = lambda _: (dice.uniform(0.0, 13.0), answer())
            ids = [f"f{n}" for n in range(100)]
            for req_id in ids:
                asked = asking(f"http://t.example/{req_id}", req_id=req_id, timeout_seconds=1.0, result_url=ORIGIN)
                while here.network.calls[asked.request.url] == 0:  # who gets no answer asks again
                    with suppress(StoreUnavailable):
                        await here.fetches.create(asked)
                        break
            await asyncio.sleep(300)
            here.store.fault_rate = 0.0
            for req_id in ids:
                view = await here.fetches.wait(req_id, 0)
                assert view.result is not None, view
                assert set(here.network.results[req_id]) == {view.state}, "an origin hears of one result only"
                assert here.network.calls[f"http://t.example/{req_id}"] <= 1

    run_simulated(main)


def test_after_its_retention_nothing_of_a_fetch_is_left_and_its_id_is_free() -> None:
    async def main(loop: SimulatedLoop) -> int:
        async with world(loop) as here:
            asked = asking("http://t.example/", req_id="again", result_url=ORIGIN)
            await here.fetches.create(asked)
            await asyncio.sleep(1)
            here.clock.align(here.clock.now_ms() + 7 * 86_400_000 - 60_000)
            await asyncio.sleep(2)
            assert (await here.fetches.create(asked)).state == "succeeded"
            await asyncio.sleep(60)
            assert (await here.fetches.list(ListFetches())).fetches == ()
            with pytest.raises(NotFound):
                await here.fetches.get(FetchRef(req_id="again"))
            assert (await here.fetches.create(asked)).state == "pending"
            await asyncio.sleep(1)
            return here.network.calls["http://t.example/"]

    assert run_simulated(main) == 2


@pytest.mark.slow
@pytest.mark.parametrize("busy_seconds", [11.5, 10_000.0])
def test_a_fetch_that_nobody_begins_fails_soon_after_its_timeout_with_nothing_sent(busy_seconds: float) -> None:
    async def main(loop: SimulatedLoop) -> list[FetchView]:
        async with world(loop, latency_seconds=0.004, fetch_limit=3) as here:
            here.watch()
            here.network.behave = lambda _: (busy_seconds, answer())
            for n in range(3):
                await here.fetches.create(asking(f"http://busy{n}.example/", timeout_seconds=1800.0))
            while len(here.network.calls) < 3:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            asked = await asyncio.gather(
                *(
                    here.fetches.create(asking(f"http://t.example/{n}", timeout_seconds=0.1 + n % 2, result_url=ORIGIN))
                    for n in range(WAITING)
                )
            )
            long = await here.fetches.create(asking("http://t.example/long", timeout_seconds=60.0))
            await asyncio.sleep(20)
            assert (await here.fetches.wait(long.req_id, 0)).state == ("running" if busy_seconds < 20 else "pending")
            views = [await here.fetches.wait(view.req_id, 0) for view in asked]
            assert Counter(tuple(here.network.results[view.req_id]) for view in views) == {("failed",): WAITING}
            assert all(f"http://t.example/{n}" not in here.network.calls for n in range(WAITING))
            return views

    for view in run_simulated(main):
        assert view.result is not None
        assert view.result.error is not None
        assert (view.state, view.result.error.kind, view.result.error.definite) == ("failed", "overloaded", True)
        waited = (view.result.finished_at - view.created_at).total_seconds() - view.timeout_seconds
        assert 10.0 <= waited < 15.0


def test_a_cancelled_fetch_is_definite_only_if_it_was_never_called() -> None:
    async def main(loop: SimulatedLoop) -> Counter[bool]:
        dice = random.Random(3)
        async with world(loop, latency_seconds=0.004) as here:
            here.network.behave = lambda _: (5.0, answer())
            definite: Counter[bool] = Counter()
            for n in range(200):
                url = f"http://t.example/{n}"
                asked = await here.fetches.create(asking(url))
                await asyncio.sleep(dice.uniform(0.0, 0.03))  # at about the time at which the call begins
                view = await here.fetches.cancel(FetchRef(req_id=asked.req_id))
                await asyncio.sleep(0.1)
                assert view.result is not None
                assert view.result.error is not None
                assert view.result.error.definite == (here.network.calls[url] == 0)
                definite[view.result.error.definite] += 1
            return definite

    assert min(run_simulated(main).values()) > 10, "both have happened"


@pytest.mark.parametrize("verb", ["cancel", "give up"])
def test_a_fetch_that_was_ended_with_an_answer_that_got_lost_is_not_counted_as_waiting_for_ever(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, fetch_limit=1) as here:
            here.watch()
            here.network.behave = lambda _: (10_000.0, answer())
            await here.fetches.create(asking("http://busy.example/", timeout_seconds=1800.0))
            await asyncio.sleep(1)
            asked = await here.fetches.create(asking("http://t.example/", timeout_seconds=5.0))
            put, lost = here.store.put_record, 0

            async def put_and_lose(*arguments: Any, **fields: Any) -> Any:
                nonlocal lost
                written = await put(*arguments, **fields)
                if arguments[1] == asked.req_id and not lost:
                    lost += 1
                    raise StoreUnavailable("The answer is lost")
                return written

            monkeypatch.setattr(here.store, "put_record", put_and_lose)
            if verb == "cancel":
                with pytest.raises(StoreUnavailable):
                    await here.fetches.cancel(FetchRef(req_id=asked.req_id))
            await asyncio.sleep(60)
            assert lost == 1
            assert here.fetching._activity.pending(lambda _: True) == 0

    run_simulated(main)
