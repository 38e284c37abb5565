"""What is simulated of processes: they die without a last word, stand still, and have no order among themselves."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import Process, SimulatedLoop, context_of
from mainspring.testing.simulation.teardown import unwind


def run(main: Callable[[SimulatedLoop], Coroutine[Any, Any, None]], *, seed: int = 1) -> None:
    loop = SimulatedLoop(Draws(seed).order)
    try:
        loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_a_process_that_dies_does_not_clean_up() -> None:
    async def main(loop: SimulatedLoop) -> None:
        process, seen = Process("a"), []

        async def live() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                seen.append("cleaned up")

        task = context_of(process).run(loop.create_task, live())
        await asyncio.sleep(1)
        loop.kill(process)
        task.cancel()
        await asyncio.sleep(20)
        assert seen == []
        task.get_coro().close()

    run(main)


def test_a_process_that_stands_still_does_later_what_it_missed_in_order() -> None:
    async def main(loop: SimulatedLoop) -> None:
        process, seen = Process("a"), []

        async def live(number: int) -> None:
            await asyncio.sleep(number)
            seen.append((number, loop.time()))

        for number in (3, 1, 2):
            context_of(process).run(loop.create_task, live(number))
        await asyncio.sleep(0.5)
        loop.hold(process)
        await asyncio.sleep(9.5)
        assert seen == []
        loop.go_on(process)
        await asyncio.sleep(1)
        assert seen == [(1, 10.0), (2, 10.0), (3, 10.0)]

    run(main)


def test_what_a_process_starts_dies_with_it() -> None:
    async def main(loop: SimulatedLoop) -> None:
        process, seen = Process("a"), []

        async def child() -> None:
            await asyncio.sleep(2)
            seen.append("child")

        async def parent() -> None:
            loop.create_task(child())
            await asyncio.sleep(0)

        context_of(process).run(loop.create_task, parent())
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(5)
        assert seen == []

    run(main)


def test_who_goes_first_at_an_instant_is_drawn() -> None:
    def first(seed: int) -> str:
        seen: list[str] = []

        async def main(loop: SimulatedLoop) -> None:
            async def live(name: str) -> None:
                await asyncio.sleep(1)
                seen.append(name)

            for name in ("a", "b", "c"):
                context_of(Process(name)).run(loop.create_task, live(name))
            await asyncio.sleep(2)

        run(main, seed=seed)
        return seen[0]

    assert {first(seed) for seed in range(30)} == {"a", "b", "c"}
    assert first(7) == first(7)


def test_leaving_something_out_moves_nobody_elses_luck() -> None:
    whole, part = Draws(5), Draws(5)
    for _ in range(10):
        whole.draw("store/i2/begin", 100)
    assert [whole.draw("wire/i1", 1000) for _ in range(5)] == [part.draw("wire/i1", 1000) for _ in range(5)]


def test_a_muted_label_draws_only_what_is_harmless() -> None:
    draws = Draws(5, muted=("store/",))
    assert {draws.draw("store/i2/begin", 100) for _ in range(50)} == {0}
    assert len({draws.draw("wire/i1", 100) for _ in range(50)}) > 10
    assert not any(draws.chance("store/spike", 99) for _ in range(50))


def test_a_task_that_has_not_begun_when_the_run_is_over_leaves_nothing_that_was_never_awaited() -> None:
    async def work() -> None:
        """It would."""

    async def see_through(coroutine: Coroutine[Any, Any, None]) -> None:
        await coroutine

    loop = SimulatedLoop()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loop.create_task(see_through(work()))
        unwind(loop)
        gc.collect()
    assert [str(warning.message) for warning in told] == []
