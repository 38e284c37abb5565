"""How far a look-up is believed whose lag has a bound: until an order is seen that it does not find.

That is kept in the store, so a restart does not forget it and other instances know it. When orders can be found again,
it is believed for attempts that began after that; earlier ones are for a person.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mainspring import Mainspring
from mainspring.errors import Conflict
from telecom_cart.provider import PlacedOrder, Provider

DOUBT: Final = "Orders of this shop are not found by our references: its look-up is not what was declared"


@dataclass(frozen=True)
class Seen:
    """Whether the last order could be found by its reference, and how often that has become otherwise."""

    is_findable: bool
    turn: int = 1


class Trust:
    def __init__(self, ms: Mainspring, provider: Provider) -> None:
        self._ms = ms
        self._provider = provider
        self._seen = ms.records("lookups", Seen)
        """By place. None: no order was ever seen that could not be found."""

    async def note(self, placed: PlacedOrder) -> None:
        """An order was placed."""
        while self._has_a_bound:
            found = await self._seen.get(self._provider.place)
            if placed.is_findable == (found is None or found.value.is_findable):
                return
            with suppress(Conflict):
                seen = Seen(placed.is_findable, 1 if found is None else found.value.turn + 1)
                await self._seen.put(self._provider.place, seen, expect=found.version if found else 0)
                return

    async def turn(self) -> int:
        """What an attempt that begins now remembers of it. No time: clocks are set."""
        found = await self._seen.get(self._provider.place) if self._has_a_bound else None
        return 0 if found is None else found.value.turn

    async def believes(self, *, since: int) -> bool:
        """Whether an order would be seen that was asked for since that turn, if there was one."""
        found = await self._seen.get(self._provider.place) if self._has_a_bound else None
        return found is None or (found.value.is_findable and found.value.turn == since)

    async def doubt(self) -> str:
        """What an operator is told."""
        found = await self._seen.get(self._provider.place) if self._has_a_bound else None
        return "" if found is None or found.value.is_findable else DOUBT

    @property
    def _has_a_bound(self) -> bool:
        return self._provider.lookup.lag_seconds is not None
