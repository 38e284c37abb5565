"""One at a time per user: operations in the order in which they came, users beside each other, both bounded.

Whoever fails lets the next one go on. Across instances the version of the cart protects, not this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from telecom_cart.errors import OperationTimeout


class _Queue:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0


class Queues:
    def __init__(self, *, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def turn(self, user_id: str) -> AsyncIterator[None]:
        """`OperationTimeout` if too many wait already, or it takes too long."""
        queue = self._queues.setdefault(user_id, _Queue())
        if queue.members >= self._limit:
            raise OperationTimeout(f"More than {self._limit} requests wait for this cart. Nothing was changed.")
        queue.members += 1
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    await queue.lock.acquire()
            except TimeoutError:
                raise OperationTimeout from None
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.members -= 1
            if not queue.members:
                del self._queues[user_id]
