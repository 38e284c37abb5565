"""Single-document writes, each under a condition, with an exact verdict for each and many in one command.

The answer to a batch of updates says how many documents matched, not which. So an update that finds nothing must
*fail*: it is an upsert whose insert would set the field `absent`, and the collection's validator refuses that field.
The failures carry the index of their update. Of deletes nothing of the kind is known: each is a command of its own.

Every write is atomic by itself, waits for transactions that hold its document, and needs no transaction.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Hashable, Sequence
from typing import Final, NamedTuple, TypeVar

from pymongo import InsertOne, UpdateOne
from pymongo.errors import BulkWriteError

from mainspring import crashpoint
from mainspring.stores.mongodb.connection import POOL_SIZE, Collection, Document
from mainspring.stores.mongodb.documents import ABSENT

_DUPLICATE_KEY: Final = 11000
_REFUSED_BY_VALIDATOR: Final = 121
_DELETES_AT_ONCE: Final = POOL_SIZE // 2


T = TypeVar("T")


class Delete(NamedTuple):
    condition: Document


class Conditional(NamedTuple):
    """A write, and what it writes to: writes to one key are applied in order."""

    key: Hashable
    operation: InsertOne[Document] | UpdateOne | Delete
    """Updates are made by `update_where` and `insert_or_update_where`."""


def update_where(condition: Document, fields: Document) -> UpdateOne:
    """Set fields of the one document that meets the condition; it must name the id."""
    return UpdateOne(condition, {"$set": fields, "$setOnInsert": {ABSENT: True}}, upsert=True)


def insert_or_update_where(condition: Document, fields: Document) -> UpdateOne:
    """The same, but where there is no document of that id, make one."""
    return UpdateOne(condition, {"$set": fields}, upsert=True)


async def write(collection: Collection, writes: Sequence[Conditional]) -> list[bool]:
    """Whether each of the writes took place."""
    crashpoint.reach(crashpoint.BEFORE_COMMIT)
    applied = [False] * len(writes)
    for wave in _waves(writes):
        deletes = {n: operation for n in wave if isinstance(operation := writes[n].operation, Delete)}
        others = {n: operation for n in wave if not isinstance(operation := writes[n].operation, Delete)}
        results = await _all(
            _delete(collection, list(deletes.values())), _insert_and_update(collection, list(others.values()))
        )
        for n, result in zip((*deletes, *others), (*results[0], *results[1]), strict=True):
            applied[n] = result
    crashpoint.reach(crashpoint.AFTER_COMMIT)
    return applied


def _waves(writes: Sequence[Conditional]) -> list[list[int]]:
    """The numbers of the writes, such that no wave writes to a key twice: nearly always there is one."""
    seen: defaultdict[Hashable, int] = defaultdict(int)
    waves: list[list[int]] = []
    for n, one in enumerate(writes):
        depth = seen[one.key]
        if depth == len(waves):
            waves.append([])
        waves[depth].append(n)
        seen[one.key] = depth + 1
    return waves


async def _insert_and_update(collection: Collection, operations: list[InsertOne[Document] | UpdateOne]) -> list[bool]:
    if not operations:
        return []
    applied = [True] * len(operations)
    try:
        await collection.bulk_write(operations, ordered=False)
    except BulkWriteError as error:
        for failure in error.details["writeErrors"]:
            if failure["code"] not in (_DUPLICATE_KEY, _REFUSED_BY_VALIDATOR):
                raise
            applied[failure["index"]] = False
        if error.details["writeConcernErrors"]:
            raise
    return applied


async def _delete(collection: Collection, deletes: list[Delete]) -> list[bool]:
    slots = asyncio.Semaphore(_DELETES_AT_ONCE)

    async def delete(condition: Document) -> bool:
        async with slots:
            return (await collection.delete_one(condition)).deleted_count == 1

    return await _all(*(delete(one.condition) for one in deletes))


async def _all(*calls: Coroutine[None, None, T]) -> list[T]:
    """The results of all calls, or the first error, when the last one has ended."""
    results: list[T] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
