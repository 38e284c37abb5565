"""Which shard belongs to which instance: rendezvous hashing, so every instance comes to the same answer by itself.

Each shard goes to the instance with the highest score. When one joins or leaves, only its own shards move, and only
they are looked at: the scores of a joining instance, or those of shards whose instance has left. What is left to do
for many shards and many instances is done in slices, and others have their turn in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

SLICE: Final = 2_000
"""Scores between two turns of the event loop: about two milliseconds. A shard counts as one, even if it has none."""


class _Place(NamedTuple):
    """Compared as a tuple: the highest wins."""

    score: bytes
    instance: str


class Placement:
    def __init__(self) -> None:
        self._instances: tuple[str, ...] = ()
        self._places: dict[int, _Place] = {}
        self._shards_of: dict[str, list[int]] = {}
        """Those that were asked for since the last change: among many shards, looking for them takes its time."""
        self._scored = 0

    @property
    def owners(self) -> dict[int, str]:
        return {shard_id: place.instance for shard_id, place in self._places.items()}

    @property
    def shards(self) -> list[int]:
        return list(self._places)

    def owner_of(self, shard_id: int) -> str:
        """Empty: of nobody."""
        place = self._places.get(shard_id)
        return "" if place is None else place.instance

    def shards_of(self, instance: str) -> list[int]:
        if instance not in self._shards_of:
            found = [shard_id for shard_id, place in self._places.items() if place.instance == instance]
            self._shards_of[instance] = found
        return self._shards_of[instance]

    async def follow(self, shards: Sequence[int], instances: Sequence[str]) -> None:
        """Place these shards on these instances. Until that is done, all are where they were before."""
        known, new = self._places, tuple(sorted(instances))
        joined = [instance for instance in new if instance not in self._instances]
        staying = set(new)
        places: dict[int, _Place] = {}
        for shard_id in shards if new else ():
            place = known.get(shard_id)
            if place is not None and place.instance in staying:
                best = max((place, *await self._scores(shard_id, joined)))
            else:
                best = max(await self._scores(shard_id, new))
            places[shard_id] = best
        self._adopt(new, places)

    def _adopt(self, instances: tuple[str, ...], places: dict[int, _Place]) -> None:
        self._instances, self._places, self._shards_of = instances, places, {}

    async def _scores(self, shard_id: int, instances: Sequence[str]) -> list[_Place]:
        self._scored += len(instances) + 1
        if self._scored >= SLICE:
            self._scored = 0
            await asyncio.sleep(0)
        return [_Place(_score(shard_id, instance), instance) for instance in instances]


def _score(shard_id: int, instance: str) -> bytes:
    return blake2b(f"{shard_id}/{instance}".encode(), digest_size=8).digest()
