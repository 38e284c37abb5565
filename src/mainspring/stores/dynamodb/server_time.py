"""What time it is at the database, from the Date headers of its answers.

DynamoDB has no clock to ask, but every answer is dated, in whole seconds. An answer dated D that was asked for at
monotonic instant a and arrived at b says that at some instant between a and b it was between D and D + 1 s there. The
intersection of what several answers say is much narrower than a second. Within it the machine's wall clock is
believed, because it is exact when it is right; outside it, the nearest end is taken. So a machine with a synchronised
clock reports the time to the millisecond, and a clock that is wrong or jumps cannot move time out of what the
database itself said.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

_RESOLUTION_MS: Final = 1000
_DRIFT: Final = 0.0002
"""How fast two clocks may drift apart: 200 parts in a million."""


class ServerTime:
    """The bounds of (server time - monotonic time), in milliseconds."""

    def __init__(self) -> None:
        self._low = float("-inf")
        self._high = float("inf")
        self._seen_at = 0.0

    def narrow(self, date: str, *, asked_at: float, answered_at: float) -> None:
        """Take in one answer. Instants are on the monotonic clock, in seconds."""
        dated = parsedate_to_datetime(date).replace(tzinfo=UTC).timestamp() * 1000
        drift = (answered_at - self._seen_at) * 1000 * _DRIFT
        low, high = dated - answered_at * 1000, dated + _RESOLUTION_MS - asked_at * 1000
        self._low, self._high = max(low, self._low - drift), min(high, self._high + drift)
        if self._low > self._high:  # one of the clocks has stepped: only the newest answer counts
            self._low, self._high = low, high
        self._seen_at = answered_at

    def estimate(self, *, wall_ms: int, monotonic: float) -> int:
        low, high = monotonic * 1000 + self._low, monotonic * 1000 + self._high
        return int(min(max(wall_ms, low), high))
