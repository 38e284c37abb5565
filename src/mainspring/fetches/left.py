"""Results for origins inside programs, found by the programs that know those origins.

Any instance may own the row of such a fetch, also a server, which knows no origins. It leaves the result: record and
row say so, and nothing is lost or counted as tried. Programs look for what was left for their origins, and offer it
themselves, wherever the row is. Several may do so at once: the record of the origin decides which of them takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mainspring.clock import Clock
from mainspring.fetches.ledger import Ledger
from mainspring.fetches.origins import Origins
from mainspring.fetches.record import NAMESPACE
from mainspring.fetches.rows import LEFT, ORIGIN
from mainspring.store import START, TimerFilter, TimerStore
from mainspring.timers.namespaces import NamespaceService

PAGE: Final = 100
WINDOW_MS: Final = 3_600_000
"""Rows of fetches whose result nobody has taken yet are due within it; those that are only kept come behind."""


class LeftResults:
    def __init__(
        self, *, timers: TimerStore, ledger: Ledger, namespaces: NamespaceService, origins: Origins, clock: Clock
    ) -> None:
        self._timers = timers
        self._ledger = ledger
        self._namespaces = namespaces
        self._origins = origins
        self._clock = clock

    async def find(self, names: Iterable[str]) -> set[str]:
        """The reqIds of some results that were left for these origins; if there are more, those follow."""
        return {req_id for name in names for req_id in await self._rows(LEFT, name, PAGE)}

    async def are_expected(self, names: Iterable[str]) -> bool:
        """Whether these origins wait for results."""
        for name in names:
            if await self._rows(ORIGIN, name, 1):
                return True
        return False

    async def take(self, req_id: str) -> None:
        """Offer a result that was left, unless somebody has taken it, and put its row where it belongs."""
        fetch = await self._ledger.find(req_id)
        if fetch is None:
            return
        if fetch.outcome is not None and fetch.delivery.left:
            fetch = await self._origins.offer(fetch, fetch.outcome) or fetch
        await self._ledger.move(fetch)

    async def _rows(self, label: str, name: str, limit: int) -> list[str]:
        shards = (await self._namespaces.system(NAMESPACE)).shards
        where = TimerFilter(labels=((label, name),), due_to=self._clock.now_ms() + WINDOW_MS)
        rows = await self._timers.list_timers(shards, where, after=START, limit=limit)
        return [row.timer_id for row in rows]
