"""What a Put, a Remove, a Begin or a Finish comes to, given the row as it is: the verdict, and the row as it is then.

Stated once, for all stores that decide in Python. How a database reads rows, and how it makes sure that they are still
the same when it writes, is its own affair. Beginning a row writes only how often it was begun, and by whom: the rest
of the row need not be read.

None for a fence or a row means that somebody's open transaction holds it: it is left alone.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model import LAST_VERSION, Shard, State, Timer
from mainspring.store import Begin, Finish, Put, Remove, Verdict, next_version

Place = TypeVar("Place")


class Row(Struct, Generic[Place]):
    """A timer row as the changes so far leave it."""

    version: int = 0
    """0: there is none."""
    place: Place | None = None
    """Where the database holds it; None: nowhere."""
    timer: Timer | None = None
    """The whole row, if it was rewritten."""
    begins: int = 0
    """Attempts begun on the stored row, if it was not."""
    fence: int = 0

    @property
    def is_removed(self) -> bool:
        return self.version == 0 and self.place is not None


AnyRow = Row[Place] | None


def change(item: Put | Remove, row: AnyRow[Place]) -> Verdict:
    if row is None:
        return Verdict.UNAVAILABLE
    if row.version != item.expect or (row.version == 0 and isinstance(item, Remove)):
        return Verdict.STALE
    if isinstance(item, Remove):
        row.version, row.timer = 0, None
    else:
        row.version = next_version(row.version, item.timer.version)
        row.timer = item.timer if item.timer.version == row.version else replace(item.timer, version=row.version)
    row.begins = 0
    return Verdict.APPLIED


def begin(item: Begin, *, fence: int | None, row: AnyRow[Place]) -> Verdict:
    if fence != item.fence:
        return Verdict.UNAVAILABLE if fence is None else Verdict.FENCED
    if row is None:
        return Verdict.UNAVAILABLE
    if row.version != item.expect or not 0 < row.version < LAST_VERSION:
        return Verdict.STALE
    row.version += 1
    timer = row.timer
    if timer is None:
        row.begins += 1
        row.fence = item.fence
    else:
        row.timer = replace(
            timer, state=State.RUNNING, attempts=timer.attempts + 1, version=row.version, fence=item.fence
        )
    return Verdict.APPLIED


def finish(item: Finish, *, fence: int | None, row: AnyRow[Place]) -> Verdict:
    """`row` is what the change names; if there is none, it does not matter. What is applied enters the history."""
    if fence != item.fence:
        return Verdict.UNAVAILABLE if fence is None else Verdict.FENCED
    return Verdict.APPLIED if item.change is None else change(item.change, row)


def claim(shard: Shard, wanted: Shard) -> Shard | Verdict:
    """The shard with its new owner, or why it does not get one."""
    if shard.version != wanted.version:
        return Verdict.STALE
    if shard.version >= LAST_VERSION:
        return Verdict.UNAVAILABLE
    return Shard(shard.shard_id, shard.version + 1, wanted.owner)


def release(shard: Shard, given: Shard) -> Shard | Verdict:
    return Shard(shard.shard_id, shard.version) if shard == given else Verdict.STALE
