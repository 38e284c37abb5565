"""Who shares what all have together: namespaces, in each of them sites, and the lanes of each site.

A name costs its owner nothing: with one wildcard in a zone, anybody has as many destinations as they like. So fairness
between lanes is not enough. What the lanes of a site take counts together, and so does what a namespace takes; at each
level the same rule holds: nobody takes more than it leaves to others, in the window as well as among the slots. The
bytes of large rows are shared separately from places and slots, by the same rules. Only a namespace that is alone may
have nearly everything. If one takes most of what is left, and then the next one does, and the next, soon nothing is
left: so of the last slots a namespace takes a quarter at most, whatever its destinations are.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from mainspring.store import Position

NAMESPACE_GENEROSITY: Final = 3
"""A namespace may have three times what it leaves, as there are few; a site or a lane no more than it leaves."""
LAST_MODESTY: Final = 3
"""Of the last slots, a namespace leaves three times as many as it has in all."""


class Tier(IntEnum):
    """What is known about a destination."""

    TRUSTED = 0
    """It has answered many times, and promptly."""
    PROVEN = 1
    """It answered promptly last time."""
    UNTRIED = 2
    DOUBTFUL = 3
    """It cannot be reached, or keeps us waiting."""

    def part_of(self, total: int) -> int:
        """How far lanes of this tier may fill the window. At least one place, if there is one."""
        return total - total * (0, 1, 2, 4)[self] // 16


MODESTY: Final = (1, 3, 3, 3)
"""By tier: a site whose destinations have yet to prove themselves leaves this many times what it takes of the slots."""


class Bookmark(NamedTuple):
    """Rows were left in the store from `place` on, the last of them when so many pages had been asked for."""

    place: Position
    pages: int

    def joined(self, other: Bookmark | None) -> Bookmark:
        return self if other is None else Bookmark(min(self.place, other.place), max(self.pages, other.pages))


def share(*, free: int, taken: int, generosity: int = 1, modesty: int = 1) -> int:
    """How many more somebody who has this many may take: up to what is then left, a multiple of it, or a fraction of
    it. One, if they have none."""
    return max(0, -((modesty * taken - generosity * free) // (generosity + modesty)))


class Member:
    """A lane, or a party of lanes: of all their rows, or of the large ones and their bytes."""

    is_large = False

    def __init__(self) -> None:
        self.weight = 0
        """What it has queued, and what it has besides while it has; of a party, the sum."""
        self.left: dict[tuple[int, Tier], Bookmark] = {}
        """For each shard and tier, from where on rows were left in the store. These are kept by the window."""


M = TypeVar("M", bound=Member)


class Scale(Generic[M]):
    """Which of several members is heaviest. Those that weigh nothing are not included."""

    def __init__(self) -> None:
        self.top = 0
        self._by_weight: defaultdict[int, dict[M, None]] = defaultdict(dict)

    def move(self, member: M, before: int) -> None:
        """The weight of a member has changed."""
        weight = member.weight
        if before:
            equals = self._by_weight[before]
            del equals[member]
            if not equals:
                del self._by_weight[before]
        if weight:
            self._by_weight[weight][member] = None
        if weight >= self.top:
            self.top = weight
        elif before == self.top and before not in self._by_weight:
            self.top = max(self._by_weight, default=0)

    @property
    def heaviest(self) -> M:
        return next(iter(self._by_weight[self.top]))


class Party(Member):
    """A namespace, a site in one, or all of them."""

    def __init__(self, around: Party | None = None, *, generosity: int = 1, is_large: bool = False) -> None:
        super().__init__()
        self.is_large = is_large
        outer = None if around is None else around.large
        self.large: Party = self if is_large else Party(outer, generosity=generosity, is_large=True)
        """The same one, as far as large rows are concerned: what it has then counts in bytes."""
        self.members: Scale[Member] = Scale()
        """Those that weigh something."""
        self.calls = [0] * len(Tier)
        """Those in flight, or their bytes, by the tier that their lane had when they began. Kept by `Slots`."""
        self.around: tuple[Party, ...] = () if around is None else (around, *around.around)
        """From the next one outwards to the one that is all of them."""
        self.is_alone = around is None
        self._generosity = generosity

    def share(self, *, free: int, taken: int, modesty: int = 1, kept: int = 0) -> int:
        """How many more it may take of something of which it has this many; `kept` of it are for whoever has few calls.

        One more than a lane: where there is little of it, a party has room for two lanes.
        """
        if free <= 0:
            return 0
        if self.is_alone:
            own = max(0, free - kept)
        else:
            own = share(free=free - kept, taken=max(0, taken - 1), generosity=self._generosity, modesty=modesty)
        return max(own, share(free=free, taken=max(0, sum(self.calls) - 1), modesty=LAST_MODESTY)) if kept else own

    def has_room(self, free: int, taken: int, modesty: int = 1, kept: int = 0) -> bool:
        """Whether its share is not nothing. Asked for every row: it is not worked out how much it is."""
        if free <= 0:
            return False
        of_own = free - kept
        if of_own > 0 if self.is_alone else modesty * max(0, taken - 1) < self._generosity * of_own:
            return True
        return kept > 0 and LAST_MODESTY * max(0, sum(self.calls) - 1) < free


class Parties:
    """All known parties. Those that have no lane left are forgotten with the lanes."""

    def __init__(self) -> None:
        self.all = Party()
        self._namespaces: dict[str, Party] = {}
        self._sites: dict[tuple[str, str], Party] = {}

    def __len__(self) -> int:
        return len(self._sites)

    def find(self, namespace: str, site: str) -> Party:
        """The site in this namespace."""
        party = self._sites.get((namespace, site))
        if party is None:
            around = self._namespaces.get(namespace)
            if around is None:
                around = self._namespaces[namespace] = Party(self.all, generosity=NAMESPACE_GENEROSITY)
                self._see_who_is_alone()
            party = self._sites[namespace, site] = Party(around)
        return party

    def keep(self, sites: set[Party]) -> None:
        """Forget all others."""
        self._sites = {key: site for key, site in self._sites.items() if site in sites}
        kept = {site.around[0] for site in sites}
        self._namespaces = {name: party for name, party in self._namespaces.items() if party in kept}
        self._see_who_is_alone()

    def _see_who_is_alone(self) -> None:
        for namespace in self._namespaces.values():
            namespace.is_alone = namespace.large.is_alone = len(self._namespaces) == 1
