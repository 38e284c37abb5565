"""Rows that wait for nothing but the record of their outcome.

They have no slot, so that calls do not wait for commits; but they are in memory, where large ones keep their bytes, and
a shard that cannot be written, or rows that somebody has locked, may keep them waiting for long. So they are counted,
by namespace and by shard, and nobody may have more of them than it leaves to others: one that has begins no further
call, except in shards of which none waits. What is in flight by then may still come. All of them are in the window,
which bounds them in any case.
"""

from __future__ import annotations

from collections.abc import Hashable

from mainspring.clock import Clock
from mainspring.kernel.lanes import SILENCE_SECONDS
from mainspring.kernel.shares import NAMESPACE_GENEROSITY, Party, share


class _Tally:
    """What waits in a shard, or in a namespace."""

    __slots__ = ("heard_at", "rows")

    def __init__(self, now: float) -> None:
        self.rows = 0
        self.heard_at = now
        """When one of them was recorded, or the first began to wait."""


class UnrecordedRows:
    def __init__(self, *, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._rows: dict[str, tuple[Party, int]] = {}
        self._waiting: dict[Hashable, _Tally] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, uuid: str, namespace: Party, shard_id: int) -> None:
        self._rows[uuid] = (namespace, shard_id)
        for whose in (namespace, shard_id):
            waiting = self._waiting.get(whose)
            if waiting is None:
                waiting = self._waiting[whose] = _Tally(self._clock.monotonic())
            waiting.rows += 1

    def remove(self, uuid: str) -> None:
        """It is no longer in memory."""
        if (known := self._rows.pop(uuid, None)) is None:
            return
        now = self._clock.monotonic()
        for whose in known:
            waiting = self._waiting[whose]
            waiting.rows -= 1
            waiting.heard_at = now
            if not waiting.rows:
                del self._waiting[whose]

    def has_room(self, namespace: Party, shard_id: int) -> bool:
        """Whether another row of these may be begun, and then wait.

        It may if none of its shard waits: so one shard in which nothing is recorded, whatever it holds, keeps no other
        of its namespace from going on.
        """
        return shard_id not in self._waiting or (self._has_share(namespace) and self._has_share(shard_id))

    def _has_share(self, whose: Party | int) -> bool:
        """Whether a namespace, or a shard, may have another row that waits."""
        if len(self._rows) * 4 < self._limit:
            return True  # whoever holds them
        waiting = self._waiting.get(whose)
        generosity = NAMESPACE_GENEROSITY if isinstance(whose, Party) else 1
        taken = 0 if waiting is None else waiting.rows
        return share(free=self._limit - len(self._rows), taken=taken, generosity=generosity) > 0

    def is_stuck(self, shard_id: int) -> bool:
        """Whether a shard has its share of waiting rows, and none of them was recorded for a while."""
        waiting = self._waiting.get(shard_id)
        if waiting is None or self._has_share(shard_id):
            return False
        return self._clock.monotonic() - waiting.heard_at > SILENCE_SECONDS
