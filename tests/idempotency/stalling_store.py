"""A store that stalls, as a database does whose process is stopped: what it was sent meanwhile is applied later."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import InMemoryStore
from mainspring.idempotency.entries import Entry
from mainspring.idempotency.sync_processor import run
from mainspring.model import Record


class Stalling(InMemoryStore):
    """Takes writes while it is stalled, answers none, and applies them when it goes on. Its time is settable."""

    looks_first = False  # like Redis: the claim is the first that is not answered

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.is_stalled = False
        self.late: list[Callable[[], Awaitable[object]]] = []

    def go_on(self, dice: random.Random | None = None) -> None:
        """Each connection has its own buffer, so what was sent is applied in any order."""
        self.is_stalled = False
        late, self.late = self.late, []
        if dice is not None:
            dice.shuffle(late)
        for write in late:
            run(write())  # type: ignore[arg-type]

    def _stall(self, write: Callable[[], Awaitable[object]] | None = None) -> None:
        if self.is_stalled:
            if write is not None:
                self.late.append(write)
            raise StoreUnavailable("stalled")

    async def time(self) -> int:
        return self.now

    def peek(self, address: str) -> Entry | None:
        return None

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        verb = super().claim
        self._stall(lambda: verb(address, value, version=version, now=now))
        return await verb(address, value, version=version, now=now)

    async def look(self, address: str, *, now: int) -> Record | None:
        self._stall()
        return await super().look(address, now=now)

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        verb = super().replace
        self._stall(lambda: verb(address, value, expect=expect, now=now, expires_at=expires_at))
        return await verb(address, value, expect=expect, now=now, expires_at=expires_at)

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        verb = super().remove
        self._stall(lambda: verb(address, expect=expect, now=now))
        return await verb(address, expect=expect, now=now)
