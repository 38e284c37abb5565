"""Makes rows unreadable behind a store's back, with each database's own means."""

from __future__ import annotations

import asyncio
from typing import Protocol

import apsw

from mainspring.model import TimerKey
from mainspring.stores.cassandra.address import address_from_url as cassandra_address
from mainspring.stores.cassandra.connection import Connection
from mainspring.stores.dynamodb.address import address_from_url as dynamodb_address
from mainspring.stores.dynamodb.client import Client
from mainspring.stores.dynamodb.items import history_timer, row_key
from mainspring.stores.mongodb.connection import collections_of, database_name, make_client
from mainspring.stores.mongodb.documents import row_id
from mainspring.stores.sql.address import parse_address
from mainspring.stores.sql.schema import Names
from tests.support.sql_databases import OPTIONS, Database

SPOILED = {"detail": '{"executeAt": "soon"', "state": "wandering", "payload": '{"a"z1}'}


class Spoiling(Protocol):
    async def timer(self, key: TimerKey, what: str) -> None: ...
    async def attempt(self, key: TimerKey) -> None: ...


class SpoilingSQLite:
    """With bytes that are no text, as a flipped bit leaves them."""

    def __init__(self, url: str) -> None:
        self.path = url.removeprefix("sqlite:///")

    async def timer(self, key: TimerKey, what: str) -> None:
        value = {"detail": "CAST(x'7bff' AS TEXT)"}.get(what, f"'{SPOILED[what]}'")
        self.run(f"UPDATE timers SET {what} = {value} WHERE shard_id = ? AND uuid = ?", key)

    async def attempt(self, key: TimerKey) -> None:
        self.run("UPDATE history SET document = CAST(x'7bff' AS TEXT) WHERE shard_id = ? AND uuid = ?", key)

    def run(self, statement: str, key: TimerKey) -> None:
        self.run_any(statement, key.shard_id, key.uuid)

    def run_any(self, statement: str, *values: int | str) -> None:
        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(2_000)
        connection.execute(statement, values)
        connection.close()


class SpoilingSQL:
    def __init__(self, url: str) -> None:
        self.database = Database(url)
        address = parse_address(url, port=0, options=OPTIONS)
        self.names = Names(address.name("prefix", "mainspring_"), address.name("schema"))

    async def timer(self, key: TimerKey, what: str) -> None:
        await self._run(f"UPDATE {self.names.full('timers')} SET {what} = '{SPOILED[what]}'", key)

    async def attempt(self, key: TimerKey) -> None:
        await self._run(f"UPDATE {self.names.full('history')} SET document = '{{'", key)

    async def _run(self, update: str, key: TimerKey) -> None:
        session = await self.database.connect()
        try:
            await session.begin()
            await session.execute(f"{update} WHERE shard_id = {key.shard_id} AND uuid = '{key.uuid}'", ())
            await session.commit()
        finally:
            await session.close()


class SpoilingMongoDB:
    def __init__(self, url: str) -> None:
        self._url = url

    async def timer(self, key: TimerKey, what: str) -> None:
        async with make_client(self._url) as client:
            timers = collections_of(client, database_name(self._url)).timers
            await timers.update_one({"_id": row_id(key)}, {"$set": {what: SPOILED[what]}})

    async def attempt(self, key: TimerKey) -> None:
        async with make_client(self._url) as client:
            history = collections_of(client, database_name(self._url)).history
            of_timer = {"_id.shard_id": key.shard_id, "_id.uuid": key.uuid}
            await history.update_many(of_timer, {"$set": {"document": 7}})


class SpoilingCassandra:
    def __init__(self, url: str) -> None:
        self._address = cassandra_address(url)

    async def timer(self, key: TimerKey, what: str) -> None:
        value = {"detail": "0x7bff"}.get(what, f"'{SPOILED[what]}'")
        await asyncio.to_thread(self._run, key, 2, f"timer_{what} = {value}")

    async def attempt(self, key: TimerKey) -> None:
        await asyncio.to_thread(self._run, key, 4, "attempt_document = 0x7b")

    def _run(self, key: TimerKey, row_type: int, assignment: str) -> None:
        connection = Connection(self._address)
        connection.connect()
        table = f"{self._address.keyspace}.mainspring_timers"
        found = connection.run(
            f"SELECT at, uuid, entry FROM {table} WHERE shard_id = {key.shard_id} AND row_type = {row_type}"
        )
        for at, uuid, entry in found:
            if uuid == key.uuid:
                assert isinstance(entry, bytes)
                connection.run(
                    f"UPDATE {table} SET {assignment} WHERE shard_id = {key.shard_id} AND row_type = {row_type} "
                    f"AND at = {at!r} AND uuid = '{uuid!s}' AND entry = 0x{entry.hex()}"
                )
        connection.close()


class SpoilingDynamoDB:
    def __init__(self, url: str) -> None:
        self._address = dynamodb_address(url)

    async def timer(self, key: TimerKey, what: str) -> None:
        await self._set(self._address.timers, row_key(key.shard_id, key.uuid), what, SPOILED[what])

    async def attempt(self, key: TimerKey) -> None:
        client = Client(self._address)
        await client.open()
        answer = await client.call(
            "query",
            TableName=self._address.history,
            KeyConditionExpression="#timer = :timer",
            ExpressionAttributeNames={"#timer": "timer"},
            ExpressionAttributeValues={":timer": {"S": history_timer(key)}},
        )
        await client.close()
        for item in answer["Items"]:
            entry = {"timer": item["timer"], "entry": item["entry"]}
            await self._set(self._address.history, entry, "document", "{")

    async def _set(self, table: str, key: dict[str, dict[str, object]], name: str, value: str) -> None:
        client = Client(self._address)
        await client.open()
        await client.call(
            "update_item",
            TableName=table,
            Key=key,
            UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues={":value": {"S": value}},
        )
        await client.close()


def spoiling(url: str) -> Spoiling:
    match url.partition(":")[0]:
        case "sqlite":
            return SpoilingSQLite(url)
        case "postgresql" | "mysql":
            return SpoilingSQL(url)
        case "mongodb":
            return SpoilingMongoDB(url)
        case "cassandra":
            return SpoilingCassandra(url)
        case "dynamodb":
            return SpoilingDynamoDB(url)
        case scheme:
            raise AssertionError(f"Expected a store whose rows can be spoiled, got {scheme}")
