"""Attempts that may be on record as begun although nothing was sent yet.

An attempt is here from before its begin is written until its call is about to be made. If the answer to the begin gets
lost, the row leaves the window and is read again; if it is then found in flight in this very version, it is not lost:
no call was made for it. So nothing is forgotten as long as that can happen. They are bounded all the same: a shard that
has more of them than it leaves to others begins no further row. Whose rows users have changed or deleted since is found
out when there is no room.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mainspring.kernel.shares import share
from mainspring.model import State, Timer

FEW: Final = 32


class Attempt(NamedTuple):
    version: int
    """The row has this version if it was begun, and the one before if it was not."""
    fence: int


class Unsent:
    def __init__(self, limit: int) -> None:
        """`limit` is what all shards together may have, besides one for each. It is not less than a few: those whose
        destination has no slot stay here for long."""
        self._limit = max(FEW, limit)
        self._total = 0
        self._shards: dict[int, dict[str, Attempt]] = {}

    def __len__(self) -> int:
        return self._total

    def has_room(self, timer: Timer) -> bool:
        """Whether a row may be begun. One that is known here, or found in flight, adds nothing."""
        attempts = self._shards.get(timer.shard_id)
        if not attempts or timer.uuid in attempts or timer.state is State.RUNNING:
            return True
        return share(free=self._limit - self._total, taken=len(attempts)) > 0

    def add(self, timer: Timer, *, fence: int) -> bool:
        """A row is about to be begun. False if there is no room for it."""
        if not self.has_room(timer):
            return False
        attempts = self._shards.setdefault(timer.shard_id, {})
        self._total += timer.uuid not in attempts
        attempts[timer.uuid] = Attempt(timer.version + 1, fence)
        return True

    def remove(self, shard_id: int, uuid: str) -> None:
        """It is about to be sent, or was certainly not begun."""
        attempts = self._shards.get(shard_id, {})
        if attempts.pop(uuid, None) is not None:
            self._total -= 1
            if not attempts:
                del self._shards[shard_id]

    def has(self, timer: Timer, *, fence: int) -> bool:
        """Whether it is certain that a row found in flight was not sent."""
        return self._shards.get(timer.shard_id, {}).get(timer.uuid) == (timer.version, fence)

    def of(self, shard_id: int) -> list[tuple[str, Attempt]]:
        """The attempts of a shard, by the uuids of their rows."""
        return list(self._shards.get(shard_id, {}).items())

    def compare(self, shard_id: int, uuid: str, attempt: Attempt, row: Timer | None) -> None:
        """Forget an attempt whose row is another one by now, or gone; unless it was begun again since.

        Users' writes count versions, too: one that has the attempt's is that of the attempt if it is in flight.
        """
        may_be = row is not None and (
            row.version == attempt.version - 1
            or (row.state is State.RUNNING and (row.version, row.fence) == (attempt.version, attempt.fence))
        )
        if not may_be and self._shards.get(shard_id, {}).get(uuid) == attempt:
            self.remove(shard_id, uuid)

    def let_go(self, shard_ids: set[int]) -> None:
        """Another owner judges what it finds there."""
        for shard_id in shard_ids:
            self._total -= len(self._shards.pop(shard_id, ()))
