"""The tables, in numbered migrations, and how they are made: each step may be repeated, by several processes at once.

The number of the newest migration stands in the records table, in a partition that no collection can have.
A migration that was released is never edited; a change is a new one at the end of the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.stores.dynamodb.client import Client, Invalid, TableMissing
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


async def _first_tables(client: Client) -> None:
    """Timers with their due order beside them; history by timer, and by age for pruning; records with their expiry."""
    names = client.address
    everything, keys = {"ProjectionType": "ALL"}, {"ProjectionType": "KEYS_ONLY"}
    due: dict[str, object] = {"IndexName": DUE_INDEX, "KeySchema": _key("shard_id", "due"), "Projection": everything}
    age: dict[str, object] = {"IndexName": AGE_INDEX, "KeySchema": _key("shard_id", "entry"), "Projection": keys}
    await _create(client, names.timers, _key("shard_id", "uuid"), "shard_id:N uuid:S due:S", local=[due])
    await _create(client, names.history, _key("timer", "entry"), "timer:S entry:S shard_id:N", everywhere=[age])
    await _create(client, names.records, _key("partition", "key"), "partition:S key:S")
    for table in (names.timers, names.history, names.records):
        await _until_active(client, table)
    await _expire_by(client, names.records, "expires_s")


MIGRATIONS: Final = (Migration(1, "timers, history, records", _first_tables),)


async def pending(client: Client) -> list[Migration]:
    """The migrations that these tables lack. Tables that have unknown ones are refused."""
    known = MIGRATIONS[-1].number
    newest = await _newest(client)
    if newest > known:
        raise ConfigError(
            f"Expected tables with at most migration {known}, got {newest} in {client.address}: "
            "a newer Mainspring has been here, and only it may use them"
        )
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
    if await _status(client, client.address.records) != "ACTIVE":
        return 0
    answer = await client.call("get_item", TableName=client.address.records, Key=_MARK, ConsistentRead=True)
    return int(answer["Item"]["number"]["N"]) if "Item" in answer else 0


def _key(partition: str, order: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": order, "KeyType": "RANGE"}]


async def _create(
    client: Client,
    table: str,
    key: list[dict[str, str]],
    attributes: str,
    *,
    local: list[dict[str, object]] | None = None,
    everywhere: list[dict[str, object]] | None = None,
) -> None:
    if await _status(client, table) is not None:
        return
    pairs = (attribute.split(":") for attribute in attributes.split())
    indexes = {"LocalSecondaryIndexes": local, "GlobalSecondaryIndexes": everywhere}
    try:
        await client.call(
            "create_table",
            TableName=table,
            KeySchema=key,
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in pairs],
            BillingMode="PAY_PER_REQUEST",
            **{name: index for name, index in indexes.items() if index},
        )
    except StoreUnavailable:
        # Another process may be creating it. Whatever it was: a table that is there now is the table that was wanted.
        if await _status(client, table) is None:
            raise


async def _status(client: Client, table: str) -> str | None:
    try:
        answer = await client.call("describe_table", TableName=table)
    except TableMissing:
        return None
    status: str = answer["Table"]["TableStatus"]
    return status


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
    except (Invalid, StoreUnavailable):
        if not await _expires(client, table):  # otherwise another process was faster
            raise


async def _expires(client: Client, table: str) -> bool:
    answer = await client.call("describe_time_to_live", TableName=table)
    return answer["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLING", "ENABLED")
