"""One committer for each partition that something is written to.

A partition takes one conditional write after another, at a few milliseconds each, and two at once only disturb each
other. So every partition has one committer, with one group on its way. What waits is counted for all of them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from mainspring.stores.committer import Admission, Committer, together
from mainspring.stores.grouping import Answer, Item, Items, Room

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")

PARTITIONS_AT_ONCE: Final = 64


async def all_of(waits: Sequence[Awaitable[T]]) -> list[T]:
    """Every result, after all have ended; or the first error."""
    results = await asyncio.gather(*waits, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


class Committers(Generic[Key, Item, Answer]):
    """Hands groups to `commit`, which returns an answer for every item, or raises for the whole group."""

    def __init__(self, commit: Callable[[Key, list[Item]], Awaitable[list[Answer]]], *, room: Room) -> None:
        self._commit = commit
        self._room = room
        self._admission = Admission()
        self._slots = asyncio.Semaphore(PARTITIONS_AT_ONCE)
        self._committers: dict[Key, Committer[Items[Item, Answer]]] = {}

    async def submit(self, key: Key, items: Sequence[Item], *, size: int = 0) -> list[Answer]:
        """The answers to these items, which stay together and in order after what was submitted before."""
        committer = self._committers.get(key) or self._committer(key)
        request: Items[Item, Answer] = Items(items, size)
        answered = committer.put(request)
        self._committers[key] = committer  # until it is idle
        await answered
        return request.answer

    def _committer(self, key: Key) -> Committer[Items[Item, Answer]]:
        return Committer(
            together(partial(self._write, key)),
            room=self._room,
            admission=self._admission,
            when_idle=partial(self._committers.pop, key),
        )

    async def close(self) -> None:
        """Wait for everything that was admitted."""
        self._admission.close()
        for committer in list(self._committers.values()):
            await committer.close()

    async def _write(self, key: Key, items: list[Item]) -> list[Answer]:
        async with self._slots:
            return await self._commit(key, items)
