"""Reads. They see what a majority of the servers holds: everything that was acknowledged, nothing that may be undone.

A place in the due order is two ranges of the index, the rest of one instant and all later ones. They are asked for
as two pipelines in one command, because a condition that joins them by "or" has the server read the whole shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bson.max_key import MaxKey
from pymongo.read_concern import ReadConcern

from mainspring.model import FOREVER, Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import START, DuePage, Position, TimerFilter
from mainspring.stores.mongodb.connection import Collection, Document
from mainspring.stores.mongodb.documents import (
    attempt_from,
    is_live,
    record_from,
    record_id,
    row_id,
    shard_from,
    timer_from,
)

SHARDS_PER_LIST: Final = 100
"""How many shards one query merges: above 200 ranges the server gives up the index order and sorts everything."""

_DUE_ORDER: Final = {"due_at": 1, "uuid": 1}
_SNAPSHOT: Final = ReadConcern("snapshot")
_LAST_CODE_POINT: Final = "\U0010ffff"

Pipeline = list[Document]


async def get(timers: Collection, keys: Sequence[TimerKey]) -> list[Timer | None]:
    ids = [row_id(key) for key in keys]
    cursor = timers.find({"_id": {"$in": list(set(ids))}}, batch_size=len(ids) + 1)
    found = {document["_id"]: timer_from(document) for document in await cursor.to_list()}
    return [found.get(one) for one in ids]


async def load_due(timers: Collection, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
    """The page and the row behind it, from one state of the shard: a row that moves meanwhile is in one of the two."""
    shard: Document = {"shard_id": shard_id}
    page = _behind(timers, shard, {"$lte": until}, after=after, limit=limit + 1)
    later = after if after.due_at > until else START
    first_not_due = _behind(timers, shard, {"$gte": until + 1, "$lt": FOREVER}, after=later, limit=1)
    pipeline = [*page, _union(timers, first_not_due)]
    snapshot = timers.with_options(read_concern=_SNAPSHOT)
    cursor = await snapshot.aggregate(pipeline, batchSize=limit + 3)
    rows = sorted(map(timer_from, await cursor.to_list()), key=_position)
    loaded = [row for row in rows[:limit] if row.due_at <= until]
    following = rows[len(loaded)].due_at if len(rows) > len(loaded) else FOREVER
    return DuePage(loaded, following if following < FOREVER else None)


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
) -> list[Timer]:
    ids = list(dict.fromkeys(shards))
    page: list[Timer] = []
    for start in range(0, len(ids), SHARDS_PER_LIST):
        conditions = {"shard_id": {"$in": ids[start : start + SHARDS_PER_LIST]}, **_conditions(where)}
        bounds = _due_bounds(where)
        if len(page) == limit:  # what comes behind a full page has no place in it
            bounds["$lte"] = page[-1].due_at
        pipeline = _behind(timers, conditions, bounds, after=after, limit=limit)
        cursor = await timers.aggregate(pipeline, batchSize=limit + 1)
        page = sorted([*page, *map(timer_from, await cursor.to_list())], key=_position)[:limit]
    return page


def _behind(timers: Collection, conditions: Document, bounds: Document, *, after: Position, limit: int) -> Pipeline:
    """The first rows behind a place, within bounds of the due instant."""
    ends: Pipeline = [{"$sort": _DUE_ORDER}, {"$limit": limit}]
    later: Pipeline = [{"$match": {**conditions, "due_at": {"$gt": after.due_at, **bounds}}}, *ends]
    if after == START:
        return later
    same_instant = {**conditions, "due_at": {"$eq": after.due_at, **bounds}, "uuid": {"$gt": after.uuid}}
    return [{"$match": same_instant}, *ends, _union(timers, later), *ends]


def _union(timers: Collection, pipeline: Pipeline) -> Document:
    return {"$unionWith": {"coll": timers.name, "pipeline": pipeline}}


def _due_bounds(where: TimerFilter) -> Document:
    bounds: Document = {}
    if where.due_from is not None:
        bounds["$gte"] = where.due_from
    if where.due_to is not None:
        bounds["$lt"] = where.due_to
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
    """As a range, for a pattern cannot hold every character."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return {"$gte": prefix}
    following = ord(stem[-1]) + 1
    following = 0xE000 if following == 0xD800 else following  # surrogates are no characters
    return {"$gte": prefix, "$lt": stem[:-1] + chr(following)}


async def history(entries: Collection, key: TimerKey, *, before: tuple[int, int] | None, limit: int) -> list[Attempt]:
    if limit <= 0:  # to the server, a limit of 0 is none
        return []
    timer: Document = {"shard_id": key.shard_id, "uuid": key.uuid}
    end: Document = {"started_at": MaxKey()} if before is None else {"started_at": before[0], "attempt": before[1]}
    cursor = entries.find({"_id": {"$gt": timer, "$lt": {**timer, **end}}}, sort=[("_id", -1)], limit=limit)
    return [attempt_from(document) for document in await cursor.to_list()]


async def prune_history(entries: Collection, shard_id: int, *, older_than: int, limit: int) -> int:
    if limit <= 0:
        return 0
    old = {"_id.shard_id": shard_id, "_id.started_at": {"$lt": older_than}}
    order = [("_id.shard_id", 1), ("_id.started_at", 1)]
    victims = [document["_id"] for document in await entries.find(old, {"_id": 1}, sort=order, limit=limit).to_list()]
    return (await entries.delete_many({"_id": {"$in": victims}})).deleted_count if victims else 0


async def shards(stored: Collection, shard_ids: Sequence[int]) -> list[Shard]:
    cursor = stored.find({"_id": {"$in": list(set(shard_ids))}}, batch_size=len(shard_ids) + 1)
    found = {document["_id"]: shard_from(document) for document in await cursor.to_list()}
    return [found.get(shard_id, Shard(shard_id)) for shard_id in shard_ids]


async def get_record(records: Collection, collection: str, key: str, *, now: int) -> Record | None:
    document = await records.find_one({"_id": record_id(collection, key), **is_live(now)})
    return None if document is None else record_from(document)


async def scan_records(records: Collection, collection: str, *, now: int, after: str, limit: int) -> list[Record]:
    if limit <= 0:
        return []
    keys: dict[str, Any] = {"$gt": record_id(collection, after), "$lt": {"collection": collection, "key": MaxKey()}}
    cursor = records.find({"_id": keys, **is_live(now)}, sort=[("_id", 1)], limit=limit, batch_size=limit + 1)
    return [record_from(document) for document in await cursor.to_list()]


def _position(timer: Timer) -> Position:
    return Position(timer.due_at, timer.uuid)
