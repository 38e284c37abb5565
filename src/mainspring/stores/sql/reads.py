"""A bounded number of reads at a time, each run to its end.

A caller that is cancelled stops waiting, but its read goes on: a database library that is interrupted in the middle of
an answer leaves behind an unusable connection, and opens another one to tell the server. Reads are short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.stores.sql.pool import CALL_SECONDS

T = TypeVar("T")


class Reads:
    def __init__(self, *, width: int) -> None:
        self._free = asyncio.Semaphore(width)
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise StoreUnavailable(f"Expected a free connection within {CALL_SECONDS} s, got none") from error
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        runner = asyncio.create_task(self._run(read, answer))
        self._running.add(runner)
        runner.add_done_callback(self._running.discard)
        return await answer

    async def close(self) -> None:
        """Wait for the reads that were begun."""
        while self._running:
            await asyncio.wait(self._running)

    async def _run(self, read: Callable[[], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        try:
            found = await read()
        except Exception as error:  # noqa: BLE001  (handed to the caller)
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(found)
        finally:
            self._free.release()
