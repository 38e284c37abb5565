"""Calls that take hours, and origins that take long over a result: nobody gives them up or repeats them meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.fetches.local_origins import address_of
from mainspring.fetches.messages import FetchRef, FetchResult, FetchView, ListFetches
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.support.fetch_requests import asking
from tests.support.simulated_fetches import World, answer, world

HOUR = 3600.0


@pytest.mark.slow
def test_a_call_of_hours_is_seen_as_running_all_the_time_and_ends_with_its_response() -> None:
    async def main(loop: SimulatedLoop) -> tuple[FetchView, int]:
        async with world(loop) as here:
            here.network.behave = lambda _: (2.5 * HOUR, answer(201))
            await here.fetches.create(asking("http://slow.example/", "POST", req_id="long", timeout_seconds=3 * HOUR))
            for _ in range(2):
                await asyncio.sleep(HOUR)
                page = await here.fetches.list(ListFetches(states=("running",)))
                assert [fetch.req_id for fetch in page.fetches] == ["long"]
            await asyncio.sleep(HOUR)
            return await here.fetches.get(FetchRef(req_id="long")), here.network.calls["http://slow.example/"]

    view, calls = run_simulated(main)
    assert view.result is not None
    assert view.result.response is not None
    assert (view.result.response.status, calls) == (201, 1)


@pytest.mark.slow
def test_a_call_of_hours_that_nobody_answers_ends_by_its_timeout() -> None:
    async def main(loop: SimulatedLoop) -> FetchView:
        async with world(loop) as here:
            here.network.behave = lambda _: (6 * HOUR, answer())
            await here.fetches.create(asking("http://slow.example/", "POST", req_id="long", timeout_seconds=3 * HOUR))
            await asyncio.sleep(3 * HOUR + 15)
            return await here.fetches.get(FetchRef(req_id="long"))

    view = run_simulated(main)
    assert (view.state, view.result and view.result.error and view.result.error.kind) == ("unknown", "watchdog")


class SlowOrigins:
    """Takes its time for each result."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = 0
        self.taken = 0

    def knows(self, name: str) -> bool:
        return True

    async def receive(self, name: str, origin_id: str, result: FetchResult) -> None:
        self.begun += 1
        await asyncio.sleep(self.seconds)
        self.taken += 1


async def _asked(here: World, origins: SlowOrigins, *, wait: float) -> FetchView:
    here.fetching.inside.receiver = origins
    origin = address_of("Orders", "7")
    await here.fetches.create(asking("http://bank.example/", "POST", req_id="r", result_url=origin))
    await asyncio.sleep(wait)
    return await here.fetches.get(FetchRef(req_id="r"))


def test_an_origin_that_takes_longer_than_an_offer_is_waited_for_and_runs_once() -> None:
    async def main(loop: SimulatedLoop) -> tuple[FetchView, FetchView, SlowOrigins]:
        origins = SlowOrigins(1800.0)
        async with world(loop) as here:
            during = await _asked(here, origins, wait=1790.0)
            await asyncio.sleep(60.0)
            return during, await here.fetches.get(FetchRef(req_id="r")), origins

    during, after, origins = run_simulated(main)
    assert (during.delivery.state, during.delivery.attempts) == ("waiting", 0)
    assert (after.delivery.state, after.delivery.attempts) == ("delivered", 1)
    assert (origins.begun, origins.taken) == (1, 1)


@pytest.mark.slow
def test_the_offers_after_the_first_wait_as_long() -> None:
    class Stubborn(SlowOrigins):
        async def receive(self, name: str, origin_id: str, result: FetchResult) -> None:
            await super().receive(name, origin_id, result)
            if self.taken == 1:
                raise ValueError("not yet")

    async def main(loop: SimulatedLoop) -> tuple[FetchView, SlowOrigins]:
        origins = Stubborn(900.0)
        async with world(loop) as here:
            return await _asked(here, origins, wait=1900.0), origins

    view, origins = run_simulated(main)
    assert (view.delivery.state, view.delivery.attempts, origins.begun) == ("delivered", 2, 2)


@pytest.mark.slow
def test_one_that_takes_longer_than_it_may_is_given_up_and_run_again() -> None:
    async def main(loop: SimulatedLoop) -> tuple[FetchView, SlowOrigins]:
        origins = SlowOrigins(5000.0)
        async with world(loop) as here:
            return await _asked(here, origins, wait=3700.0), origins

    view, origins = run_simulated(main)
    assert (view.delivery.state, origins.begun, origins.taken) == ("waiting", 2, 0)
    assert view.delivery.detail == "The origin Orders '7' did not end within 3600 s."
