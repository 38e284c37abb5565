"""One lane per destination: its queue of due timers, its slots, and its circuit.

The circuit: after enough failures in a row to reach the destination the lane is *open*: one probe at a time,
`circuit_seconds` apart. The first success lets two calls go, then four, until the limit is reached again.

The tier says how much of what all lanes share a lane may have. Proven lanes, whose destination answered last time, may
have all of it. The last quarter of slots and of the window is kept for them, so that dead destinations, however many,
cannot take everything; half of that quarter is also for the first call to a destination that was never tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from mainspring.kernel.carrier import Lane
from mainspring.model import Timer
from mainspring.store import Position

DOUBT_FAILURES: Final = 3
"""So many failures in a row make a destination doubtful that has answered: one lost connection does not."""


class Tier(IntEnum):
    """In the order in which lanes are served."""

    PROVEN = 0
    UNTRIED = 1
    DOUBTFUL = 2

    def part_of(self, total: int) -> int:
        """How much of a total lanes of this tier may take together with all others. At least one, if there is one."""
        return total - (0, total // 8, total // 4)[self]


class Mark(NamedTuple):
    """Rows were left in the store from `place` on, the last of them when so many pages had been asked for."""

    place: Position
    pages: int

    def joined(self, other: Mark | None) -> Mark:
        return self if other is None else Mark(min(self.place, other.place), max(self.pages, other.pages))


class LaneState:
    def __init__(self, lane: Lane, *, circuit_failures: int, circuit_seconds: float) -> None:
        self.name = lane.name
        self.limit = lane.limit
        self._room = lane.room
        self.queue: deque[Timer] = deque()
        self.weight = 0
        """What its queue costs the others, and whether it has a call besides. Both are kept by the window."""
        self.left: dict[int, Mark] = {}
        """For each shard, from where on rows of this lane were left in the store. Kept by the window."""
        self.in_flight = 0
        self.turn: Literal["", "ready", "resting"] = ""
        """Whether it waits for a slot of all lanes, or for one of its own."""
        self.turn_tier = Tier.UNTRIED
        """Among whom it waits. Both are kept by `Turns`."""
        self._allowed = lane.limit
        self._failures = 0
        self._proven = False
        self._open_until = 0.0
        self._circuit_failures = circuit_failures
        self._circuit_seconds = circuit_seconds

    @property
    def is_open(self) -> bool:
        return self._failures >= self._circuit_failures

    @property
    def tier(self) -> Tier:
        if self._proven and self._failures < DOUBT_FAILURES:
            return Tier.PROVEN
        return Tier.DOUBTFUL if self.in_flight or self._failures else Tier.UNTRIED

    @property
    def idle(self) -> bool:
        """Nothing to do: the lane may be forgotten, and with it what is known of its destination."""
        return not self.queue and not self.in_flight

    def fair_slots(self, *, taken: int, slots: int) -> int:
        """How many more of all slots this lane may take, of which so many are taken: no more than it leaves to others.

        A lane without a call gets one as long as its tier has any left, so one of all lanes always goes on.
        """
        tier = self.tier
        if taken >= tier.part_of(slots):
            return 0
        if tier is Tier.UNTRIED:
            return max(1, (Tier.DOUBTFUL.part_of(slots) - taken + 1) // 2)
        return (tier.part_of(slots) - taken - self.in_flight + 1) // 2

    def free_slots(self, monotonic: float) -> int:
        if self.is_open and monotonic < self._open_until:
            return 0
        limit = self.limit if self._room is None else min(self.limit, self._room())
        return max(0, min(self._allowed, limit) - self.in_flight)

    def record(self, *, reachable: bool, monotonic: float) -> None:
        """Take note of whether the destination could be reached."""
        if reachable:
            self._proven = True
            self._failures = 0
            self._allowed = min(self.limit, max(1, self._allowed) * 2)
            return
        self._failures += 1
        self._proven = self._proven and self._failures < DOUBT_FAILURES
        if self.is_open:
            self._allowed = 1
            self._open_until = monotonic + self._circuit_seconds


class Turns:
    """The lanes that wait. Ready ones wait for a slot of all lanes, in turn; resting ones for one of their own.

    A lane with a queue is in exactly one of the two. What makes a resting lane ready again is the end of a call of its
    own, or `rouse`, which whoever gives slots calls from time to time: circuits close and limits move by themselves.
    """

    def __init__(self) -> None:
        self._ready: Sequence[deque[LaneState]] = tuple(deque() for _ in Tier)
        self._resting: dict[str, LaneState] = {}

    def arrive(self, lane: LaneState) -> None:
        """It has something queued."""
        if not lane.turn:
            self._wait_for_slot(lane)

    def rouse(self, *lanes: LaneState) -> None:
        """Let these lanes, or all that rest, try again; among others, if their tier is another one by now."""
        for lane in lanes or tuple(self._resting.values()):
            if lane.turn == "resting":
                del self._resting[lane.name]
                self._wait_for_slot(lane)
            elif lane.turn == "ready" and lane.turn_tier is not lane.tier:
                self._wait_for_slot(lane)

    def next(self, tier: Tier) -> LaneState | None:
        """The lane whose turn it is; it then waits for nothing until it is told to."""
        waiting = self._ready[tier]
        while waiting:
            lane = waiting.popleft()
            if lane.turn != "ready" or lane.turn_tier is not tier:
                continue  # it waits elsewhere by now
            lane.turn = ""
            if not lane.queue:
                continue
            if lane.tier is tier:
                return lane
            self._wait_for_slot(lane)
        return None

    @property
    def any_resting(self) -> bool:
        return bool(self._resting)

    def count(self, tier: Tier) -> int:
        return len(self._ready[tier])

    def wait(self, lane: LaneState, *, resting: bool) -> None:
        if resting:
            lane.turn = "resting"
            self._resting[lane.name] = lane
        else:
            self._wait_for_slot(lane)

    def _wait_for_slot(self, lane: LaneState) -> None:
        lane.turn, lane.turn_tier = "ready", lane.tier
        self._ready[lane.tier].append(lane)


def place_before(timer: Timer) -> Position:
    """The place directly before a row: what is read behind it begins with that row."""
    number = int(timer.uuid, 16)
    return Position(timer.due_at, f"{number - 1:032x}" if number else "")
