"""Every fetch that was accepted has a row that makes somebody look at it, and none that was not blocks its reqId."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.fetches.messages import FetchRef, FetchView, ListFetches
from mainspring.fetches.outcome import of_cancelling, of_lost_executor
from mainspring.fetches.record import FETCHES, Fetch, encode, ended, new_fetch
from mainspring.fetches.watcher import Watcher
from mainspring.store import Put, Remove, Verdict
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.support.expired_req_ids import (
    DAY_SECONDS,
    ENDS_SECONDS,
    LOOK_SECONDS,
    TIMEOUT_SECONDS,
    URL,
    expect_fetches_of_expired_req_ids,
)
from tests.support.fetch_requests import asking
from tests.support.simulated_fetches import World, answer, world


async def _record_alone(here: World, req_id: str, **fields: Any) -> Fetch:
    """What a crash leaves behind, after the record was written and before the row was. Nobody was told of it."""
    now = here.clock.now_ms()
    fetch = new_fetch(asking(URL, timeout_seconds=TIMEOUT_SECONDS, **fields), req_id=req_id, now=now)
    assert await here.store.put_record(FETCHES, req_id, encode(fetch), expect=0, now=now) is not None
    return fetch


@pytest.mark.parametrize(
    "seconds", [0.0, 1.0, TIMEOUT_SECONDS + 1, ENDS_SECONDS, pytest.param(DAY_SECONDS, marks=pytest.mark.slow)]
)
def test_a_fetch_that_a_crash_left_without_a_row_is_carried_out_when_it_is_asked_for_again(seconds: float) -> None:
    async def main(loop: SimulatedLoop) -> tuple[FetchView, list[str], int]:
        async with world(loop) as here:
            await _record_alone(here, "left")
            await asyncio.sleep(seconds)
            await here.fetches.create(asking(URL, req_id="left", timeout_seconds=TIMEOUT_SECONDS))
            listed = [fetch.req_id for fetch in (await here.fetches.list(ListFetches())).fetches]
            return await here.fetches.wait("left", LOOK_SECONDS), listed, here.network.calls[URL]

    view, listed, calls = run_simulated(main)
    assert (view.state, listed, calls) == ("succeeded", ["left"], 1)


def test_a_fetch_that_a_crash_left_without_a_row_ends_for_whoever_looks_at_it() -> None:
    async def main(loop: SimulatedLoop) -> tuple[FetchView, list[str]]:
        async with world(loop) as here:
            await _record_alone(here, "left")
            await asyncio.sleep(ENDS_SECONDS)
            view = await here.fetches.wait("left", LOOK_SECONDS)
            return view, [fetch.req_id for fetch in (await here.fetches.list(ListFetches())).fetches]

    view, listed = run_simulated(main)
    assert (view.state, listed) == ("failed", ["left"])


@pytest.mark.slow
def test_a_req_id_that_is_asked_for_again_while_its_record_expires_is_carried_out() -> None:
    expect_fetches_of_expired_req_ids()


def test_a_fetch_that_a_crash_left_without_a_row_tells_its_origin_that_it_was_cancelled() -> None:
    async def main(loop: SimulatedLoop) -> list[str]:
        async with world(loop) as here:
            await _record_alone(here, "left", result_url="http://origin.example/results")
            await here.fetches.cancel(FetchRef(req_id="left"))
            await asyncio.sleep(LOOK_SECONDS)
            return here.network.results["left"]

    assert run_simulated(main) == ["cancelled"]


def test_a_fetch_that_ended_without_a_row_tells_its_origin_when_it_is_asked_for_again() -> None:
    async def main(loop: SimulatedLoop) -> list[str]:
        async with world(loop) as here:
            fetch = await _record_alone(here, "left", result_url="http://origin.example/results")
            now = here.clock.now_ms()
            outcome = of_cancelling(started_at=None, now=now)
            final = encode(ended(fetch, outcome, offer_ms=0, retention_ms=int(DAY_SECONDS) * 1000))
            assert await here.store.put_record(FETCHES, "left", final, expect=1, now=now) is not None
            origin = "http://origin.example/results"
            await here.fetches.create(asking(URL, req_id="left", result_url=origin, timeout_seconds=TIMEOUT_SECONDS))
            await asyncio.sleep(LOOK_SECONDS)
            return here.network.results["left"]

    assert run_simulated(main) == ["cancelled"]


@pytest.mark.slow
def test_what_became_of_a_fetch_that_has_expired_concerns_no_later_one_of_its_req_id() -> None:
    async def main(loop: SimulatedLoop) -> tuple[bool, str]:
        async with world(loop, retention_days=1) as here:
            registry = here.fetching.registry
            asked = asking(URL, req_id="again", timeout_seconds=TIMEOUT_SECONDS)
            await here.fetches.create(asked)
            await here.fetches.wait("again", LOOK_SECONDS)
            earlier = await registry.find("again")
            assert earlier is not None
            await asyncio.sleep(DAY_SECONDS + 60)
            here.network.behave = lambda _: (TIMEOUT_SECONDS / 2, answer())
            await here.fetches.create(asked)
            await asyncio.sleep(1)
            # An executor that was frozen all the while comes with what it has to say.
            outcome = of_lost_executor("frozen", started_at=0, now=here.clock.now_ms())
            _, was_its_end = await registry.end(earlier, outcome, by_executor=True)
            return was_its_end, (await here.fetches.wait("again", TIMEOUT_SECONDS)).state

    assert run_simulated(main) == (False, "succeeded")


class Partly:
    """A store of which one shard can be read and not written."""

    def __init__(self, here: World) -> None:
        self._write = here.store._inner.write
        here.store._inner.write = self.write
        self.shard: int | None = None
        self.written: set[str] = set()

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        [change] = changes
        assert isinstance(change, Put)
        if change.timer.shard_id == self.shard:
            return [Verdict.UNAVAILABLE]
        self.written.add(change.timer.timer_id)
        verdicts: list[Verdict] = await self._write(changes)
        return verdicts


def test_a_fetch_whose_row_cannot_be_written_is_not_acknowledged_and_can_be_asked_for_again() -> None:
    async def main(loop: SimulatedLoop) -> tuple[str, int]:
        async with world(loop) as here:
            partly = Partly(here)
            partly.shard = (await here.fetching.registry.key_of("late")).shard_id
            asked = asking(URL, req_id="late", timeout_seconds=TIMEOUT_SECONDS)
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await here.fetches.create(asked)
            partly.shard = None
            await asyncio.sleep(ENDS_SECONDS)
            await here.fetches.create(asked)
            return (await here.fetches.wait("late", LOOK_SECONDS)).state, here.network.calls[URL]

    assert run_simulated(main) == ("succeeded", 1)


def test_one_shard_that_cannot_be_written_keeps_nobody_from_the_calls_of_dead_executors_in_others() -> None:
    async def main(loop: SimulatedLoop) -> tuple[set[str], set[str], set[str]]:
        async with world(loop) as here:
            here.network.behave = lambda _: (1_000.0, answer())
            ids = {f"f{number}" for number in range(20)}
            for req_id in ids:
                await here.fetches.create(asking(URL, req_id=req_id, timeout_seconds=2_000.0))
            await asyncio.sleep(1)
            registry = here.fetching.registry
            shards = {req_id: (await registry.key_of(req_id)).shard_id for req_id in ids}

            async def no(*_: object) -> bool:
                return False

            watcher = Watcher(
                timers=here.store,
                registry=registry,
                members=tuple,
                executor_gone=no,
                owned=lambda: set(shards.values()),
                lives=no,
                clock=here.clock,
                overdue=here.fetching.watcher._overdue,
            )
            partly = Partly(here)
            partly.shard = shards["f0"]
            await watcher.look()
            others, partly.written = partly.written, set()
            partly.shard = None
            await watcher.look()
            bad = {req_id for req_id in ids if shards[req_id] == shards["f0"]}
            return others, partly.written, bad

    others, late, bad = run_simulated(main)
    assert others == {f"f{number}" for number in range(20)} - bad
    assert late >= bad
