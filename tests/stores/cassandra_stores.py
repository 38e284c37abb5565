"""Stores on a real Cassandra, and what is in its tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainspring.stores.cassandra import CassandraStore
from mainspring.stores.cassandra.address import address_from_url
from mainspring.stores.cassandra.connection import Connection, Row


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[CassandraStore]:
    store = CassandraStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def rows_of(url: str, query: str) -> list[Row]:
    """What the server itself says."""

    def ask() -> list[Row]:
        address = address_from_url(url)
        connection = Connection(address)
        try:
            connection.connect()
            return connection.run(query.format(keyspace=address.keyspace))
        finally:
            connection.close()

    return await asyncio.to_thread(ask)
