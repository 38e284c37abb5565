"""The timer contract, refused: a timer needs a fence and a due order that survive with it; Redis keeps records only."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.errors import Unsupported
from mainspring.model import Attempt, Shard, Timer, TimerKey
from mainspring.store import Begin, DuePage, Finish, ListPage, Position, Put, Remove, TimerFilter, Verdict
from mainspring.unreadable import Unreadable


def _unsupported() -> Unsupported:
    return Unsupported(
        "Expected a store that keeps timers, got Redis, which keeps records only: an acknowledged timer must survive, "
        "and its owner's fence with it. Give timers a database of their own"
    )


class NoTimers:
    """Every verb raises `Unsupported`."""

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        raise _unsupported()

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        raise _unsupported()

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        raise _unsupported()

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        raise _unsupported()

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        raise _unsupported()

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        raise _unsupported()

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        raise _unsupported()

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        raise _unsupported()

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        raise _unsupported()

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        raise _unsupported()

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard]:
        raise _unsupported()

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        raise _unsupported()

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        raise _unsupported()
