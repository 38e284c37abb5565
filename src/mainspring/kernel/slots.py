"""The slots for calls that all lanes share.

For each tier a few are kept, whatever the others take: destinations that hang, be they dead, new, or such that answered
until just now, take none of these from the others. A few are enough for destinations that answer promptly. All other
slots go to who comes first, but nobody takes more than it leaves free, neither lane, nor site, nor namespace, and a
site whose destinations are not trusted a third of that: so there are some for many sites. Of the last of them a
namespace takes a quarter at most: so there are some for many namespaces. The first call to a destination is one.

Where rows are large there are fewer slots, as many as fit into the bytes for calls at their average size, and all of
this holds of those.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from mainspring.kernel.lanes import LaneState
from mainspring.kernel.shares import Party, Tier, fitting, share

_ENOUGH_TO_KEEP: Final = 6
"""So many slots in all, and one is kept for each tier."""
_ENOUGH_FOR_OTHERS: Final = 64
"""So many, and some are kept for namespaces that have few."""


class Slots:
    def __init__(self, limit: int, everybody: Party, *, namespaces: bool = True, byte_limit: int = 0) -> None:
        """`namespaces`: whether there are any between whom to be fair. Without a limit in bytes, nobody says how large
        calls are."""
        self._limit = limit
        self._namespaces = namespaces
        self._byte_limit = byte_limit
        self._everybody = everybody
        self._calls: dict[Hashable, tuple[LaneState, Tier, int]] = {}
        self._bytes = 0
        self._divide(limit)

    def _divide(self, total: int) -> None:
        self._total = total
        self._kept_for_others = total // 16 if self._namespaces and total >= _ENOUGH_FOR_OTHERS else 0
        small = int(total >= _ENOUGH_TO_KEEP)
        self._kept = (max(small, total // 16), max(small, total // 16), max(small, total // 16), total // 32)
        self._unused = [max(0, kept - calls) for kept, calls in zip(self._kept, self._everybody.calls, strict=True)]
        """Of what is kept for each tier."""

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._calls)

    def take(self, call: Hashable, lane: LaneState, tier: Tier, *, size: int = 0) -> None:
        self._calls[call] = (lane, tier, size)
        self._count(lane, tier, 1, size)

    def release(self, call: Hashable) -> None:
        lane, tier, size = self._calls.pop(call)
        self._count(lane, tier, -1, -size)

    def _count(self, lane: LaneState, tier: Tier, change: int, size: int) -> None:
        for party in (lane.site, *lane.site.around):
            party.calls[tier] += change
        self._bytes += size
        total = fitting(self._limit, byte_limit=self._byte_limit, count=len(self._calls), size=self._bytes)
        if total != self._total:
            self._divide(total)
        else:
            self._unused[tier] = max(0, self._kept[tier] - self._everybody.calls[tier])

    def free(self, tier: Tier) -> int:
        """How many more this tier may take."""
        return self._total - len(self._calls) - sum(self._unused) + self._unused[tier]

    def kept_for_others(self, tier: Tier) -> int:
        """How many of these are for namespaces that have few: of what all tiers share, the last ones."""
        return max(0, min(self._kept_for_others, self.free(tier) - self._unused[tier]))

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
            site.share(free=free, taken=site.calls[tier], modesty=tier.modesty),
            namespace.share(free=free, taken=namespace.calls[tier], kept=self.kept_for_others(tier)),
        )
