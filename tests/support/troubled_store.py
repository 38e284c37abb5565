"""A store of which a part is in trouble: shards that do not answer, rows that cannot be written, lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.model import Shard
from mainspring.store import START, Begin, DuePage, Finish, Position, Put, Remove, Store, Verdict

Item = TypeVar("Item", Put | Remove, Begin, Finish)


class TroubledStore:
    """Stands before any store. What is not named here goes through."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.bad_shards: set[int] = set()
        """Their items are unavailable, and whoever reads them learns it. A call for nothing else fails, as in any store
        (`stores.partly`)."""
        self.read_only: set[int] = set()
        """They can be read, and nobody can claim or release them, or write an attempt."""
        self.hang_seconds = 0.0
        """How long it takes to find out."""
        self.fault: Callable[[str, object], Exception | Verdict | None] = lambda _verb, _item: None
        """What happens to an item of a write, or to a shard that is read: an exception for the whole call, a verdict,
        or nothing."""
        self.lose_answers: set[str] = set()
        """Verbs that write, and whose answers get lost."""
        self.delays: dict[str, float] = {}
        self.rows_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._batch("begin", items, lambda item: item.key.shard_id)

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._batch("finish", items, lambda item: item.key.shard_id)

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._batch("claim_shards", claims, lambda claim: claim.shard_id)

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._batch("release_shards", claims, lambda claim: claim.shard_id)

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        await self._hang(shard_ids)
        for shard_id in shard_ids:
            if isinstance(fault := self.fault("shards", shard_id), Exception):
                raise fault
        found = await self._inner.shards(shard_ids)
        self._raise_if_all_in(self.bad_shards, shard_ids)
        return [None if s is None or s.shard_id in self.bad_shards else s for s in found]

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        await self._hang(shard_ids)
        found = await self._inner.next_due(shard_ids)
        return [START.due_at if s in self.bad_shards else due for s, due in zip(shard_ids, found, strict=True)]

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        await self._hang([shard_id])
        if shard_id in self.bad_shards:
            raise StoreUnavailable("simulated: a partition is away")
        page = await self._inner.load_due(shard_id, until=until, after=after, limit=limit)
        self.rows_read += len(page.timers)
        return page

    async def _batch(self, verb: str, items: Sequence[Any], shard_of: Callable[[Any], int]) -> list[Verdict]:
        await asyncio.sleep(self.delays.get(verb, 0.0))
        await self._hang([shard_of(item) for item in items])
        bad = self.bad_shards | self.read_only
        self._raise_if_all_in(bad, [shard_of(item) for item in items])
        verdicts: dict[int, Verdict] = {}
        for place, item in enumerate(items):
            fault = Verdict.UNAVAILABLE if shard_of(item) in bad else self.fault(verb, item)
            if isinstance(fault, Exception):
                raise fault
            if fault is not None:
                verdicts[place] = fault
        good = [place for place in range(len(items)) if place not in verdicts]
        answers = await getattr(self._inner, verb)([items[place] for place in good])
        if verb in self.lose_answers:
            raise StoreUnavailable("simulated: the answer was lost")
        verdicts.update(zip(good, answers, strict=True))
        return [verdicts[place] for place in range(len(items))]

    def _raise_if_all_in(self, bad: set[int], shard_ids: Sequence[int]) -> None:
        if shard_ids and bad.issuperset(shard_ids):
            raise StoreUnavailable("simulated: a partition is away")

    async def _hang(self, shard_ids: Sequence[int]) -> None:
        if self.bad_shards.intersection(shard_ids):
            await asyncio.sleep(self.hang_seconds)
