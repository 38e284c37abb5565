"""What is known of each write: who made it, and which claim of its shard was the newest one at that moment.

So an audit does not depend on what the writer believes to be its fence; but a begin must carry that very claim's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Kind = Literal["begin", "outcome"]


class Write(NamedTuple):
    kind: Kind
    shard_id: int
    writer: str
    version: int | None
    """Of the shard, by its newest claim."""
    owner: str | None
    """Who made that claim. None: nobody ever claimed it."""
    fence: int | None = None
    """What a begun row says."""

    @property
    def is_stale(self) -> bool:
        return self.writer != self.owner or (self.kind == "begin" and self.fence != self.version)


class Claim(NamedTuple):
    shard_id: int
    version: int
    owner: str


class Audit(Protocol):
    """Of one database, whose tables are made by it if there are none yet."""

    async def watch(self, servers: int) -> Sequence[str]:
        """Start counting. The URLs for so many servers."""
        ...

    async def writes(self) -> list[Write]:
        """Since then."""
        ...

    async def claims(self) -> list[Claim]:
        """Since then, by shard and version."""
        ...

    async def close(self) -> None: ...


def takeovers(claims: Sequence[Claim]) -> int:
    """How many shards went from one owner straight to another."""
    by_version = {(claim.shard_id, claim.version): claim.owner for claim in claims}
    return sum(by_version.get((shard, version - 1), owner) != owner for (shard, version), owner in by_version.items())
