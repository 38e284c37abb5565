"""Results for origins inside programs, found by the programs that know those origins.

Any instance may own the row of such a fetch, even a server, which knows no origins. It leaves the result: record and
row say so, and nothing is lost or counted as tried. Programs look for what was left for their origins, and offer it
themselves, wherever the row is. Several may do so at once: the record of the origin decides which of them takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from mainspring.background import guarded
from mainspring.clock import Clock
from mainspring.errors import Conflict, StoreUnavailable
from mainspring.fetches.local_origins import SCHEME
from mainspring.fetches.record import NAMESPACE
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.results import Results
from mainspring.fetches.rows import LEFT, OPEN_MS, ORIGIN
from mainspring.namespaces.service import NamespaceService
from mainspring.store import TimerFilter, TimerStore, timer_pages

PAGE: Final = 100


class LeftResults:
    def __init__(
        self,
        *,
        timers: TimerStore,
        registry: FetchRegistry,
        namespaces: NamespaceService,
        results: Results,
        clock: Clock,
    ) -> None:
        self._timers = timers
        self._registry = registry
        self._namespaces = namespaces
        self._results = results
        self._clock = clock

    async def find(self, names: Iterable[str]) -> tuple[set[str], bool]:
        """The reqIds of some results that were left for these origins; if there are more, those follow.

        With it, whether all shards have answered: others may hold more.
        """
        found: set[str] = set()
        all_answered = True
        for name in names:
            rows, answered = await self._rows(LEFT, name, PAGE)
            found.update(rows)
            all_answered &= answered
        return found, all_answered

    async def are_expected(self, names: Iterable[str]) -> bool:
        """Whether these origins are waiting for results, as far as is known."""
        for name in names:
            rows, answered = await self._rows(ORIGIN, name, 1)
            if rows or not answered:
                return True
        return False

    async def take(self, req_id: str) -> None:
        """Offer a result that was left, unless somebody has taken it, and put its row where it belongs."""
        try:
            async with self._results.found(req_id, SCHEME) as fetch:
                if fetch is None:
                    return
                after = None
                if fetch.outcome is not None and fetch.delivery.left:
                    after = await self._results.offer(fetch, fetch.outcome)
                await self._registry.move(after or fetch)
        except Conflict:  # its record cannot be read, which was logged when it was set aside
            return

    async def _rows(self, label: str, name: str, limit: int) -> tuple[list[str], bool]:
        """From the shards that answer, and whether all do. A shard that does not hides no results in others."""
        shards = (await self._namespaces.system(NAMESPACE)).shards
        where = TimerFilter(labels=((label, name),), due_to=self._clock.now_ms() + OPEN_MS)
        try:
            return await self._list(shards, where, limit), True
        except StoreUnavailable:
            found: list[str] = []

            async def ask(shard_id: int) -> None:
                with guarded("results left for origins were not looked for", shard=shard_id):
                    found.extend(await self._list([shard_id], where, limit))

            await asyncio.gather(*(ask(shard_id) for shard_id in shards))
            return found, False

    async def _list(self, shards: Sequence[int], where: TimerFilter, limit: int) -> list[str]:
        async for rows in timer_pages(self._timers, shards, where, limit=limit):
            return [row.timer_id for row in rows]
        return []
