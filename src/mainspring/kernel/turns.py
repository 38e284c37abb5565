"""The lanes that wait, each with something queued for one thing:

    ready     a slot of all lanes; they get it in turn
    resting   a slot of its own: a call of its own ends, a circuit closes, a limit moves
    short     what else a row needs: bytes if it is large, or records of others. `relieve` tells that some came back

A lane with a queue is in exactly one of the three, and one without in none: so a lane with nothing to do can be
forgotten, and nothing is left of it here. Circuits and limits move by themselves: so whoever gives slots lets all that
rest or are short try again from time to time (`rouse`). It is the turn of a namespace first, then of a site there, and
then of one of its lanes, so that many lanes are no advantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal

from mainspring.kernel.lanes import LaneState
from mainspring.kernel.shares import MODESTY, Party, Tier

RELIEVED: Final = 16
"""How many lanes that are short try again when somebody gives something back."""


class Turns:
    def __init__(self) -> None:
        self._ready: Sequence[_Rota] = tuple(_Rota(tier) for tier in Tier)
        self._resting: dict[LaneState, None] = {}
        """Those that are short, too."""
        self._short: dict[LaneState, None] = {}

    def arrive(self, lane: LaneState) -> None:
        """It has something queued, or something different from before."""
        if not lane.turn:
            self._wait_for_slot(lane)
        elif lane.turn == "short":
            self.rouse(lane)

    def leave(self, lane: LaneState) -> None:
        """It no longer has anything queued, or waits for something else from now on."""
        if lane.turn == "ready":
            self._ready[lane.turn_tier].remove(lane)
        self._resting.pop(lane, None)
        self._short.pop(lane, None)
        lane.turn = ""

    def rouse(self, *lanes: LaneState) -> None:
        """Let these lanes, or all that rest, try again; in another group, if their tier has changed by now."""
        for lane in lanes or tuple(self._resting):
            if lane.turn in ("resting", "short") or (lane.turn == "ready" and lane.turn_tier is not lane.tier):
                self.leave(lane)
                self._wait_for_slot(lane)

    def relieve(self) -> bool:
        """Somebody has given back what lanes may be short of. A few try again, those that have waited longest first.
        Returns whether there are any."""
        if not self._short:
            return False
        self.rouse(*tuple(islice(self._short, RELIEVED)))
        return True

    def next(self, tier: Tier, *, free: int, kept: int) -> LaneState | None:
        """The lane whose turn it is, given how many slots are free and how many of these are for namespaces that have
        few; after that it waits for nothing until it is told to."""
        while (lane := self._ready[tier].next(free, kept)) is not None:
            lane.turn = ""
            if lane.tier is tier:
                return lane
            self._wait_for_slot(lane)
        return None

    @property
    def any_resting(self) -> bool:
        return bool(self._resting)

    def count(self, tier: Tier) -> int:
        return self._ready[tier].size

    def wait(self, lane: LaneState, turn: Literal["ready", "resting", "short"]) -> None:
        if turn == "ready":
            self._wait_for_slot(lane)
            return
        lane.turn = turn
        self._resting[lane] = None
        if turn == "short":
            self._short[lane] = None

    def _wait_for_slot(self, lane: LaneState) -> None:
        lane.turn, lane.turn_tier = "ready", lane.tier
        self._ready[lane.turn_tier].append(lane)


class _Rota:
    def __init__(self, tier: Tier) -> None:
        self.size = 0
        self._tier = tier
        self._lanes: dict[Party, dict[Party, dict[LaneState, None]]] = {}
        """By namespace and site; the one that had its turn last is behind the others."""

    def append(self, lane: LaneState) -> None:
        self._lanes.setdefault(lane.site.around[0], {}).setdefault(lane.site, {})[lane] = None
        self.size += 1

    def remove(self, lane: LaneState) -> None:
        namespace, site = lane.site.around[0], lane.site
        sites = self._lanes[namespace]
        del sites[site][lane]
        if not sites[site]:
            del sites[site]
        if not sites:
            del self._lanes[namespace]
        self.size -= 1

    def next(self, free: int, kept: int) -> LaneState | None:
        """Passes over parties that have their share of the slots."""
        for namespace, sites in self._lanes.items():
            if namespace.has_room(free=free, taken=namespace.calls[self._tier], kept=kept):
                for site, lanes in sites.items():
                    if site.has_room(free=free, taken=site.calls[self._tier], modesty=MODESTY[self._tier]):
                        lane = next(iter(lanes))
                        self.remove(lane)
                        self._put_last(namespace, site)
                        return lane
        return None

    def _put_last(self, namespace: Party, site: Party) -> None:
        if (sites := self._lanes.pop(namespace, None)) is not None:
            self._lanes[namespace] = sites
            if (lanes := sites.pop(site, None)) is not None:
                sites[site] = lanes
