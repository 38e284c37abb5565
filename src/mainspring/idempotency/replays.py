"""How many calls were replays, and what their ratio tells.

Many replays mean that somebody sends things twice: above 5 % in an hour there is a warning. None at all over a long
time, where things are redelivered now and then, may mean that keys never repeat because the payload carries a field
that changes with each delivery: there is one hint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Final

from mainspring import telemetry

WINDOW_SECONDS: Final = 3_600.0
WINDOW_CALLS: Final = 100
"""Fewer calls than this say nothing."""
WARNING_RATIO: Final = 0.05
SILENCE_SECONDS: Final = 7 * 86_400.0
SILENCE_CALLS: Final = 1_000

processed = telemetry.Counter(
    "mainspring_idempotency_processed_total", "Calls of idempotent work that ended with a result, by replay.", "replay"
)
_counts: Final = processed.values
_counts.update(yes=0, no=0)  # both are known beforehand, and a replay is too fast for a call


class Replays:
    """The counts of one processor. Shared by threads."""

    def __init__(self, scope: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.executed = 0
        self.replayed = 0
        self._scope = scope
        self._monotonic = monotonic
        self._lock = Lock()
        self._began_at = monotonic()
        self._window_ends_at = self._began_at + WINDOW_SECONDS
        self._window_start = (0, 0)
        self._has_hinted = False

    def count_run(self) -> None:
        with self._lock:
            self.executed += 1
            _counts["no"] += 1
            advice = None if self._monotonic() < self._window_ends_at else self._end_window()
        if advice is not None:
            advice()

    def count_replay(self) -> None:
        with self._lock:
            self.replayed += 1
            _counts["yes"] += 1
            advice = None if self._monotonic() < self._window_ends_at else self._end_window()
        if advice is not None:
            advice()

    def _end_window(self) -> Callable[[], None] | None:
        """What to say at the end of a window, after the lock is released."""
        executed, replayed = self.executed - self._window_start[0], self.replayed - self._window_start[1]
        self._window_start = (self.executed, self.replayed)
        now = self._monotonic()
        self._window_ends_at = now + WINDOW_SECONDS
        calls = executed + replayed
        if calls >= WINDOW_CALLS and replayed > WARNING_RATIO * calls:
            return partial(
                telemetry.warning,
                "more than 5 % of calls were replays: somebody is sending things twice",
                scope=self._scope,
                calls=calls,
                replays=replayed,
            )
        silent = self.replayed == 0 and self.executed >= SILENCE_CALLS and now - self._began_at >= SILENCE_SECONDS
        if silent and not self._has_hinted:
            self._has_hinted = True
            return partial(
                telemetry.info,
                "no call was ever a replay: does the payload carry a field that changes with each delivery?",
                scope=self._scope,
                calls=self.executed,
            )
        return None
