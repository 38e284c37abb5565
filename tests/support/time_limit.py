"""No test takes longer than five minutes: one that hangs fails, and tells where its threads and tasks are."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

import pytest

SECONDS: Final = 300


class TookTooLong(Exception):
    """Not a `TimeoutError`, which code under test catches."""


def _ring(_: int, frame: FrameType | None) -> None:
    faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
    if (loop := asyncio._get_running_loop()) is not None:
        for task in asyncio.all_tasks(loop):
            task.print_stack()
    signal.setitimer(signal.ITIMER_REAL, 10)  # in case somebody catches it
    raise TookTooLong(f"the test takes more than {SECONDS} seconds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
