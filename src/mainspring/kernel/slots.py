"""The slots for calls that all lanes share.

For each tier a few are reserved, whatever the others take: destinations that hang, whether dead, new, or answering
until just now, take none of these from the others. A few are enough for destinations that answer promptly. All other
slots are first come, first served, but no lane, site or namespace takes more than it leaves free, and a site whose
destinations are not trusted takes a third of that: so there are some for many sites. Of the last of them a namespace
takes a quarter at most: so there are some for many namespaces. The first call to a destination is one call.

Large rows also share bytes, by the same rules (`Bytes`), until their outcome is recorded. Small rows need none of
these, and so wait for no large one. The last quarter is for namespaces that have none, whatever their destinations are;
the last row takes what is left, and more, so that none is too large to go.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from mainspring.kernel.lanes import LaneState, LargePart
from mainspring.kernel.shares import MODESTY, Party, Tier, share

_ENOUGH_TO_KEEP: Final = 6
"""With this many slots in all, one is reserved for each tier."""
_ENOUGH_FOR_OTHERS: Final = 64
"""With this many, some are reserved for namespaces that have few."""


class Slots:
    def __init__(self, limit: int, everybody: Party, *, namespaces: bool = True) -> None:
        """`namespaces`: whether there are any to be fair between."""
        self._limit = limit
        self._everybody = everybody
        self._calls: dict[Hashable, tuple[LaneState | LargePart, Tier, int]] = {}
        self._taken = 0
        self._kept_for_others = limit // 16 if namespaces and limit >= _ENOUGH_FOR_OTHERS else 0
        small = int(limit >= _ENOUGH_TO_KEEP)
        self._kept = (max(small, limit // 16), max(small, limit // 16), max(small, limit // 16), limit // 32)
        self._unused = list(self._kept)
        """Of what is kept for each tier."""
        self._common = limit - sum(self._kept)
        """What is free for all tiers."""

    def __len__(self) -> int:
        """How many calls have some."""
        return len(self._calls)

    def take(self, call: Hashable, who: LaneState | LargePart, tier: Tier, size: int = 1) -> None:
        self._calls[call] = (who, tier, size)
        self._count(who, tier, size)

    def release(self, call: Hashable) -> None:
        """What a call has, if it has some."""
        if (known := self._calls.pop(call, None)) is not None:
            who, tier, size = known
            self._count(who, tier, -size)

    def _count(self, who: LaneState | LargePart, tier: Tier, change: int) -> None:
        site = who.site
        site.calls[tier] += change
        for party in site.around:
            party.calls[tier] += change
        self._taken += change
        unused, self._unused[tier] = self._unused[tier], max(0, self._kept[tier] - self._everybody.calls[tier])
        self._common += unused - self._unused[tier] - change

    def free(self, tier: Tier) -> int:
        """How many more this tier may take."""
        return self._common + self._unused[tier]

    def kept_for_others(self, tier: Tier) -> int:
        """How many of these are for namespaces that have few: the last ones of what all tiers share."""
        return max(0, min(self._kept_for_others, self._common))

    def has_room(self, site: Party, tier: Tier) -> bool:
        """Whether there is one for some lane of this site."""
        free = self.free(tier)
        return free > 0 and self._fair(site, tier, free) > 0

    def fair(self, lane: LaneState, tier: Tier) -> int:
        """How many more a lane may take."""
        free = self.free(tier)
        if free <= 0:
            return 0
        fair = min(share(free=free, taken=lane.in_flight), self._fair(lane.site, tier, free))
        return min(fair, 1) if tier is Tier.UNTRIED else fair

    def _fair(self, site: Party, tier: Tier, free: int) -> int:
        namespace = site.around[0]
        return min(
            site.share(free=free, taken=site.calls[tier], modesty=MODESTY[tier]),
            namespace.share(free=free, taken=namespace.calls[tier], kept=self.kept_for_others(tier)),
        )


class Bytes(Slots):
    """The bytes of large rows from their begin to their record."""

    def has_room_for(self, part: LargePart, tier: Tier, size: int) -> bool:
        """Whether a lane may make a call with a row of this size. A row larger than what is reserved for each tier
        counts as that much: it may be more than anybody ever leaves."""
        site, namespace = part.site, part.site.around[0]
        if not any(namespace.calls):
            return self._taken < self._limit
        free, need = self.free(tier) - self._limit // 4, min(size, max(1, self._limit // 16))
        if free < need:
            return False
        own = share(free=free, taken=part.in_flight) if part.in_flight else free
        of_site = site.share(free=free, taken=site.calls[tier], modesty=MODESTY[tier]) if site.calls[tier] else free
        kept = self.kept_for_others(tier)
        return need <= min(own, of_site, namespace.share(free=free, taken=namespace.calls[tier], kept=kept))

    def _count(self, who: LaneState | LargePart, tier: Tier, change: int) -> None:
        super()._count(who, tier, change)
        who.in_flight += change
