"""A table of our name that is not ours: refused at the start, with its name and what was expected, and left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pymongo import ASCENDING

from mainspring.clock import SystemClock
from mainspring.errors import ConfigError
from mainspring.stores.cassandra import CassandraStore
from mainspring.stores.cassandra.address import address_from_url as cassandra_address
from mainspring.stores.cassandra.connection import Connection
from mainspring.stores.dynamodb import dynamodb_store
from mainspring.stores.dynamodb.address import address_from_url as dynamodb_address
from mainspring.stores.dynamodb.client import Client
from mainspring.stores.mongodb import MongoDBStore
from mainspring.stores.mongodb.connection import Collections, collections_of, make_client
from tests.servers.cassandra import Cassandra
from tests.servers.dynamodb import DynamoDB
from tests.servers.mongodb import MongoDB


class TestDynamoDB:
    @pytest.fixture
    def url(self, dynamodb: DynamoDB) -> str:
        return dynamodb.fresh()

    @pytest.fixture
    async def client(self, url: str) -> AsyncIterator[Client]:
        client = Client(dynamodb_address(url))
        await client.open()
        yield client
        await client.close()

    async def make(self, client: Client, table: str, key: str, kind: str = "S") -> None:
        await client.call(
            "create_table",
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind}],
            BillingMode="PAY_PER_REQUEST",
        )

    @pytest.mark.parametrize("kind", ["timers", "history", "records"])
    async def test_a_table_with_another_key_is_refused(self, url: str, client: Client, kind: str) -> None:
        name = f"{client.address.prefix}-{kind}"
        await self.make(client, name, "order")
        with pytest.raises(ConfigError, match=rf"{name} .*with the key .*order \(S\)"):
            await dynamodb_store(url, clock=SystemClock()).open()

    async def test_a_table_with_our_key_and_without_our_index_is_refused(self, url: str, client: Client) -> None:
        name = client.address.timers
        await client.call(
            "create_table",
            TableName=name,
            KeySchema=[
                {"AttributeName": "shard_id", "KeyType": "HASH"},
                {"AttributeName": "uuid", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "shard_id", "AttributeType": "N"},
                {"AttributeName": "uuid", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        with pytest.raises(ConfigError, match=rf"{name} .*by_due"):
            await dynamodb_store(url, clock=SystemClock()).open()

    async def test_a_table_that_was_lost_is_missed_and_not_made_anew(self, url: str, client: Client) -> None:
        await dynamodb_store(url, clock=SystemClock()).migrate()
        await client.call("delete_table", TableName=client.address.history)
        with pytest.raises(ConfigError, match=rf"{client.address.history}.*none"):
            await dynamodb_store(url, clock=SystemClock()).open()


class TestCassandra:
    async def run(self, url: str, *statements: str) -> None:
        def act() -> None:
            address = cassandra_address(url)
            connection = Connection(address)
            try:
                connection.connect()
                connection.run(
                    f"CREATE KEYSPACE IF NOT EXISTS {address.keyspace} WITH replication ="
                    " {'class': 'SimpleStrategy', 'replication_factor': 1}"
                )
                for statement in statements:
                    connection.run(statement.format(keyspace=address.keyspace), seconds=20)
            finally:
                connection.close()

        await asyncio.to_thread(act)

    @pytest.mark.parametrize(
        ("table", "columns", "wrong"),
        [
            ("mainspring_timers", "id uuid PRIMARY KEY, note text", "shard_id"),
            ("mainspring_records", "collection text, slot text, key text, value text, version bigint,"
             " expires_at bigint, PRIMARY KEY ((collection, slot), key)", "value blob"),
            ("mainspring_records", "collection text, slot text, key text, value blob, version bigint,"
             " expires_at bigint, PRIMARY KEY (collection, slot, key)", "slot"),
            ("mainspring_migrations", "id int PRIMARY KEY", "number int"),
            ("mainspring_migration_lease", "id int PRIMARY KEY", "lease int"),
        ],
    )  # fmt: skip
    async def test_a_table_with_other_columns_is_refused(
        self, cassandra: Cassandra, table: str, columns: str, wrong: str
    ) -> None:
        url = await asyncio.to_thread(cassandra.fresh)
        await self.run(url, f"CREATE TABLE {{keyspace}}.{table} ({columns})")
        async with asyncio.timeout(15):
            with pytest.raises(ConfigError, match=rf"{table} .*{wrong}"):
                await CassandraStore(url).open()

    async def test_a_table_with_a_column_more_is_ours(self, cassandra: Cassandra) -> None:
        url = await asyncio.to_thread(cassandra.fresh)
        await CassandraStore(url).migrate()
        await self.run(url, "ALTER TABLE {keyspace}.mainspring_timers ADD note text")
        store = CassandraStore(url)
        await store.open()
        await store.close()


class TestMongoDB:
    @pytest.fixture
    def url(self, mongodb: MongoDB) -> str:
        return mongodb.fresh()

    @pytest.fixture
    async def raw(self, url: str) -> AsyncIterator[Collections]:
        async with make_client(url) as client:
            yield collections_of(client, url.rpartition("/")[2].partition("?")[0])

    @pytest.mark.parametrize("kind", ["timers", "shards", "records"])
    async def test_a_collection_without_our_rule_is_refused(self, url: str, raw: Collections, kind: str) -> None:
        """Without it a write that fails its condition would leave a document behind."""
        await raw.timers.database.create_collection(f"mainspring_{kind}")
        with pytest.raises(ConfigError, match=rf"mainspring_{kind} .*validator"):
            await MongoDBStore(url).open()

    @pytest.mark.parametrize("kind", ["timers", "shards", "history", "records"])
    async def test_a_collection_with_other_documents_is_refused(self, url: str, raw: Collections, kind: str) -> None:
        await MongoDBStore(url).migrate()
        await getattr(raw, kind).insert_one({"_id": "order-1", "note": "not ours"})
        with pytest.raises(ConfigError, match=rf"mainspring_{kind} .*documents"):
            await MongoDBStore(url).open()

    async def test_an_index_of_our_name_with_another_key_is_refused(self, url: str, raw: Collections) -> None:
        await raw.history.create_index([("note", ASCENDING)], name="age")
        with pytest.raises(ConfigError, match=r"mainspring_history .*age"):
            await MongoDBStore(url).open()

    async def test_an_index_that_was_dropped_is_missed(self, url: str, raw: Collections) -> None:
        await MongoDBStore(url).migrate()
        await raw.timers.drop_index("due")
        with pytest.raises(ConfigError, match=r"mainspring_timers .*due"):
            await MongoDBStore(url).open()

    async def test_a_view_of_our_name_is_refused(self, url: str, raw: Collections) -> None:
        await raw.timers.database.create_collection("mainspring_timers", viewOn="orders", pipeline=[])
        with pytest.raises(ConfigError, match=r"mainspring_timers .*view"):
            await MongoDBStore(url).open()

    async def test_a_mark_of_migrations_that_is_none_is_refused(self, url: str, raw: Collections) -> None:
        await raw.schema.insert_one({"_id": "schema", "note": "not ours"})
        with pytest.raises(ConfigError, match=r"mainspring_schema"):
            await MongoDBStore(url).open()
