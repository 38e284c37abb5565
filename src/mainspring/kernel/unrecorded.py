"""Rows that wait for nothing but the record of their outcome.

They have no slot, so that calls do not wait for commits; but they are in memory, and a shard that cannot be written, or
rows that somebody has locked, may let them wait for long. So they are counted, by namespace and by shard, and nobody
has more of them than it leaves to others: who has, begins no further call. What is in flight then may still come.
"""

from __future__ import annotations

from collections.abc import Hashable

from mainspring.clock import Clock
from mainspring.kernel.lanes import SILENCE_SECONDS
from mainspring.kernel.shares import NAMESPACE_GENEROSITY, Party, share


class _Waiting:
    """What waits in a shard, or in a namespace."""

    __slots__ = ("bytes", "heard_at", "rows")

    def __init__(self, now: float) -> None:
        self.rows = 0
        self.bytes = 0
        self.heard_at = now
        """When one of them was recorded, or the first began to wait."""


class Unrecorded:
    def __init__(self, *, limit: int, byte_limit: int, clock: Clock) -> None:
        self._limit = limit
        self._byte_limit = byte_limit
        self._clock = clock
        self._rows: dict[str, tuple[Party, int, int]] = {}
        self._bytes = 0
        self._waiting: dict[Hashable, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, uuid: str, namespace: Party, shard_id: int, size: int) -> None:
        """`size` counts for large rows only."""
        now = self._clock.monotonic()
        self._rows[uuid] = (namespace, shard_id, size)
        self._bytes += size
        for whose in (namespace, shard_id):
            waiting = self._waiting.get(whose)
            if waiting is None:
                waiting = self._waiting[whose] = _Waiting(now)
            waiting.rows += 1
            waiting.bytes += size

    def remove(self, uuid: str) -> None:
        """It is in memory no more."""
        if (known := self._rows.pop(uuid, None)) is None:
            return
        namespace, shard_id, size = known
        now = self._clock.monotonic()
        self._bytes -= size
        for whose in (namespace, shard_id):
            waiting = self._waiting[whose]
            waiting.rows -= 1
            waiting.bytes -= size
            waiting.heard_at = now
            if not waiting.rows:
                del self._waiting[whose]

    def has_room(self, whose: Party | int, size: int) -> bool:
        """Whether a namespace, or a shard, may have another row of this size that waits, if it counts."""
        if len(self._rows) * 4 < self._limit and (not size or self._bytes * 4 < self._byte_limit):
            return True  # whoever has them
        generosity = NAMESPACE_GENEROSITY if isinstance(whose, Party) else 1
        waiting = self._waiting.get(whose)
        rows, taken = (0, 0) if waiting is None else (waiting.rows, waiting.bytes)
        if not share(free=self._limit - len(self._rows), taken=rows, generosity=generosity):
            return False
        return not size or share(free=self._byte_limit - self._bytes, taken=taken, generosity=generosity) > 0

    def is_silent(self, shard_id: int) -> bool:
        """Whether nothing was recorded in a shard for a while although something waits for it."""
        waiting = self._waiting.get(shard_id)
        return waiting is not None and self._clock.monotonic() - waiting.heard_at > SILENCE_SECONDS
