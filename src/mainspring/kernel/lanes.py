"""One lane per destination: its queue of due timers, its slots, and its circuit.

The circuit: after enough failures in a row to reach the destination the lane is *open*: one probe at a time,
`circuit_seconds` apart. The first success lets two calls go, then four, until the limit is reached again.

The tier says what is known about the destination, and with whom the lane shares slots. A destination that has a call
and from which nothing is heard for a while, or whose last answer came after such a silence, is doubtful as long as that
lasts: a slot that is held is one that others do not have, whatever the answer will be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal

from mainspring.clock import Clock
from mainspring.kernel.carrier import Lane
from mainspring.kernel.settings import EngineSettings
from mainspring.kernel.shares import Member, Parties, Party, Tier
from mainspring.model import Timer
from mainspring.store import Position

DOUBT_FAILURES: Final = 3
"""This many failures in a row make a destination that has answered doubtful: one lost connection does not."""
TRUST_ANSWERS: Final = 8
"""This many prompt answers in a row make a destination trusted."""
SILENCE_SECONDS: Final = 2.0


class Queue:
    """The due timers of a lane, in the order of their instants. Large ones may have to wait for bytes, so they can be
    overtaken."""

    def __init__(self) -> None:
        self.small: deque[Timer] = deque()
        self.large: deque[Timer] = deque()

    def __len__(self) -> int:
        return len(self.small) + len(self.large)

    def first(self) -> deque[Timer]:
        """Where the first one is."""
        if not self.large or (self.small and self.small[0].due_at <= self.large[0].due_at):
            return self.small
        return self.large

    def last(self) -> deque[Timer]:
        """Where the last one is."""
        if not self.large or (self.small and self.small[-1].due_at > self.large[-1].due_at):
            return self.small
        return self.large

    def remove(self, is_leaving: Callable[[Timer], bool]) -> list[Timer]:
        """Take out all of a kind."""
        leaving: list[Timer] = []
        for rows in (self.small, self.large):
            found = [timer for timer in rows if is_leaving(timer)]
            if found:
                staying = [timer for timer in rows if not is_leaving(timer)]
                rows.clear()
                rows.extend(staying)
                leaving += found
        return leaving


class LargePart(Member):
    """A lane, as far as large rows are concerned. All counts in bytes."""

    is_large = True

    def __init__(self, lane: LaneState) -> None:
        super().__init__()
        self.lane = lane
        self.site = lane.site.large
        self.queued = 0
        """Kept by the window."""
        self.in_flight = 0
        """Until it is recorded. Kept by `Bytes`."""


class LaneState(Member):
    def __init__(self, lane: Lane, site: Party, *, clock: Clock, circuit_failures: int, circuit_seconds: float) -> None:
        super().__init__()
        self.name = lane.name
        self.site = site
        self.limit = lane.limit
        self._room = lane.room
        self._monotonic = clock.monotonic
        self._taking = lane.taking
        self._calls_nobody = lane.calls_nobody
        self.queue = Queue()
        self.large = LargePart(self)
        self.in_flight = 0
        self.turn: Literal["", "ready", "resting", "short"] = ""
        """Whether it waits for a slot that all lanes share, for one of its own, or for bytes or records."""
        self.turn_tier = Tier.UNTRIED
        """Among whom it waits. Both are kept by `Turns`."""
        self._allowed = lane.limit
        self._failures = 0
        self._prompt_answers = 0
        self._is_slow = False
        self._heard_at = 0.0
        """When it last answered, or got a call after a time without any."""
        self._open_until = 0.0
        self._circuit_failures = circuit_failures
        self._circuit_seconds = circuit_seconds

    @property
    def is_open(self) -> bool:
        return self._failures >= self._circuit_failures

    @property
    def tier(self) -> Tier:
        if self._calls_nobody:
            return Tier.TRUSTED
        answers = self._prompt_answers
        if answers and not self._is_slow and not (self.in_flight and self._is_silent):
            return Tier.TRUSTED if answers >= TRUST_ANSWERS else Tier.PROVEN
        return Tier.DOUBTFUL if self.in_flight or self._failures or self._is_slow else Tier.UNTRIED

    @property
    def idle(self) -> bool:
        """Nothing to do, and nobody holds it: it may be forgotten, and what is known about its destination with it.

        Without a queue it waits for nothing (`turns`), and has no bookmarks (`window`).
        """
        return not (self.in_flight or self.queue or self.large.in_flight)

    @property
    def _is_silent(self) -> bool:
        return self.in_flight > 0 and self._monotonic() - self._heard_at > SILENCE_SECONDS

    def free_slots(self, monotonic: float) -> int:
        """How many more calls its own limit and its circuit allow."""
        if self.is_open and monotonic < self._open_until:
            return 0
        own = max(0, min(self._allowed, self.limit) - self.in_flight)
        return own if self._room is None or not own else max(0, min(own, self._room()))

    def occupy(self, change: int) -> None:
        """It has taken a slot, or given one back."""
        if not self.in_flight:
            self._heard_at = self._monotonic()
        self.in_flight += change
        if self._taking is not None:
            self._taking(change)

    def record(self, *, reachable: bool, monotonic: float) -> bool:
        """Take note of whether the destination could be reached. True if that has just proven it."""
        if reachable:
            self._is_slow = self._is_silent
            self._prompt_answers = 0 if self._is_slow else self._prompt_answers + 1
            self._heard_at = monotonic
            self._failures = 0
            self._allowed = min(self.limit, max(1, self._allowed) * 2)
            return self._prompt_answers == 1
        self._failures += 1
        if self._failures >= DOUBT_FAILURES:
            self._prompt_answers = 0
        if self.is_open:
            self._allowed = 1
            self._open_until = monotonic + self._circuit_seconds
        return False


class Lanes:
    """All known lanes, those used last at the end."""

    def __init__(self, settings: EngineSettings, clock: Clock) -> None:
        self.parties = Parties()
        self._settings = settings
        self._clock = clock
        self._lanes: dict[str, LaneState] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[LaneState]:
        return iter(self._lanes.values())

    def get(self, name: str) -> LaneState | None:
        return self._lanes.get(name)

    def find(self, wanted: Lane) -> LaneState:
        lane = self._lanes.pop(wanted.name, None)
        if lane is None:
            self._make_room()
            lane = LaneState(
                wanted,
                self.parties.find(wanted.namespace, wanted.site),
                clock=self._clock,
                circuit_failures=self._settings.circuit_failures,
                circuit_seconds=self._settings.circuit_seconds,
            )
        self._lanes[wanted.name] = lane
        lane.limit = wanted.limit
        return lane

    def forget(self, lane: LaneState) -> None:
        del self._lanes[lane.name]

    def _make_room(self) -> None:
        """Keep lanes within twice the window. Those with nothing to do are forgotten, half a window at once.

        First those that are trusted least, and among these the ones used longest ago.
        """
        limit = self._settings.window_limit
        if max(len(self._lanes), len(self.parties)) < 2 * limit:
            return
        idle = sorted((lane for lane in self if lane.idle), key=lambda lane: lane.tier, reverse=True)
        for lane in idle[: max(0, len(self._lanes) - limit * 3 // 2)]:
            self.forget(lane)
        self.parties.keep({lane.site for lane in self})


def place_before(timer: Timer) -> Position:
    """A position before a row and after those before it: what is read after it begins with that row, or with one of
    nearly the same uuid. Any text will do: other programs may have written it."""
    return Position(timer.due_at, timer.uuid[:-1])
