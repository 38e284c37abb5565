"""What a run needs around it: quiet while it lasts, and an end for everything that still waits when it is over."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import CORO_CREATED, getcoroutinelocals, getcoroutinestate
from types import CoroutineType
from typing import Final

from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.node import Died

UNWINDINGS: Final = 200
"""How often a coroutine may wait again while it is being closed."""


@contextmanager
def quiet() -> Iterator[None]:
    """No logs, and no collector: both only cost time."""
    before, was_on = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        logging.disable(before)
        if was_on:
            gc.enable()


def unwind(loop: SimulatedLoop) -> None:
    """Close every coroutine that still waits, including those of the dead: nothing that happens now counts."""
    loop.set_exception_handler(lambda _loop, _context: None)
    asyncio._set_running_loop(loop)
    hook, sys.unraisablehook = (
        sys.unraisablehook,
        lambda _: None,
    )  # for those that want to wait while being closed
    try:
        while tasks := [task for task in asyncio.all_tasks(loop) if _is_open(task)]:
            for task in sorted(tasks, key=hash):
                _close(task)
    finally:
        sys.unraisablehook = hook
        asyncio._set_running_loop(None)
        loop.close()


def _is_open(task: asyncio.Task[object]) -> bool:
    coroutine = task.get_coro()
    return isinstance(coroutine, CoroutineType) and coroutine.cr_frame is not None


def _close(task: asyncio.Task[object]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert isinstance(coroutine, CoroutineType)
    if getcoroutinestate(coroutine) == CORO_CREATED:  # what it was to await has not begun, either
        for waiting in getcoroutinelocals(coroutine).values():
            if isinstance(waiting, CoroutineType):
                waiting.close()
    for _ in range(UNWINDINGS):
        if coroutine.cr_frame is None:
            return
        with suppress(Exception, Died, BaseExceptionGroup):
            coroutine.close()
    raise RuntimeError(f"Expected a coroutine that ends, got {coroutine}")
