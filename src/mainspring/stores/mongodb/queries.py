"""Reads. They see what a majority of the servers holds: everything that was acknowledged, nothing that may be undone.

What follows a position in the due order is two ranges of the index: the rest of one instant, and all later ones. They
are asked for as two pipelines in one command, because a condition that joins them by "or" makes the server read the
whole shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bson.max_key import MaxKey
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.read_concern import ReadConcern

from mainspring.model import FOREVER, Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import PAGE_BYTES, START, DuePage, ListPage, Position, TimerFilter, look_rows
from mainspring.stores.mongodb.connection import Collection, Document
from mainspring.stores.mongodb.documents import (
    attempts_from,
    document_bytes,
    is_live,
    position_of_document,
    record_id,
    records_from,
    row_id,
    shard_from,
    timers_from,
)
from mainspring.stores.pages import PageBuilder, Part, fitting
from mainspring.unreadable import Unreadable, claimable, readable, timer_name

SHARDS_PER_LIST: Final = 100
"""How many shards one query merges: above 200 ranges the server gives up the index order and sorts everything."""

_DUE_ORDER: Final = {"due_at": 1, "uuid": 1}
_SNAPSHOT: Final = ReadConcern("snapshot")
_LAST_CODE_POINT: Final = "\U0010ffff"

Pipeline = list[Document]


async def get(timers: Collection, keys: Sequence[TimerKey]) -> list[Timer | None]:
    found = {row.key: row for row in readable(await _rows(timers, keys))}
    return [found.get(key) for key in keys]


async def damaged(timers: Collection, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
    found = {row.name: row for row in await _rows(timers, keys) if isinstance(row, Unreadable)}
    return [found.get(timer_name(key)) for key in keys]


async def _rows(timers: Collection, keys: Sequence[TimerKey]) -> list[Timer | Unreadable]:
    ids = [row_id(key) for key in keys]
    cursor = timers.find({"_id": {"$in": list(set(ids))}}, batch_size=len(ids) + 1)
    return timers_from(await cursor.to_list())


async def load_due(timers: Collection, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
    """The page and the row after it, from one state of the shard: a row that moves meanwhile is in one of the two."""
    shard: Document = {"shard_id": shard_id}
    snapshot = timers.with_options(read_concern=_SNAPSHOT)
    while True:
        page = _behind(timers, shard, {"$lte": until}, after=after, limit=limit + 1)
        later = after if after.due_at > until else START
        first_not_due = _behind(timers, shard, {"$gte": until + 1, "$lt": FOREVER}, after=later, limit=1)
        pipeline = [*page, _union(timers, first_not_due)]
        # Sorted here: joined results may come in any order, and a batch of them has at most 16 MB.
        cursor = await snapshot.aggregate([*pipeline, {"$sort": _DUE_ORDER}], batchSize=limit + 3, allowDiskUse=True)
        documents, _ = await _first(cursor)
        due = [document for document in documents[:limit] if document["due_at"] <= until]
        due = due[: fitting(map(document_bytes, due))]
        following = int(documents[len(due)]["due_at"]) if len(documents) > len(due) else FOREVER
        loaded = readable(timers_from(due))
        if loaded or following > until:
            return DuePage(loaded, following if following < FOREVER else None)
        after = position_of_document(due[-1])


async def _first(cursor: AsyncCommandCursor[Document] | AsyncCursor[Document]) -> tuple[list[Document], bool]:
    """As many documents as make up a page and one more if there is one, and whether there may be others after it."""
    found: list[Document] = []
    size = 0
    async with cursor:
        async for document in cursor:
            found.append(document)
            if size > PAGE_BYTES:
                return found, True
            size += document_bytes(document)
    return found, False


async def next_due(timers: Collection, shard_ids: Sequence[int]) -> list[int | None]:
    """One key of the index is read for each shard."""
    pipeline: Pipeline = [
        {"$match": {"shard_id": {"$in": list(set(shard_ids))}, "due_at": {"$lt": FOREVER}}},
        {"$sort": {"shard_id": 1, **_DUE_ORDER}},
        {"$group": {"_id": "$shard_id", "due_at": {"$first": "$due_at"}}},
    ]
    cursor = await timers.aggregate(pipeline, batchSize=len(shard_ids) + 1)
    found: dict[int, int] = {int(document["_id"]): int(document["due_at"]) for document in await cursor.to_list()}
    return [found.get(shard_id) for shard_id in shard_ids]


async def list_timers(
    timers: Collection, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int
) -> ListPage:
    if limit <= 0:
        return ListPage([], None)
    ids = list(dict.fromkeys(shards))
    groups = [ids[start : start + SHARDS_PER_LIST] for start in range(0, len(ids), SHARDS_PER_LIST)]
    page = PageBuilder(limit, await _horizon(timers, groups, where, after) if where.is_selective else None)
    for group in groups:
        bounds = _due_bounds(where, page.end)
        pipeline = _behind(timers, {"shard_id": {"$in": group}, **_conditions(where)}, bounds, after=after, limit=limit)
        documents, is_cut = await _first(await timers.aggregate(pipeline, batchSize=limit + 1))
        last = position_of_document(documents[-1]) if documents else None
        page.add(Part(readable(timers_from(documents)), last, is_full=is_cut or len(documents) == limit))
    return page.page


async def _horizon(
    timers: Collection, groups: Sequence[Sequence[int]], where: TimerFilter, after: Position
) -> Position | None:
    """Read from the index alone. The shards of a group are counted together, because they are read together."""
    horizon: Position | None = None
    for group in groups:
        count = look_rows(len(groups))
        pipeline = _behind(
            timers, {"shard_id": {"$in": list(group)}}, _due_bounds(where, horizon), after=after, limit=count, only=True
        )
        cursor = await timers.aggregate([*pipeline, {"$skip": count - 1}])
        for document in await cursor.to_list():
            place = position_of_document(document)
            horizon = place if horizon is None else min(horizon, place)
    return horizon


def _behind(
    timers: Collection, conditions: Document, bounds: Document, *, after: Position, limit: int, only: bool = False
) -> Pipeline:
    """The first rows after a position, within bounds of the due instant; `only` their positions."""
    ends: Pipeline = [{"$sort": _DUE_ORDER}, {"$limit": limit}]
    shown: Pipeline = [{"$project": {"_id": 0, **_DUE_ORDER}}] if only else []
    if after == START:
        return [{"$match": {**conditions, "due_at": {"$gte": after.due_at, **bounds}}}, *ends, *shown]
    later: Pipeline = [{"$match": {**conditions, "due_at": {"$gt": after.due_at, **bounds}}}, *ends, *shown]
    same_instant = {**conditions, "due_at": {"$eq": after.due_at, **bounds}, "uuid": {"$gt": after.uuid}}
    return [{"$match": same_instant}, *ends, *shown, _union(timers, later), *ends]


def _union(timers: Collection, pipeline: Pipeline) -> Document:
    return {"$unionWith": {"coll": timers.name, "pipeline": pipeline}}


def _due_bounds(where: TimerFilter, end: Position | None) -> Document:
    """Of the due instant: those of the filter, and that of the last position that has a place in the page."""
    bounds: Document = {}
    if where.due_from is not None:
        bounds["$gte"] = where.due_from
    if where.due_to is not None:
        bounds["$lt"] = where.due_to
    if end is not None:
        bounds["$lte"] = end.due_at
    return bounds


def _conditions(where: TimerFilter) -> Document:
    conditions: Document = {}
    if where.states:
        conditions["state"] = {"$in": [state.value for state in where.states]}
    if where.id_prefix:
        conditions["timer_id"] = _starts_with(where.id_prefix)
    if where.labels:
        wanted = [{"$elemMatch": {"name": {"$eq": name}, "value": {"$eq": value}}} for name, value in where.labels]
        conditions["labels"] = {"$all": wanted}
    return conditions


def _starts_with(prefix: str) -> Document:
    """As a range, because a pattern cannot hold every character."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return {"$gte": prefix}
    following = ord(stem[-1]) + 1
    following = 0xE000 if following == 0xD800 else following  # surrogates are not characters
    return {"$gte": prefix, "$lt": stem[:-1] + chr(following)}


async def history(entries: Collection, key: TimerKey, *, before: tuple[int, int] | None, limit: int) -> list[Attempt]:
    if limit <= 0:  # to the server, a limit of 0 means no limit
        return []
    timer: Document = {"shard_id": key.shard_id, "uuid": key.uuid}
    end: Document = {"started_at": MaxKey()} if before is None else {"started_at": before[0], "attempt": before[1]}
    attempts: list[Attempt] = []
    while len(attempts) < limit:  # unreadable ones do not count towards the limit
        cursor = entries.find({"_id": {"$gt": timer, "$lt": {**timer, **end}}}, sort=[("_id", -1)], limit=limit)
        documents = await cursor.to_list()
        attempts += readable(attempts_from(key, documents))
        if len(documents) < limit:
            break
        end = documents[-1]["_id"]
    return attempts[:limit]


async def prune_history(entries: Collection, shard_id: int, *, older_than: int, limit: int) -> int:
    if limit <= 0:
        return 0
    old = {"_id.shard_id": shard_id, "_id.started_at": {"$lt": older_than}}
    order = [("_id.shard_id", 1), ("_id.started_at", 1)]
    victims = [document["_id"] for document in await entries.find(old, {"_id": 1}, sort=order, limit=limit).to_list()]
    return (await entries.delete_many({"_id": {"$in": victims}})).deleted_count if victims else 0


async def shards(stored: Collection, shard_ids: Sequence[int]) -> list[Shard | None]:
    cursor = stored.find({"_id": {"$in": list(set(shard_ids))}}, batch_size=len(shard_ids) + 1)
    found = {document["_id"]: shard_from(document) for document in await cursor.to_list()}
    return claimable(found.get(shard_id, Shard(shard_id)) for shard_id in shard_ids)


async def get_record(records: Collection, collection: str, key: str, *, now: int) -> Record | None:
    document = await records.find_one({"_id": record_id(collection, key), **is_live(now)})
    found = readable(records_from([document])) if document is not None else []
    return found[0] if found else None


async def scan_records(records: Collection, collection: str, *, now: int, after: str, limit: int) -> list[Record]:
    if limit <= 0:
        return []
    found: list[Record] = []
    last: Document = record_id(collection, after)
    while len(found) < limit:
        keys: dict[str, Any] = {"$gt": last, "$lt": {"collection": collection, "key": MaxKey()}}
        cursor = records.find({"_id": keys, **is_live(now)}, sort=[("_id", 1)], limit=limit, batch_size=limit + 1)
        documents, is_cut = await _first(cursor)
        found += readable(records_from(documents))
        if (is_cut and found) or (not is_cut and len(documents) < limit):
            break
        last = documents[-1]["_id"]
    return found[:limit]
