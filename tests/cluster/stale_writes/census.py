"""Counts stale writes on whatever database it is, where its writers can be told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.cluster.stale_writes.audit import Audit, Write, takeovers
from tests.cluster.stale_writes.mongodb import MongoDBAudit
from tests.cluster.stale_writes.sql import SqlAudit


@dataclass(frozen=True, slots=True)
class Counting:
    urls: Sequence[str]
    """For each server; none: they all use the same, and nothing is counted."""
    audit: Audit | None

    async def stale(self) -> int | None:
        return None if self.audit is None else len([write for write in await self.writes() if write.is_stale])

    async def writes(self) -> Sequence[Write]:
        """Those of the servers: whoever creates timers in a transaction of its own is none of them."""
        if self.audit is None:
            return []
        owners = {claim.owner for claim in await self.audit.claims()}
        return [write for write in await self.audit.writes() if write.kind == "outcome" or write.writer in owners]

    async def kinds(self) -> Counter[str]:
        return Counter(write.kind for write in await self.writes())

    async def takeovers(self) -> int:
        return 0 if self.audit is None else takeovers(await self.audit.claims())


@asynccontextmanager
async def auditing(store_url: str) -> AsyncIterator[Audit]:
    audit = MongoDBAudit(store_url) if store_url.startswith("mongodb:") else SqlAudit(store_url)
    try:
        yield audit
    finally:
        await audit.close()


@asynccontextmanager
async def count_stale_writes(store_url: str, servers: int) -> AsyncIterator[Counting]:
    if store_url.startswith("sqlite:"):  # whose writers cannot be told apart
        yield Counting((), None)
        return
    async with auditing(store_url) as audit:
        yield Counting(await audit.watch(servers), audit)
