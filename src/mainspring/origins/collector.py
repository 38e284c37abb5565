"""Collects results that others have left for the origins of this program because they do not know them.

That happens beside a server, or beside a program with other classes, which may own the rows of our fetches. While
results are expected, this program looks, soon after something was asked for and then less often; otherwise only once in
a while. A program that is alone looks only until it has seen that nothing was left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from mainspring.background import guarded
from mainspring.fetches.left import LeftResults

FIRST_LOOK_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 15.0
TAKEN_AT_ONCE: Final = 32


class Collector:
    """`collect` runs as a task; `asked` tells it that something is to be expected."""

    def __init__(self, left: LeftResults, *, names: Collection[str], is_alone: Callable[[], bool]) -> None:
        """`names` of the origins, which may grow; `is_alone`: no other instance is known."""
        self._left = left
        self._names = names
        self._is_alone = is_alone
        self._asked = asyncio.Event()
        self._taking: dict[str, asyncio.Task[None]] = {}

    def asked(self) -> None:
        self._asked.set()

    async def collect(self) -> None:
        """Runs until it is cancelled."""
        pause = FIRST_LOOK_SECONDS
        all_taken = False
        async with asyncio.TaskGroup() as tasks:
            while True:
                pause = FIRST_LOOK_SECONDS if self._asked.is_set() else min(pause * 2, LOOK_SECONDS)
                self._asked.clear()
                alone = self._is_alone()
                # If it is alone and has taken everything, there is nobody to leave more.
                all_taken = (alone and all_taken) or not await self._found(tasks)
                if alone or not all_taken or await self._are_expected():
                    await asyncio.sleep(pause)
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(IDLE_SECONDS):
                            await self._asked.wait()

    async def _found(self, tasks: asyncio.TaskGroup) -> bool:
        """Begin to take what was left; whether there was something, or may have been."""
        found: set[str] = set()
        all_answered = False
        with guarded("results left for origins were not looked for"):
            found, all_answered = await self._left.find(tuple(self._names))
        for req_id in sorted(found - self._taking.keys()):
            if len(self._taking) < TAKEN_AT_ONCE:
                self._taking[req_id] = tasks.create_task(self._take(req_id))
        return bool(found) or not all_answered

    async def _are_expected(self) -> bool:
        with guarded("results expected by origins were not looked for"):
            return await self._left.are_expected(tuple(self._names))
        return True

    async def _take(self, req_id: str) -> None:
        try:
            with guarded("a result left for an origin was not taken", req_id=req_id):
                await self._left.take(req_id)
        finally:
            del self._taking[req_id]
