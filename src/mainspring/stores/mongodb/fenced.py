"""Begin and finish: one transaction per group, which writes to the document of every shard whose fence it relies on.

A claim writes to the same document, so the two cannot both commit from one state: whichever comes second waits,
or finds what the first has left. Looking at the version instead of writing would let a deposed owner commit late.

A transaction that collides with somebody's write is aborted by the server. That is not a failure: nothing was written,
so the group is decided again on the rows as they are now. If it keeps colliding, somebody holds one of the rows, or the
document of one of the shards, and does not let go: the group is divided until only the items concerned are left, which
are unavailable. An error in the commit itself leaves the outcome unknown, and is a failure.

All transactions of a store run in one session, one at a time. The shard documents name it (see `ownership`), and the
server aborts what was left open in a session when its next transaction starts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import pymongo
from pymongo import DeleteMany, ReplaceOne, UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import BulkWriteError, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from mainspring import crashpoint
from mainspring.errors import StoreUnavailable
from mainspring.model import State
from mainspring.store import Begin, Finish, Verdict
from mainspring.stores import rules
from mainspring.stores.mongodb.conditional import Result
from mainspring.stores.mongodb.connection import SECONDS, TOO_LARGE, Collections, Document, mapping_errors, unavailable
from mainspring.stores.mongodb.documents import attempt_document, row_id, timer_document
from mainspring.stores.rules import Row

CONFLICT_PAUSE: Final = 0.01
TRIES_TOGETHER: Final = 5
"""How often a group is tried before it is divided. The halves are tried once before they are divided in turn."""
TRIES_ALONE: Final = 40
"""How often one that cannot be divided is tried. About half a second: the groups behind it have to wait."""

_TRANSIENT: Final = "TransientTransactionError"
_DUPLICATE_KEY: Final = 11000  # a row that was made after the transaction began
_INTERRUPTED: Final = 11601  # by a claim, in the middle of a statement
_SNAPSHOT: Final = ReadConcern("snapshot")
_MAJORITY: Final = WriteConcern("majority")

Item = Begin | Finish
Part = Sequence[tuple[int, Item]]
"""Items of a group with their indexes in it."""


class _Conflict(Exception):
    """The transaction is undone because of what others did: to its rows, or to one of the shards' documents."""

    def __init__(self, *, at_fence: bool = False) -> None:
        super().__init__()
        self.at_fence = at_fence


class _NoRoom(Exception):
    """One of the rows would be larger than documents may be."""


class _Denied(Exception):
    """The server refuses it for a reason that we do not know: it may lie in one of the rows."""


class FencedWriter:
    """Runs groups, one at a time, in its session."""

    def __init__(self, collections: Collections, session: AsyncClientSession) -> None:
        self._collections = collections
        self._session = session

    async def write(self, items: Sequence[Item]) -> list[Result]:
        results: list[Result] = [Verdict.STALE] * len(items)
        # By shard, so that a group is divided between shards first; items of one row keep their order.
        part = sorted(enumerate(items), key=lambda numbered: numbered[1].key.shard_id)
        with pymongo.timeout(SECONDS):
            await self._write(part, results, tries=TRIES_TOGETHER)
        return results

    async def _write(self, part: Part, results: list[Result], *, tries: int) -> None:
        """A verdict or an error for each, from one transaction or several."""
        try:
            with mapping_errors():
                found: list[Result] = [*await self._try([item for _, item in part], tries=tries)]
        except StoreUnavailable as error:
            found = [error] * len(part)
        except (_Conflict, _NoRoom, _Denied) as reason:
            at_fence = isinstance(reason, _Conflict) and reason.at_fence
            if len(part) > 1 and not (at_fence and len({item.key.shard_id for _, item in part}) == 1):
                for half in (part[: len(part) // 2], part[len(part) // 2 :]):
                    await self._write(half, results, tries=1)
                return
            if isinstance(reason, _Conflict) and tries < TRIES_ALONE:
                await self._write(part, results, tries=TRIES_ALONE)
                return
            held = StoreUnavailable("Expected a row and its shard that nobody holds, got somebody's open transaction")
            found = [
                Verdict.REFUSED
                if isinstance(reason, _NoRoom)
                else held
                if isinstance(reason, _Conflict)
                else StoreUnavailable(str(reason))
            ] * len(part)
        for (index, _), result in zip(part, found, strict=True):
            results[index] = result

    async def _try(self, items: Sequence[Item], *, tries: int) -> list[Verdict]:
        for _ in range(tries - 1):
            try:
                return await self._transact(items)
            except _Conflict:
                await asyncio.sleep(CONFLICT_PAUSE)
        return await self._transact(items)

    async def _transact(self, items: Sequence[Item]) -> list[Verdict]:
        await self._session.start_transaction(read_concern=_SNAPSHOT, write_concern=_MAJORITY)
        locked: dict[int, int] | None = None
        try:
            locked = await self._lock(items)
            plan = GroupPlan(locked, await self._versions(items))
            verdicts = [plan.decide(item) for item in items]
            await self._apply(plan)
        except OperationFailure as error:
            await self._session.abort_transaction()
            if _is_conflict(error):
                raise _Conflict(at_fence=locked is None) from error
            if _is_too_large(error):
                raise _NoRoom from error
            if isinstance(error, BulkWriteError) and error.details["writeErrors"]:
                raise _Denied(unavailable(error).detail) from error
            raise
        except BaseException:
            await self._session.abort_transaction()
            raise
        await self._commit()
        return verdicts

    async def _commit(self) -> None:
        crashpoint.reach(crashpoint.BEFORE_COMMIT)
        try:
            await self._session.commit_transaction()
        except OperationFailure as error:
            if error.has_error_label(_TRANSIENT):  # the one error that says for certain that nothing was committed
                raise _Conflict from error
            raise
        crashpoint.reach(crashpoint.AFTER_COMMIT)

    async def _lock(self, items: Sequence[Item]) -> dict[int, int]:
        """The versions of the shards that the items name, locked where they match a fence; the others do not matter."""
        shards = self._collections.shards
        fences = {(item.key.shard_id, item.fence) for item in items}
        matches = [{"_id": shard_id, "version": fence} for shard_id, fence in fences]
        locked = await shards.update_many({"$or": matches}, {"$inc": {"writes": 1}}, session=self._session)
        if locked.matched_count == len(fences):
            return dict(fences)
        versions = dict.fromkeys((shard_id for shard_id, _ in fences), 0)
        found = shards.find({"_id": {"$in": list(versions)}}, {"version": 1}, session=self._session)
        stored = {document["_id"]: document["version"] for document in await found.to_list()}
        versions |= stored
        unclaimed = [shard_id for shard_id, fence in fences if fence == 0 and shard_id not in stored]
        if unclaimed:
            new = [{"_id": shard_id, "version": 0, "owner": "", "writes": 1} for shard_id in unclaimed]
            await shards.insert_many(new, session=self._session)
        return versions

    async def _versions(self, items: Sequence[Item]) -> dict[str, int]:
        """The versions of the rows that exist."""
        ids = list({row_id(item.key) for item in items if isinstance(item, Begin) or item.change is not None})
        if not ids:
            return {}
        found = self._collections.timers.find(
            {"_id": {"$in": ids}}, {"version": 1}, session=self._session, batch_size=len(ids) + 1
        )
        return {document["_id"]: document["version"] for document in await found.to_list()}

    async def _apply(self, plan: GroupPlan) -> None:
        if operations := plan.operations():
            await self._collections.timers.bulk_write(operations, session=self._session)
        if plan.history:
            entries = [ReplaceOne({"_id": entry["_id"]}, entry, upsert=True) for entry in plan.history]
            await self._collections.history.bulk_write(entries, session=self._session)


def _is_conflict(error: OperationFailure) -> bool:
    """Whether an uncommitted transaction failed because of what others did: a new one may succeed."""
    if isinstance(error, BulkWriteError):
        return any(failure["code"] == _DUPLICATE_KEY for failure in error.details["writeErrors"])
    return error.has_error_label(_TRANSIENT) or error.code == _INTERRUPTED


def _is_too_large(error: OperationFailure) -> bool:
    if isinstance(error, BulkWriteError):
        return any(failure["code"] in TOO_LARGE for failure in error.details["writeErrors"])
    return error.code in TOO_LARGE


class GroupPlan:
    """What a group does: each item is decided on what those before it have left."""

    def __init__(self, shards: dict[int, int], versions: dict[str, int]) -> None:
        self._shards = shards
        self._rows: defaultdict[str, Row[str]] = defaultdict(Row)
        self._rows.update({key: Row(version, key) for key, version in versions.items()})
        self.history: list[Document] = []

    def decide(self, item: Item) -> Verdict:
        fence = self._shards[item.key.shard_id]
        if isinstance(item, Begin):
            return rules.begin(item, fence=fence, row=self._rows[row_id(item.key)])
        row = None if item.change is None else self._rows[row_id(item.change.key)]
        verdict = rules.finish(item, fence=fence, row=row)
        if verdict is Verdict.APPLIED and item.attempt is not None:
            self.history.append(attempt_document(item.key, item.attempt))
        return verdict

    def operations(self) -> list[DeleteMany | UpdateMany | ReplaceOne[Document]]:
        """What remains to be done to the rows, one statement for each kind of change."""
        removed: list[str] = []
        begun: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        written: list[ReplaceOne[Document]] = []
        for key, row in self._rows.items():
            if row.timer is not None:
                document = timer_document(row.timer, version=row.version)
                written.append(ReplaceOne({"_id": key}, document, upsert=True))
            elif row.begins:
                begun[row.fence, row.begins].append(key)
            elif row.is_removed:
                removed.append(key)
        return [
            *([DeleteMany({"_id": {"$in": removed}})] if removed else []),
            *(_begin_rows(keys, fence=fence, begins=begins) for (fence, begins), keys in begun.items()),
            *written,
        ]


def _begin_rows(keys: list[str], *, fence: int, begins: int) -> UpdateMany:
    update = {"$set": {"state": State.RUNNING.value, "fence": fence}, "$inc": {"attempts": begins, "version": begins}}
    return UpdateMany({"_id": {"$in": keys}}, update)
