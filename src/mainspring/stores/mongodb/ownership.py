"""Claims and releases of shards.

An owner that freezes inside a transaction would hold its shard documents for as long as the server lets a
transaction live: a minute by default, far longer than a lease. So every claim records the session in which its
owner writes, and the next claim ends that session's transaction before it takes the shard. A release removes the
session again: an owner that has released has nothing open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.model import Shard
from mainspring.store import Verdict
from mainspring.stores.mongodb import conditional
from mainspring.stores.mongodb.conditional import Conditional, Update
from mainspring.stores.mongodb.connection import Collection
from mainspring.stores.partial_results import verdicts


async def claim(shards: Collection, claims: Sequence[Shard], *, session_id: Any) -> list[Verdict]:
    await _end_transactions(shards, claims, session_id=session_id)
    return verdicts(await conditional.write(shards, [_claim(shard, session_id) for shard in claims]))


async def release(shards: Collection, claims: Sequence[Shard]) -> list[Verdict]:
    return verdicts(await conditional.write(shards, [_release(shard) for shard in claims]))


def _claim(shard: Shard, session_id: Any) -> Conditional:
    present = {"_id": shard.shard_id, "version": shard.version}
    taken = {"version": shard.version + 1, "owner": shard.owner, "session": session_id}
    # Only a shard at version 0 may have no document yet.
    return Conditional(shard.shard_id, Update(present, taken, makes=shard.version == 0))


def _release(shard: Shard) -> Conditional:
    present = {"_id": shard.shard_id, "version": shard.version, "owner": shard.owner}
    return Conditional(shard.shard_id, Update(present, {"owner": "", "session": None}))


async def _end_transactions(shards: Collection, claims: Sequence[Shard], *, session_id: Any) -> None:
    """Those of the owners that are about to be deposed: only where the claim names the current version."""
    expected = [{"_id": shard.shard_id, "version": shard.version} for shard in claims if shard.version]
    if not expected:
        return
    others = {"$nin": [None, session_id]}
    sessions = await shards.distinct("session", {"$or": expected, "session": others})
    if sessions:
        await shards.database.client.admin.command("killSessions", sessions)
