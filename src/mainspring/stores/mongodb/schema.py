"""The numbered migrations: collections with their rules, and indexes. Each can be applied again without harm,

so several processes may do so at once. A migration that was released is never edited; a change is a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from pymongo import ASCENDING, IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from mainspring.errors import ConfigError
from mainspring.stores.mongodb.connection import Collection, Collections
from mainspring.stores.mongodb.documents import ABSENT

TTL_MARGIN_SECONDS: Final = 3600
"""How much later than it may the server removes an expired record, so that its clock need not be everybody's."""

_NAMESPACE_EXISTS: Final = 48
_ID: Final = "schema"


class Migration(NamedTuple):
    number: int
    name: str
    apply: Callable[[Collections], Awaitable[None]]


async def _first(collections: Collections) -> None:
    for collection in (collections.timers, collections.shards, collections.records):
        await _create(collection, {ABSENT: {"$exists": False}})
    due = IndexModel([("shard_id", ASCENDING), ("due_at", ASCENDING), ("uuid", ASCENDING)], name="due")
    await collections.timers.create_indexes([due])
    age = IndexModel([("_id.shard_id", ASCENDING), ("_id.started_at", ASCENDING)], name="age")
    await collections.history.create_indexes([age])
    expiry = IndexModel([("expires_at", ASCENDING)], name="expiry", expireAfterSeconds=TTL_MARGIN_SECONDS)
    await collections.records.create_indexes([expiry])


MIGRATIONS: Final = (Migration(1, "timers, shards, history, records", _first),)


async def pending(collections: Collections) -> list[Migration]:
    """The migrations that this database lacks. A database that has unknown ones is refused."""
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
    return applied


async def _create(collection: Collection, validator: dict[str, object]) -> None:
    try:
        # Without the check that the driver makes first, which would be looking before leaping.
        await collection.database.create_collection(collection.name, check_exists=False, validator=validator)
    except CollectionInvalid:
        return
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise
