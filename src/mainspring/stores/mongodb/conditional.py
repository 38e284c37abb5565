"""Single-document writes, each under a condition, with an exact verdict for each and many in one command.

The answer to a batch of updates says how many documents matched, not which. So an update that finds nothing must
*fail*: it is an upsert whose insert would set the field `absent`, and the collection's validator refuses that field.
The failures carry the index of their update. There is no such trick for deletes: each is a command of its own.

Every write is atomic by itself, waits for transactions that hold its document, and needs no transaction. A transaction
that does not end does not make the other writes of a batch fail.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

import pymongo
from pymongo import InsertOne, UpdateOne
from pymongo.errors import BulkWriteError, PyMongoError, ServerSelectionTimeoutError

from mainspring import crashpoint
from mainspring.errors import StoreUnavailable
from mainspring.store import Verdict
from mainspring.stores.mongodb.connection import (
    POOL_SIZE,
    SECONDS,
    TOO_LARGE,
    Collection,
    Document,
    mapping_errors,
    unavailable,
)
from mainspring.stores.mongodb.documents import ABSENT

TOGETHER_SECONDS: Final = 1.5
"""How long a command with several writes may take."""
ALONE_SECONDS: Final = 0.5
"""How long each of them may take afterwards."""

_DUPLICATE_KEY: Final = 11000
_REFUSED_BY_VALIDATOR: Final = 121
_AT_ONCE: Final = POOL_SIZE // 2


class Insert(NamedTuple):
    fields: Document

    @property
    def place(self) -> Any:
        return self.fields["_id"]

    def request(self) -> InsertOne[Document]:
        return InsertOne(self.fields)


class Update(NamedTuple):
    """Set fields of the one document that meets the condition, which must name the id."""

    condition: Document
    fields: Document
    makes: bool = False
    """If there is no document with that id, make one."""

    @property
    def place(self) -> Any:
        return self.condition["_id"]

    def request(self) -> UpdateOne:
        changes = {"$set": self.fields} if self.makes else {"$set": self.fields, "$setOnInsert": {ABSENT: True}}
        return UpdateOne(self.condition, changes, upsert=True)


class Delete(NamedTuple):
    condition: Document


Write = Insert | Update
Result = Verdict | StoreUnavailable
"""An error concerns that write only."""


class Conditional(NamedTuple):
    """A write, and what it writes to: writes to one key are applied in order."""

    key: Hashable
    operation: Write | Delete


async def write(collection: Collection, writes: Sequence[Conditional]) -> list[Result]:
    """What became of each of the writes."""
    crashpoint.reach(crashpoint.BEFORE_COMMIT)
    results: list[Result] = [Verdict.STALE] * len(writes)
    with pymongo.timeout(SECONDS):
        for wave in _waves(writes):
            deletes = {n: operation for n in wave if isinstance(operation := writes[n].operation, Delete)}
            others = {n: operation for n in wave if not isinstance(operation := writes[n].operation, Delete)}
            deleted, written = await asyncio.gather(
                _delete(collection, list(deletes.values())), _insert_and_update(collection, list(others.values()))
            )
            for n, result in zip((*deletes, *others), (*deleted, *written), strict=True):
                results[n] = result
    crashpoint.reach(crashpoint.AFTER_COMMIT)
    return results


def _waves(writes: Sequence[Conditional]) -> list[list[int]]:
    """The indexes of the writes, in waves that never write to a key twice: nearly always there is one wave."""
    seen: defaultdict[Hashable, int] = defaultdict(int)
    waves: list[list[int]] = []
    for n, one in enumerate(writes):
        depth = seen[one.key]
        if depth == len(waves):
            waves.append([])
        waves[depth].append(n)
        seen[one.key] = depth + 1
    return waves


async def _insert_and_update(collection: Collection, operations: list[Write]) -> list[Result]:
    """All in one command. If it takes too long, somebody holds one of the documents: then each write goes by itself."""
    if not operations:
        return []
    if len(operations) == 1:
        return [await _alone(collection, operations[0])]
    try:
        with pymongo.timeout(TOGETHER_SECONDS):
            return await _bulk(collection, operations)
    except PyMongoError as error:
        if not error.timeout or isinstance(error, ServerSelectionTimeoutError):
            return [unavailable(error)] * len(operations)
    with mapping_errors():
        applied = await _applied(collection, operations)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def again(operation: Write, *, is_applied: bool) -> Result:
        if is_applied:
            return Verdict.APPLIED
        async with slots:
            with pymongo.timeout(ALONE_SECONDS):
                return await _alone(collection, operation, asked_before=True)

    return await asyncio.gather(
        *(again(operation, is_applied=done) for operation, done in zip(operations, applied, strict=True))
    )


async def _alone(collection: Collection, operation: Write, *, asked_before: bool = False) -> Result:
    try:
        [result] = await _bulk(collection, [operation])
        if result is Verdict.STALE and asked_before and (await _applied(collection, [operation]))[0]:
            return Verdict.APPLIED  # by the command that took too long
    except PyMongoError as error:
        return unavailable(error)
    return result


async def _bulk(collection: Collection, operations: list[Write]) -> list[Result]:
    results: list[Result] = [Verdict.APPLIED] * len(operations)
    try:
        await collection.bulk_write([operation.request() for operation in operations], ordered=False)
    except BulkWriteError as error:
        if error.details["writeConcernErrors"]:
            raise
        for failure in error.details["writeErrors"]:
            results[failure["index"]] = _refusal(failure)
    return results


def _refusal(failure: Document) -> Result:
    if failure["code"] in (_DUPLICATE_KEY, _REFUSED_BY_VALIDATOR):
        return Verdict.STALE
    if failure["code"] in TOO_LARGE:
        return Verdict.REFUSED
    return StoreUnavailable(f"Expected MongoDB to do it, got: {failure.get('errmsg')}")


async def _applied(collection: Collection, operations: list[Write]) -> list[bool]:
    """Whether the documents are as the writes would leave them. What somebody holds can still be read."""
    places = [operation.place for operation in operations]
    found = collection.find({"_id": {"$in": places}}, batch_size=len(places) + 1)
    stored = {_hashable(document["_id"]): document for document in await found.to_list()}
    documents = [stored.get(_hashable(place), {}) for place in places]
    return [stands.items() >= one.fields.items() for stands, one in zip(documents, operations, strict=True)]


def _hashable(place: Any) -> Hashable:
    return tuple(place.items()) if isinstance(place, dict) else place


async def _delete(collection: Collection, deletes: list[Delete]) -> list[Result]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def delete(condition: Document) -> Result:
        async with slots:
            try:
                deleted = await collection.delete_one(condition)
            except PyMongoError as error:
                return unavailable(error)
            return Verdict.APPLIED if deleted.deleted_count == 1 else Verdict.STALE

    return await asyncio.gather(*(delete(one.condition) for one in deletes))
