"""Claims in the databases that Mainspring has a record store for.

Importing this loads no driver and no asyncio: `loop_stores`, `sqlite` and `redis` do, when a store is made.
"""

# ruff: noqa: PLC0415  (see the docstring)

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from mainspring.clock import Clock
from mainspring.errors import ConfigError, Unsupported
from mainspring.idempotency.claims import ClaimStore, StoreClock
from mainspring.idempotency.entries import COLLECTION, NOTES
from mainspring.model import Record
from mainspring.store import PurgesRecords, RecordStore


class TimedRecords(RecordStore, Protocol):
    """A record store that tells its database's time. All of Mainspring's do."""

    async def time(self) -> int: ...


class RecordClaims:
    """The verbs, on records."""

    def __init__(
        self, records: Callable[[], Awaitable[TimedRecords]], *, looks_first: bool, clock: Clock | None = None
    ) -> None:
        self._records = records
        self.looks_first = looks_first
        self.clock = StoreClock(clock)

    async def time(self) -> int:
        if self.clock.is_stale:
            return await self.clock.ask((await self._records()).time)
        return self.clock.now_ms()

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        records = await self._records()
        while await records.put_record(COLLECTION, address, value, expect=0, now=now, first=version) is None:
            present = await records.get_record(COLLECTION, address, now=now)
            if present is not None:
                return present
        return None

    async def look(self, address: str, *, now: int) -> Record | None:
        return await (await self._records()).get_record(COLLECTION, address, now=now)

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        records = await self._records()
        written = await records.put_record(COLLECTION, address, value, expect=expect, now=now, expires_at=expires_at)
        return written is not None

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        return await (await self._records()).delete_record(COLLECTION, address, expect=expect, now=now)

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        await (await self._records()).put_record(NOTES, address, value, expect=0, now=now)

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        return await (await self._records()).scan_records(NOTES, now=now, after=after, limit=limit)

    async def strike(self, note: Record, *, now: int) -> None:
        await (await self._records()).delete_record(NOTES, note.key, expect=note.version, now=now)

    async def purge(self, *, now: int) -> None:
        records = await self._records()
        if isinstance(records, PurgesRecords):
            await records.purge_records(now=now)


class UrlStore:
    """Claims in the database named by a store URL: PostgreSQL, MySQL, MongoDB, Cassandra, DynamoDB, Redis, SQLite."""

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise ConfigError(f"Expected text as the URL of a store, got {type(url).__qualname__}")
        from mainspring.idempotency.stores.loop_stores import LoopStores

        self._opened = LoopStores(url)

    @property
    def database(self) -> str:
        return self._opened.database

    @property
    def tables(self) -> str:
        return self._opened.tables

    def waiting(self) -> ClaimStore:
        return self._opened.waiting()

    def blocking(self) -> ClaimStore:
        return self._opened.blocking()

    def close(self) -> None:
        self._opened.close()

    async def aclose(self) -> None:
        await self._opened.aclose()


class _ThreadClaims(ClaimStore, Protocol):
    def close(self) -> None: ...


class _StoreForThreads(UrlStore):
    """One that serves threads in a way of its own, without an event loop in between."""

    _claims: _ThreadClaims

    def blocking(self) -> ClaimStore:
        return self._claims

    def close(self) -> None:
        self._claims.close()
        super().close()

    async def aclose(self) -> None:
        self._claims.close()
        await super().aclose()


class PostgresStore(UrlStore):
    """Claims in PostgreSQL: `postgresql://user:password@host:port/database?schema=…&prefix=…`."""

    def __init__(self, dsn: str) -> None:
        if not isinstance(dsn, str) or not dsn.startswith("postgresql://"):
            raise ConfigError("Expected postgresql://user:password@host:port/database, got something else")
        super().__init__(dsn)


class SQLiteStore(_StoreForThreads):
    """Claims in the file at `path`, which is created with its directory if it does not exist."""

    def __init__(self, path: str | os.PathLike[str], *, busy_ms: int = 5_000) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "://" in os.fspath(path):
            raise ConfigError("Expected the path of a file, such as app.db, got something else: UrlStore takes a URL")
        from mainspring.idempotency.stores.sqlite import SQLiteClaims

        super().__init__(f"sqlite:///{os.fspath(path)}")
        self._claims: SQLiteClaims = SQLiteClaims(os.fspath(path), busy_ms=busy_ms)

    def lend_file(self, driver: str) -> None:
        self._claims.lend_file(driver)
        self._opened.refuse(self._claims.check_lent)


class RedisStore(_StoreForThreads):
    """Claims at `redis://user:password@host:port/database?prefix=text`, or `rediss://` for TLS."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        from mainspring.stores import missing_driver
        from mainspring.stores.redis.address import address_from_url

        try:
            from mainspring.idempotency.stores.redis import RedisClaims
        except ModuleNotFoundError as error:
            raise missing_driver(error, extra="redis") from error
        self._claims = RedisClaims(address_from_url(url))


class RecordsStore:
    """Claims in a record store that is open already, for asyncio, on its own event loop. Its owner closes it."""

    database = "records"
    tables = ""

    def __init__(self, records: TimedRecords, *, clock: Clock | None = None) -> None:
        """`clock` is this machine's, unless a simulation has another."""
        self._records = records
        self._clock = clock

    def waiting(self) -> ClaimStore:
        async def records() -> TimedRecords:
            return self._records

        return RecordClaims(records, looks_first=False, clock=self._clock)

    def blocking(self) -> ClaimStore:
        raise Unsupported(
            "Expected a store that can be opened for threads, got an open record store, which belongs to its event loop"
        )

    def close(self) -> None:
        """Nothing of its own."""

    async def aclose(self) -> None:
        """Nothing of its own."""
