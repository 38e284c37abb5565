"""A number of places for calls, shared by hosts as fairly as the engine's lanes: no host can take all of them.

A host takes places up to a limit of its own, and otherwise as a lane takes slots (`kernel.slots`): some are reserved
for each tier, and neither host nor site takes more than it leaves free. When none are left, hosts without a call stand
in line, one line for each tier: the next place goes to the first of them, not to a host that has places already.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Final, NamedTuple

from mainspring.clock import Clock
from mainspring.delivery.site import site_of
from mainspring.kernel.carrier import Lane
from mainspring.kernel.lanes import Lanes, LaneState
from mainspring.kernel.settings import EngineSettings
from mainspring.kernel.shares import Tier
from mainspring.kernel.slots import Slots

HOSTS_KEPT: Final = 4096
"""How many hosts are remembered although there is no call to them."""
PATIENCE_SECONDS: Final = 1.0
"""A host that has not asked for this long is no longer in line. The engine asks far more often."""
NO_CIRCUIT: Final = EngineSettings(window_limit=HOSTS_KEPT // 2, circuit_failures=2**31)
"""Calls are made at most once and fail by themselves: no circuit holds one back."""


def site_of_place(host: str) -> str:
    """The site of a host with its port, which a pool may precede. What is not a host is a site of its own."""
    name = host.rpartition(" ")[2].rpartition(":")[0] or host
    return site_of(name.strip("[]"))


class _Turn(NamedTuple):
    number: int
    asked_at: float


class Places:
    def __init__(self, limit: int, *, host_limit: int, clock: Clock) -> None:
        self.limit = limit
        self.host_limit = min(limit, host_limit)
        self.closed = False
        """Nothing more is taken."""
        self._clock = clock
        self._hosts = Lanes(NO_CIRCUIT, clock)
        self._slots = Slots(limit, self._hosts.parties.all, namespaces=False)
        self._held: defaultdict[str, list[tuple[int, Tier]]] = defaultdict(list)
        """Places of each host that were taken for whoever may call it, and what was known about it then."""
        self._lines: dict[Tier, dict[str, _Turn]] = {tier: {} for tier in Tier}
        """Who stands in line."""
        self._numbers = count()

    @property
    def taken(self) -> int:
        return len(self._slots)

    @property
    def free(self) -> int:
        return 0 if self.closed else max(0, self.limit - self.taken)

    def is_proven(self, host: str) -> bool:
        """Whether it answered last time."""
        return self._host(host).tier <= Tier.PROVEN

    def tier_of(self, host: str, *, in_place: bool = False) -> Tier:
        """What is known about a host; `in_place`: what was known before the held place was taken."""
        return self._held[host][-1][1] if in_place and host in self._held else self._host(host).tier

    def room(self, host: str) -> int:
        """How many more calls to a host there is room for now."""
        lane = self._host(host)
        return self._room(lane, lane.tier)

    def _room(self, lane: LaneState, tier: Tier) -> int:
        own = self.host_limit - lane.in_flight
        fair = self._slots.fair(lane, tier)
        if own <= 0 or fair <= 0 or not self.free:
            return 0
        return max(0, min(own, fair, self._slots.free(tier) - self._ahead_of(lane.name, tier)))

    def ask(self, host: str) -> int:
        """The same for whoever asks again until there is room: one without a call stands in line meanwhile."""
        lane = self._host(host)
        tier = lane.tier
        room = self._room(lane, tier)
        has_share = not room and self._slots.free(tier) > 0 and not self._slots.fair(lane, tier)
        if room or lane.in_flight or has_share or self.closed:
            self._leave_lines(host)
        else:
            line = self._lines[tier]
            number = line[host].number if host in line else next(self._numbers)
            self._leave_lines(host, but=line)
            line[host] = _Turn(number, self._clock.monotonic())
        return room

    @property
    def first_in_line(self) -> tuple[str, ...]:
        """Whose turn it is, longest wait first."""
        firsts = [(line[host].number, host) for line in self._lines.values() if (host := self._first(line))]
        return tuple(host for _, host in sorted(firsts))

    def take(self, host: str, *, in_place: bool = False) -> int:
        """Returns the number by which it is given back. `in_place`: next to a held one that will be given back."""
        lane = self._host(host)
        return self._take(lane, self.tier_of(host, in_place=in_place))

    def _take(self, lane: LaneState, tier: Tier) -> int:
        number = next(self._numbers)
        self._slots.take(number, lane, tier)
        self._leave_lines(lane.name)
        lane.occupy(1)
        return number

    def give_back(self, host: str, number: int, *, reachable: bool | None = None) -> None:
        """`reachable`: whether the host answered; None: it was not asked."""
        if reachable is not None:
            self.record(host, reachable=reachable)
        self._host(host).occupy(-1)
        self._slots.release(number)

    def record(self, host: str, *, reachable: bool) -> None:
        """Take note of whether it has answered."""
        self._host(host).record(reachable=reachable, monotonic=self._clock.monotonic())

    def hold(self, host: str, change: int) -> None:
        """Take a place (1), or give back one that was not used, or whose call has taken one of its own (-1)."""
        if change > 0:
            lane = self._host(host)
            tier = lane.tier
            self._held[host].append((self._take(lane, tier), tier))
            return
        number, _ = self._held[host].pop()
        if not self._held[host]:
            del self._held[host]
        self.give_back(host, number)

    def _host(self, host: str) -> LaneState:
        known = self._hosts.get(host)
        if known is not None:
            return known
        return self._hosts.find(Lane(host, self.host_limit, namespace="", site=site_of_place(host)))

    def _leave_lines(self, host: str, *, but: dict[str, _Turn] | None = None) -> None:
        for line in self._lines.values():
            if line is not but:
                line.pop(host, None)

    def _ahead_of(self, host: str, tier: Tier) -> int:
        """How many come before a host, at most: those in its own line, and those in other lines whose turn it is."""
        own = self._lines[tier]
        number = own[host].number if host in own else None
        ahead = 0
        for other, line in self._lines.items():
            first = self._first(line)
            if not first or first == host:
                continue
            if number is not None and line[first].number > number:
                continue
            if other is not tier:
                ahead += self._slots.free(other) > 0
            elif number is None:
                ahead += len(line)
            else:
                ahead += min(len(line) - 1, number - line[first].number)
        return ahead

    def _first(self, line: dict[str, _Turn]) -> str:
        while line:
            host, turn = next(iter(line.items()))
            if turn.asked_at + PATIENCE_SECONDS >= self._clock.monotonic():
                return host
            del line[host]
        return ""
