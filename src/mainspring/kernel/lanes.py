"""One lane per destination: its queue of due timers, its limit, and its circuit.

A lane takes only so many timers into memory. The rest stay in the store, and the lane remembers for each shard
from which place on there is more for it (`backlog`), so that a slow destination neither fills the memory nor
hides the timers of others. No lane may queue more than the free rest of the window, so there is always room
for one more lane.

The circuit: after enough failures in a row to reach the destination the lane is *open*: one probe at a time,
`circuit_seconds` apart. The first success lets two calls go, then four, until the limit is reached again.
"""

from __future__ import annotations

from collections import deque

from mainspring.kernel.carrier import Lane
from mainspring.model import Timer
from mainspring.store import Position


class LaneState:
    def __init__(self, lane: Lane, *, circuit_failures: int, circuit_seconds: float) -> None:
        self.name = lane.name
        self.limit = lane.limit
        self._room = lane.room
        self.queue: deque[Timer] = deque()
        self.in_flight = 0
        self.backlog: dict[int, Position] = {}
        self.refilling = False
        self.listed = False
        self._allowed = lane.limit
        self._failures = 0
        self._proven = False
        self._open_until = 0.0
        self._circuit_failures = circuit_failures
        self._circuit_seconds = circuit_seconds

    @property
    def is_open(self) -> bool:
        return self._failures >= self._circuit_failures

    def fair_slots(self, *, taken: int, slots: int) -> int:
        """How many more of all slots this lane may take, of which so many are taken.

        No lane takes more than it leaves to others. The last quarter is for destinations that answer, so that however
        many dead ones there are, they cannot take every slot; half of it also for a first call to one never tried.
        """
        if self._proven:
            return (slots - taken - self.in_flight + 1) // 2
        untried = not self.in_flight and not self._failures
        some = (slots * 3 // 4 - taken - self.in_flight + 1) // 2
        return 1 if some < 1 and untried and taken < slots * 7 // 8 else some

    @property
    def idle(self) -> bool:
        """Nothing to do: the lane may be forgotten, and with it what is known of its destination."""
        return not self.queue and not self.in_flight and not self.backlog

    def free_slots(self, monotonic: float) -> int:
        if self.is_open and monotonic < self._open_until:
            return 0
        limit = self.limit if self._room is None else min(self.limit, self._room())
        return max(0, min(self._allowed, limit) - self.in_flight)

    def withdraw(self, timer: Timer) -> bool:
        """Take a timer out of the queue. False if it does not wait there any more."""
        for place, queued in enumerate(self.queue):
            if queued is timer:
                del self.queue[place]
                return True
        return False

    def remember(self, shard_id: int, position: Position) -> None:
        """There is more for this lane in that shard, behind `position`."""
        known = self.backlog.get(shard_id)
        if known is None or position < known:
            self.backlog[shard_id] = position

    def record(self, *, reachable: bool, monotonic: float) -> None:
        """Take note of whether the destination could be reached."""
        self._proven = reachable
        if reachable:
            self._failures = 0
            self._allowed = min(self.limit, max(1, self._allowed) * 2)
            return
        self._failures += 1
        if self.is_open:
            self._allowed = 1
            self._open_until = monotonic + self._circuit_seconds


def place_before(timer: Timer) -> Position:
    """The place directly before a row: what is read behind it begins with that row."""
    number = int(timer.uuid, 16)
    return Position(timer.due_at, f"{number - 1:032x}" if number else "")
