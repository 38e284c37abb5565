"""Large records of fetches are written a few at a time, and those that cannot be written hold up no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.fetches.messages import FetchRef
from mainspring.fetches.work_limit import PATIENCE_SECONDS, WorkLimit
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.support.fetch_requests import asking
from tests.support.simulated_fetches import World, answer, world


def _break(here: World, seconds: float) -> None:
    """From now on, no record whose id says so can be written; the store takes so long to find out."""
    put = here.store.put_record

    async def failing(collection: str, key: str, value: bytes, **fields: Any) -> Any:
        if key.startswith("bad"):
            await asyncio.sleep(seconds)
            raise StoreUnavailable("The row is locked")
        return await put(collection, key, value, **fields)

    here.store.put_record = failing


@pytest.mark.parametrize("seconds", [0.0, 3.0], ids=["fails at once", "fails late"])
@pytest.mark.parametrize(("asked", "answered"), [(5_000, 10), (10, 70_000), (5_000, 70_000)])
def test_records_that_cannot_be_written_turn_no_other_result_into_unknown(
    asked: int, answered: int, seconds: float
) -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop) as here:
            here.network.behave = lambda call: (2.0 if "bad" in call.url else 0.1, answer(body=b"x" * answered))

            async def create(name: str) -> None:
                request = asking(
                    f"http://{name}.example/", "POST", request={"body": "x" * asked}, req_id=name, timeout_seconds=5
                )
                await here.fetches.create(request)

            for n in range(20):
                await create(f"bad{n}")
            await asyncio.sleep(1)
            _break(here, seconds)
            await asyncio.sleep(2)
            for n in range(10):
                await create(f"good{n}")
            await asyncio.sleep(8)
            states = [(await here.fetches.get(FetchRef(req_id=f"good{n}"))).state for n in range(10)]
            assert states == ["succeeded"] * 10

    run_simulated(main)


# --- who is let in ----------------------------------------------------------------------------------------------------


class Work:
    """Something that takes as long as it is told to."""

    def __init__(self, few: WorkLimit) -> None:
        self._few = few
        self.log: list[str] = []
        self.at_once = self.most = 0

    async def do(self, key: str, seconds: float, *, fails: bool = False) -> None:
        try:
            async with self._few.place(key):
                self.at_once += 1
                self.most = max(self.most, self.at_once)
                self.log.append(key)
                try:
                    await asyncio.sleep(seconds)
                    if fails:
                        raise StoreUnavailable("No")
                finally:
                    self.at_once -= 1
        except StoreUnavailable:
            pass


def test_a_few_go_at_once_and_in_the_order_in_which_they_came() -> None:
    async def main(loop: SimulatedLoop) -> None:
        work = Work(WorkLimit(2))
        await asyncio.gather(*(work.do(str(n), 0.1) for n in range(8)))
        assert (work.most, work.log) == (2, [str(n) for n in range(8)])

    run_simulated(main)


def test_who_takes_long_is_waited_for_no_longer_than_a_moment_and_there_are_few_of_those() -> None:
    async def main(loop: SimulatedLoop) -> None:
        work = Work(WorkLimit(2, slow=3))
        slow = [asyncio.ensure_future(work.do(f"slow{n}", 100)) for n in range(8)]
        await asyncio.sleep(10 * PATIENCE_SECONDS)
        assert work.at_once == 5, "two places, and three for who takes long"
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)
        await work.do("next", 0)
        assert (work.log[-1], work.at_once) == ("next", 0)

    run_simulated(main)


def test_who_has_failed_goes_where_those_are_that_take_long() -> None:
    async def main(loop: SimulatedLoop) -> None:
        work = Work(WorkLimit(1, slow=1))
        await work.do("bad", 0, fails=True)
        again = asyncio.ensure_future(work.do("bad", 100))
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            await work.do("good", 0)
        again.cancel()
        await asyncio.wait({again})
        await work.do("bad", 0)
        assert work.log == ["bad", "bad", "good", "bad"]

    run_simulated(main)


def test_no_more_failures_are_remembered_than_there_may_be() -> None:
    async def main(loop: SimulatedLoop) -> None:
        few = WorkLimit(1)
        work = Work(few)
        for n in range(5000):
            await work.do(str(n), 0, fails=True)
        assert len(few._failed) <= 4096

    run_simulated(main)


def test_who_goes_away_while_it_waits_leaves_no_place_behind() -> None:
    async def main(loop: SimulatedLoop) -> None:
        work = Work(WorkLimit(1, slow=1))
        first = asyncio.ensure_future(work.do("first", PATIENCE_SECONDS / 2))
        waiting = [asyncio.ensure_future(work.do(f"w{n}", 0)) for n in range(5)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await first
        await work.do("last", 0)
        assert work.log == ["first", "last"]

    run_simulated(main)
