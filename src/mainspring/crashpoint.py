"""Named places at which a test can make this process die as if by `kill -9`.

    MAINSPRING_CRASH_AT=after-commit:3 mainspring serve      dies the third time it has committed

When off, which is always except in crash tests, reaching a place does nothing. The variable is read once, at import:
it is not a setting, and `Config` does not know it. Calls are only where a crash leaves something to be sorted out.
A simulation, in which many processes are one, listens instead (`listening`), and decides who dies.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "MAINSPRING_CRASH_AT"

CREATE_STORED: Final = "create-stored"
"""A create is committed, its caller has no answer yet."""
ATTEMPT_BEGUN: Final = "attempt-begun"
"""An attempt is committed as in flight; nothing is sent yet."""
ATTEMPT_SENT: Final = "attempt-sent"
"""The receiver has answered; nothing is recorded yet."""
ATTEMPT_FINISHED: Final = "attempt-finished"
"""Outcomes are committed, memory does not know it yet."""
BEFORE_COMMIT: Final = "before-commit"
AFTER_COMMIT: Final = "after-commit"
"""A group is committed, none of its callers knows."""
SHARD_CLAIMED: Final = "shard-claimed"
SHARD_RELEASED: Final = "shard-released"
"""At a stop: shards are given back, the lease is not."""
FETCH_RECORDED: Final = "fetch-recorded"
"""A fetch has its record, but no row that would make anybody look at it."""
FETCH_DISPATCHED: Final = "fetch-dispatched"
"""A fetch is committed as running; nothing is sent yet."""
FETCH_ANSWERED: Final = "fetch-answered"
"""The target has answered; nothing is recorded yet."""
FETCH_ENDED: Final = "fetch-ended"
"""The result of a fetch is committed; neither its row nor its origin knows yet."""
FETCH_DELIVERED: Final = "fetch-delivered"
"""The origin has taken the result; that is not recorded yet."""
RUNS_RECORDED: Final = "runs-recorded"
"""Instants of a job are in the ledger, but there are no rows by which they would be run."""
CLOCK_CARRIED: Final = "clock-carried"
"""Runs have their rows; the clock of their job does not know it."""
RUN_ENDED: Final = "run-ended"
"""The ledger says how a run ended; its row does not know."""
ORIGIN_HANDLED: Final = "origin-handled"
"""A method of an origin has returned; nothing it did is committed yet."""
ORIGIN_KEPT: Final = "origin-kept"
"""The fetches that it asked for are in the outbox, its changes are not committed."""
ORIGIN_COMMITTED: Final = "origin-committed"
"""Its changes are committed; nobody knows, and the fetches are not created."""
ORIGIN_CREATED: Final = "origin-created"
"""The fetches are created, and still in the outbox."""

NAMES: Final = (
    CREATE_STORED,
    ATTEMPT_BEGUN,
    ATTEMPT_SENT,
    ATTEMPT_FINISHED,
    BEFORE_COMMIT,
    AFTER_COMMIT,
    SHARD_CLAIMED,
    SHARD_RELEASED,
)
FETCH_NAMES: Final = (FETCH_RECORDED, FETCH_DISPATCHED, FETCH_ANSWERED, FETCH_ENDED, FETCH_DELIVERED)
JOB_NAMES: Final = (RUNS_RECORDED, CLOCK_CARRIED, RUN_ENDED)
ORIGIN_NAMES: Final = (ORIGIN_HANDLED, ORIGIN_KEPT, ORIGIN_COMMITTED, ORIGIN_CREATED)
_ALL: Final = NAMES + FETCH_NAMES + JOB_NAMES + ORIGIN_NAMES


def _armed(setting: str) -> Callable[[str], None]:
    wanted, _, count = setting.partition(":")
    left = int(count or "1")
    if wanted not in _ALL or left < 1:
        raise ValueError(f"Expected {VARIABLE} to be one of {', '.join(_ALL)}, with an optional :count; got {setting}")

    def die_here(name: str) -> None:
        nonlocal left
        if name == wanted:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return die_here


def _off(name: str) -> None:
    pass


_listeners: Final = [_armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _off]


def reach(name: str) -> None:
    """The process has come to the place of this name."""
    _listeners[-1](name)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Tell `listener` about every place that is reached, as long as the block lasts. What it raises is passed on."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()
