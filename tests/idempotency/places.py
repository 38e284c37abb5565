"""The stores that the library is tested on, by URL: tests and the processes that they start make them alike."""

from __future__ import annotations

from mainspring.idempotency import InMemoryStore, PostgresStore, RedisStore, SQLiteStore, UrlStore
from mainspring.idempotency.stores import IdempotencyStore


def store_at(url: str) -> IdempotencyStore:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            return InMemoryStore()
        case "sqlite":
            return SQLiteStore(rest.removeprefix("/"))
        case "postgresql":
            return PostgresStore(url)
        case "redis":
            return RedisStore(url)
        case _:
            return UrlStore(url)
