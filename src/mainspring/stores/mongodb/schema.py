"""The numbered migrations: collections with their rules, and indexes. Each can be applied again without harm,

so several processes may do so at once. A released migration is never edited; a change is a new one.

Collections that have our names but are not ours are refused before anything is written to them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from pymongo import ASCENDING, IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from mainspring.errors import ConfigError
from mainspring.stores.mongodb.connection import Collection, Collections, Document
from mainspring.stores.mongodb.documents import ABSENT

TTL_MARGIN_SECONDS: Final = 3600
"""How long after its expiry the server removes a record, so that its clock need not agree with everybody's."""

_NAMESPACE_EXISTS: Final = 48
_ID: Final = "schema"


class Migration(NamedTuple):
    number: int
    name: str
    apply: Callable[[Collections], Awaitable[None]]


_RULE: Final[Document] = {ABSENT: {"$exists": False}}
_RULED: Final = ("timers", "shards", "records")
_INDEXES: Final = {
    "timers": IndexModel([("shard_id", ASCENDING), ("due_at", ASCENDING), ("uuid", ASCENDING)], name="due"),
    "history": IndexModel([("_id.shard_id", ASCENDING), ("_id.started_at", ASCENDING)], name="age"),
    "records": IndexModel([("expires_at", ASCENDING)], name="expiry", expireAfterSeconds=TTL_MARGIN_SECONDS),
}
_FIELDS: Final = {
    "timers": ("shard_id", "due_at", "uuid", "version"),
    "shards": ("version", "owner"),
    "history": ("document",),
    "records": ("value", "version"),
    "schema": ("number",),
}
"""What every document has, among others."""


async def _first(collections: Collections) -> None:
    for kind in _RULED:
        await _create(getattr(collections, kind), _RULE)
    for kind, index in _INDEXES.items():
        collection: Collection = getattr(collections, kind)
        await collection.create_indexes([index])


MIGRATIONS: Final = (Migration(1, "timers, shards, history, records", _first),)


async def check(collections: Collections) -> None:
    """Refuse collections that have our names but are not ours. Missing or empty ones may become ours."""
    names = [collection.name for collection in collections]
    listed = await collections.timers.database.list_collections(filter={"name": {"$in": names}})
    present: dict[str, Document] = {found["name"]: dict(found) async for found in listed}
    for kind, collection in zip(Collections._fields, collections, strict=True):
        if collection.name in present:
            await _check(collection, kind, present[collection.name])


async def _check(collection: Collection, kind: str, found: Document) -> None:
    if found["type"] != "collection":
        raise _foreign(collection, "a collection", f"a {found['type']}")
    if kind in _RULED and found["options"].get("validator") != _RULE:
        raise _foreign(collection, f"the validator {_RULE}", str(found["options"].get("validator")))
    document = await collection.find_one({})
    if document is not None and not set(_FIELDS[kind]) <= document.keys():
        raise _foreign(collection, f"documents with {', '.join(_FIELDS[kind])}", f"one with {', '.join(document)}")
    if kind in _INDEXES:
        wanted = _INDEXES[kind].document
        index = (await collection.index_information()).get(wanted["name"])
        if index is not None and dict(index["key"]) != dict(wanted["key"]):
            raise _foreign(collection, f"the index {wanted['name']} on {', '.join(wanted['key'])}", f"{index['key']}")


async def check_indexes(collections: Collections) -> None:
    """Make sure that what a migration has made is there."""
    for kind, index in _INDEXES.items():
        collection: Collection = getattr(collections, kind)
        name = index.document["name"]
        if name not in await collection.index_information():
            raise _foreign(collection, f"the index {name} on {', '.join(index.document['key'])}", "none")


def _foreign(collection: Collection, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"Expected the collection {collection.name} in {collection.database.name} to have {expected}, got {found}: "
        "it is not Mainspring's, or was changed; name another database in the URL, or restore it"
    )


async def pending(collections: Collections) -> list[Migration]:
    """The migrations that this database lacks. A database that has unknown ones is refused."""
    await check(collections)
    stored = await collections.schema.find_one({"_id": _ID})
    newest: int = stored["number"] if stored else 0
    known = MIGRATIONS[-1].number
    if newest > known:
        raise ConfigError(
            f"Expected a database with at most migration {known}, got {newest} in {collections.schema.database.name}: "
            "a newer Mainspring has been here, and only it may open the database"
        )
    return [migration for migration in MIGRATIONS if migration.number > newest]


async def migrate(collections: Collections) -> list[Migration]:
    applied = await pending(collections)
    for migration in applied:
        await migration.apply(collections)
        await collections.schema.update_one({"_id": _ID}, {"$max": {"number": migration.number}}, upsert=True)
    await check_indexes(collections)
    return applied


async def _create(collection: Collection, validator: dict[str, object]) -> None:
    try:
        # Without the driver's own check first, whose answer could be out of date by then.
        await collection.database.create_collection(collection.name, check_exists=False, validator=validator)
    except CollectionInvalid:
        return
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise
