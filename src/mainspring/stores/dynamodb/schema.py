"""The tables, in numbered migrations, and how they are made: each step may be repeated, even by several processes at
once.

The number of the newest migration is kept in the records table, in a partition that no collection can have.
A released migration is never edited; a change is a new one at the end of the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.stores.dynamodb.address import Address
from mainspring.stores.dynamodb.client import Answer, Client, TableMissing
from mainspring.stores.dynamodb.items import number, text

DUE_INDEX: Final = "by_due"
AGE_INDEX: Final = "by_age"

_MARK: Final = {"partition": text("#migrations"), "key": text("newest")}
_WAIT_SECONDS: Final = 0.2
_WAITS: Final = 300


class Migration(Struct, frozen=True):
    number: int
    name: str
    apply: Callable[[Client], Awaitable[None]]


class Index(Struct, frozen=True):
    name: str
    key: tuple[str, str]
    projection: str


class Table(Struct, frozen=True):
    """What a table has to look like. A key is a partition, and the order within it."""

    name: str
    key: tuple[str, str]
    types: dict[str, str]
    """Of everything that is part of a key."""
    local: Index | None = None
    everywhere: Index | None = None


def _tables(names: Address) -> tuple[Table, Table, Table]:
    """Timers with their due order beside them; history by timer, and by age for pruning; records."""
    return (
        Table(
            names.timers,
            ("shard_id", "uuid"),
            {"shard_id": "N", "uuid": "S", "due": "S"},
            local=Index(DUE_INDEX, ("shard_id", "due"), "ALL"),
        ),
        Table(
            names.history,
            ("timer", "entry"),
            {"timer": "S", "entry": "S", "shard_id": "N"},
            everywhere=Index(AGE_INDEX, ("shard_id", "entry"), "KEYS_ONLY"),
        ),
        Table(names.records, ("partition", "key"), {"partition": "S", "key": "S"}),
    )


async def _first_tables(client: Client) -> None:
    tables = _tables(client.address)
    for table in tables:
        await _create(client, table)
    for table in tables:
        await _until_active(client, table.name)
    await _expire_by(client, client.address.records, "expires_s")


MIGRATIONS: Final = (Migration(1, "timers, history, records", _first_tables),)


async def pending(client: Client) -> list[Migration]:
    """The migrations that these tables lack. Tables that have unknown ones, or are not ours, are refused."""
    present = await _check(client)
    known = MIGRATIONS[-1].number
    newest = await _newest(client) if present.get(client.address.records) == "ACTIVE" else 0
    if newest > known:
        raise ConfigError(
            f"Expected tables with at most migration {known}, got {newest} in {client.address}: "
            "a newer Mainspring has been here, and only it may use them"
        )
    if newest and (missing := [table.name for table in _tables(client.address) if table.name not in present]):
        # Created again it would be empty, and nobody would notice what is lost.
        raise ConfigError(f"Expected the table {missing[0]}, which migration {newest} has, got none: restore it")
    return [migration for migration in MIGRATIONS if migration.number > newest]


async def migrate(client: Client) -> list[Migration]:
    """Apply what is pending."""
    lacking = await pending(client)
    for migration in lacking:
        await migration.apply(client)
        await client.call(
            "put_item", TableName=client.address.records, Item={**_MARK, "number": number(migration.number)}
        )
    return lacking


async def _newest(client: Client) -> int:
    answer = await client.call("get_item", TableName=client.address.records, Key=_MARK, ConsistentRead=True)
    return int(answer["Item"]["number"]["N"]) if "Item" in answer else 0


# What is there


async def _check(client: Client) -> dict[str, str]:
    """The existing tables with our names, and their status. Refuses those that are not ours or are replicated."""
    present: dict[str, str] = {}
    for table in _tables(client.address):
        found = await _description(client, table.name)
        if found is not None:
            _check_shape(table, found)
            _check_regions(table, found)
            present[table.name] = found["TableStatus"]
    return present


def _check_shape(table: Table, found: Answer) -> None:
    expected = [_wanted("the key", table.key, table.types)]
    types = {one["AttributeName"]: one["AttributeType"] for one in found["AttributeDefinitions"]}
    seen = [_seen("the key", found, types)]
    for index, kind in ((table.local, "LocalSecondaryIndexes"), (table.everywhere, "GlobalSecondaryIndexes")):
        if index is not None:
            words = f"the index {index.name} of {index.projection} on"
            expected.append(_wanted(words, index.key, table.types))
            seen += [
                _seen(f"the index {one['IndexName']} of {one['Projection']['ProjectionType']} on", one, types)
                for one in found.get(kind, [])
            ]
    if missing := [one for one in expected if one not in seen]:
        raise ConfigError(
            f"Expected the table {table.name} to be Mainspring's with {missing[0]}, got one with "
            f"{' and '.join(seen)}: give another prefix in the URL, as in dynamodb://region/prefix"
        )


def _wanted(words: str, key: tuple[str, str], types: dict[str, str]) -> str:
    return f"{words} {', '.join(f'{name} ({types[name]})' for name in key)}"


def _seen(words: str, described: Answer, types: dict[str, str]) -> str:
    names = [one["AttributeName"] for one in sorted(described["KeySchema"], key=lambda one: str(one["KeyType"]))]
    return f"{words} {', '.join(f'{name} ({types.get(name)})' for name in names)}"


def _check_regions(table: Table, found: Answer) -> None:
    """A condition is evaluated in one region: between regions there is no fence."""
    if found.get("Replicas") or found.get("GlobalTableVersion"):
        regions = ", ".join(sorted(replica["RegionName"] for replica in found.get("Replicas") or [])) or "other regions"
        raise ConfigError(
            f"Expected the table {table.name} in one region, got a global table with replicas in {regions}: "
            "conditional writes of different regions do not see each other, and a timer would be sent by two owners. "
            "Remove the replicas, or give a prefix of tables without"
        )


def _key(key: tuple[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(key, ("HASH", "RANGE"), strict=True)]


def _index(index: Index | None) -> list[dict[str, object]]:
    if index is None:
        return []
    projection = {"ProjectionType": index.projection}
    return [{"IndexName": index.name, "KeySchema": _key(index.key), "Projection": projection}]


async def _create(client: Client, table: Table) -> None:
    if await _status(client, table.name) is not None:
        return
    indexes = {"LocalSecondaryIndexes": _index(table.local), "GlobalSecondaryIndexes": _index(table.everywhere)}
    try:
        await client.call(
            "create_table",
            TableName=table.name,
            KeySchema=_key(table.key),
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in table.types.items()],
            BillingMode="PAY_PER_REQUEST",
            **{name: index for name, index in indexes.items() if index},
        )
    except StoreUnavailable:
        # Another process may be creating it. Whatever went wrong, a table that is there now is the one we wanted.
        if await _status(client, table.name) is None:
            raise


async def _description(client: Client, table: str) -> Answer | None:
    try:
        answer = await client.call("describe_table", TableName=table)
    except TableMissing:
        return None
    description: Answer = answer["Table"]
    return description


async def _status(client: Client, table: str) -> str | None:
    description = await _description(client, table)
    return None if description is None else str(description["TableStatus"])


async def _until_active(client: Client, table: str) -> None:
    for _ in range(_WAITS):
        if await _status(client, table) == "ACTIVE":
            return
        await asyncio.sleep(_WAIT_SECONDS)
    raise client.unavailable(f"the table {table} did not become active")


async def _expire_by(client: Client, table: str, attribute: str) -> None:
    if await _expires(client, table):
        return
    try:
        setting = {"Enabled": True, "AttributeName": attribute}
        await client.call("update_time_to_live", TableName=table, TimeToLiveSpecification=setting)
    except StoreUnavailable:
        if not await _expires(client, table):  # otherwise another process was faster
            raise


async def _expires(client: Client, table: str) -> bool:
    answer = await client.call("describe_time_to_live", TableName=table)
    return answer["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLING", "ENABLED")
