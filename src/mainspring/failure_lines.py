"""A line in the log for each call that did not end well, with a bound: a receiver that is down for a day has thousands.

Every failure gets its line as long as there are few. When there are more than `LINES` to one destination within
`WINDOW_SECONDS`, or more than `LINES_IN_ALL`, the others are counted, and one line says how many were left out. So the
log of an instance has at most `LINES_IN_ALL` such lines in a window, and one for each destination that had too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from mainspring import telemetry

WINDOW_SECONDS: Final = 10.0
LINES: Final = 100
"""To one destination, in a window."""
LINES_IN_ALL: Final = 500
COUNTED_APART: Final = 100
"""Destinations whose left-out lines are counted each by itself. Those of all others are counted together."""


class FailureLines:
    """Those of one instance. `look` is called now and then, so that what was left out is told when all is quiet."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since = monotonic()
        self._lines: Counter[str] = Counter()
        self._written = 0
        self._left_out: Counter[str] = Counter()

    def tell(self, message: str, *, destination: str, reason: str, **fields: object) -> None:
        """One failure. Fields that are empty or None are not written."""
        self.look()
        if self._written >= LINES_IN_ALL or self._lines[destination] >= LINES:
            telemetry.failures_left_out.add()
            is_apart = destination in self._left_out or len(self._left_out) < COUNTED_APART
            self._left_out[destination if is_apart else ""] += 1
            return
        self._written += 1
        self._lines[destination] += 1
        told = {name: value for name, value in fields.items() if value is not None and value != ""}
        telemetry.warning(message, **told, destination=destination, reason=reason)

    def look(self) -> None:
        """Begin another window, if it is time."""
        now = self._monotonic()
        if now - self._since >= WINDOW_SECONDS:
            self.close()
            self._since = now

    def close(self) -> None:
        """Say how many were left out."""
        for destination, count in self._left_out.items():
            telemetry.warning("failures were left out of the log", destination=destination or "others", count=count)
        self._left_out.clear()
        self._lines.clear()
        self._written = 0
