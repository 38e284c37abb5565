"""Named places at which a test can have this process die as if by `kill -9`.

    MAINSPRING_CRASH_AT=after-commit:3 mainspring serve      dies the third time it has committed

Off, which is always but in crash tests, `reach` is a function without a body. The variable is read once, at import:
it is no setting, and `Config` does not know it. Calls stand only where a crash leaves something to be sorted out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "MAINSPRING_CRASH_AT"

CREATE_STORED: Final = "create-stored"
"""A create is committed, its caller has no answer yet."""
ATTEMPT_BEGUN: Final = "attempt-begun"
"""An attempt is committed as in flight, nothing of it is sent."""
ATTEMPT_SENT: Final = "attempt-sent"
"""The receiver has answered, nothing of it is recorded."""
ATTEMPT_FINISHED: Final = "attempt-finished"
"""Outcomes are committed, memory does not know it yet."""
BEFORE_COMMIT: Final = "before-commit"
AFTER_COMMIT: Final = "after-commit"
"""A group is committed, none of its callers knows."""
SHARD_CLAIMED: Final = "shard-claimed"
SHARD_RELEASED: Final = "shard-released"
"""At a stop: shards are given back, the lease is not."""

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


def _armed(setting: str) -> Callable[[str], None]:
    wanted, _, count = setting.partition(":")
    left = int(count or "1")
    if wanted not in NAMES or left < 1:
        raise ValueError(f"Expected {VARIABLE} to be one of {', '.join(NAMES)}, with an optional :count; got {setting}")

    def die_here(name: str) -> None:
        nonlocal left
        if name == wanted:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return die_here


def _off(name: str) -> None:
    pass


reach: Final = _armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _off
"""The process has come to the place of this name."""
