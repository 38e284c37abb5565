"""Work in the background survives its errors, and so does the process that it is in."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mainspring import background
from mainspring.errors import LockLost, StoreUnavailable
from mainspring.testing.simulation import SimulatedLoop, run_simulated


@pytest.mark.parametrize("error", [RuntimeError("unforeseen"), StoreUnavailable("away"), KeyError("executor")])
def test_what_is_repeated_goes_on_after_an_error(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise error

    async def main(loop: SimulatedLoop) -> bool:
        task = asyncio.create_task(background.repeat(turn, seconds=0.5, complaint="nothing was done"))
        await asyncio.sleep(3.25)
        done = task.done()
        task.cancel()
        return done

    assert not run_simulated(main)
    assert turns == 6, "at 0, 0.5, and after the longer pause from 1.5 on"
    [line] = caplog.messages
    assert line.startswith("nothing was done")


def test_an_unforeseen_error_is_told_with_its_trace_and_one_of_ours_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with background.guarded("no luck", shard=7):
        raise RuntimeError("unforeseen")
    with background.guarded("no luck", shard=7):
        raise LockLost("somebody else has it")
    unforeseen, ours = caplog.records
    assert (unforeseen.levelno, bool(unforeseen.exc_info)) == (logging.ERROR, True)
    assert (ours.levelno, ours.exc_info) == (logging.WARNING, None)
    assert getattr(ours, "fields", None) == {"reason": "somebody else has it", "shard": 7}


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_task_that_fails_or_never_begins_does_not_end_its_group(is_cancelled: bool) -> None:
    others: list[str] = []

    async def fail() -> None:
        raise RuntimeError("unforeseen")

    async def go_on() -> None:
        await asyncio.sleep(0)
        others.append("done")

    async with asyncio.TaskGroup() as tasks:
        failing = background.start(tasks, fail())
        background.start(tasks, go_on())
        if is_cancelled:
            failing.cancel()
    assert others == ["done"]


async def test_a_task_that_is_cancelled_ends() -> None:
    async with asyncio.TaskGroup() as tasks:
        task = background.start(tasks, asyncio.Event().wait())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
