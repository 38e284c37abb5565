"""Effect and outcome in the caller's own transaction: both, or neither."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest

from mainspring.errors import InvalidInput
from mainspring.idempotency import (
    AsyncIdempotentProcessor,
    IdempotentProcessor,
    InMemoryStore,
    KeyReuse,
    NotRecorded,
    PostgresStore,
    SQLiteStore,
    UnknownOutcome,
)
from tests.servers.postgresql import PostgreSQL

ORDERS = "CREATE TABLE IF NOT EXISTS orders (name VARCHAR(100))"


def place(order: str, connection: Any) -> str:
    connection.execute(f"INSERT INTO orders VALUES ('{order}')")
    return f"placed {order}"


class OnSQLite:
    def __init__(self, path: Path) -> None:
        self.path = str(path / "app.db")
        self.store = SQLiteStore(self.path)
        self.connection = self.connect()
        self.connection.execute(ORDERS)

    def connect(self) -> Any:
        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(10_000)
        return connection

    def orders(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM orders").get)

    def close(self) -> None:
        self.connection.close()
        self.store.close()


class OnPostgreSQL:
    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0]  # what follows is for the store: its tables have a schema of their own
        self.store = PostgresStore(url)
        with psycopg.connect(self.url) as connection:
            connection.execute("DROP TABLE IF EXISTS orders")
            connection.execute(ORDERS)
        self.connection = self.connect()

    def connect(self) -> Any:
        return psycopg.connect(self.url)

    def orders(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT count(*) FROM orders").fetchone()
            assert row is not None
            return int(row[0])

    def close(self) -> None:
        self.connection.close()
        self.store.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server("postgresql"))])
def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OnSQLite | OnPostgreSQL]:
    made: OnSQLite | OnPostgreSQL
    if request.param == "sqlite":
        made = OnSQLite(tmp_path)
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        made = OnPostgreSQL(server.empty())
    yield made
    made.close()


def _processor(place_of: OnSQLite | OnPostgreSQL, work: Any = place) -> IdempotentProcessor[Any, Any]:
    processor: IdempotentProcessor[Any, Any] = IdempotentProcessor(place_of.store, work, scope="orders")
    processor.open()
    return processor


def test_effect_and_outcome_commit_together(place_of: OnSQLite | OnPostgreSQL) -> None:
    processor = _processor(place_of)
    for was_replay in (False, True, True):
        with _transaction(place_of) as connection:
            record = processor.process("o1", connection=connection)
            assert (record.result, record.was_replay) == ("placed o1", was_replay)
    assert place_of.orders() == 1
    assert _processor(place_of).process("o1").was_replay, "without a transaction, too"


def test_after_a_rollback_there_is_neither(place_of: OnSQLite | OnPostgreSQL) -> None:
    processor = _processor(place_of)

    def place_and_fail() -> None:
        with _transaction(place_of) as connection:
            processor.process("o1", connection=connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        place_and_fail()
    assert place_of.orders() == 0
    with _transaction(place_of) as connection:
        assert not processor.process("o1", connection=connection).was_replay
    assert place_of.orders() == 1


def test_a_key_is_bound_to_its_payload_in_a_transaction_too(place_of: OnSQLite | OnPostgreSQL) -> None:
    processor = _processor(place_of)
    with _transaction(place_of) as connection:
        processor.process("o1", "k", connection=connection)
    with pytest.raises(KeyReuse), _transaction(place_of) as connection:
        processor.process("o2", "k", connection=connection)
    assert place_of.orders() == 1


def test_work_that_failed_in_a_committed_transaction_is_unknown(place_of: OnSQLite | OnPostgreSQL) -> None:
    def half(order: str, connection: Any) -> object:
        place(order, connection)
        return object()

    processor = _processor(place_of, half)
    with _transaction(place_of) as connection, pytest.raises(NotRecorded):
        processor.process("o1", connection=connection)
    with _transaction(place_of) as connection, pytest.raises(UnknownOutcome, match="was committed although"):
        processor.process("o1", connection=connection)
    assert place_of.orders() == 1


def test_transactions_of_one_key_wait_for_each_other(place_of: OnSQLite | OnPostgreSQL) -> None:
    together = threading.Barrier(6, timeout=10)
    processor = _processor(place_of)

    def ask(_: int) -> bool:
        connection = place_of.connect()
        try:
            together.wait()
            with connection:
                return processor.process("o1", connection=connection).was_replay
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        replays = list(pool.map(ask, range(6)))
    assert sorted(replays) == [False] + [True] * 5
    assert place_of.orders() == 1


def test_a_forgotten_key_runs_again_in_a_transaction(place_of: OnSQLite | OnPostgreSQL) -> None:
    processor = _processor(place_of)
    with _transaction(place_of) as connection:
        key = processor.process("o1", connection=connection).key
    assert processor.forget(key)
    with _transaction(place_of) as connection:
        assert not processor.process("o1", connection=connection).was_replay
    assert place_of.orders() == 2


async def test_asyncpg_commits_both_or_neither(postgresql: PostgreSQL) -> None:
    url = postgresql.empty()

    async def work(order: str, connection: Any) -> str:
        await connection.execute(f"INSERT INTO orders VALUES ('{order}')")
        return order

    store = PostgresStore(url)
    processor: AsyncIdempotentProcessor[str, str] = AsyncIdempotentProcessor(store, work, scope="orders")
    await processor.open()
    connection = await asyncpg.connect(url.partition("?")[0])
    await connection.execute(f"DROP TABLE IF EXISTS orders; {ORDERS}")

    async def place_and_fail() -> None:
        async with connection.transaction():
            await processor.process("o1", connection=connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await place_and_fail()
    for was_replay in (False, True):
        async with connection.transaction():
            assert (await processor.process("o1", connection=connection)).was_replay == was_replay
    assert await connection.fetchval("SELECT count(*) FROM orders") == 1
    await connection.close()
    await store.aclose()


def test_other_connections_are_refused(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415

    path = str(tmp_path / "a.db")
    sqlite = IdempotentProcessor(SQLiteStore(path), place, scope="orders")
    memory = IdempotentProcessor(InMemoryStore(), place, scope="orders")
    sqlite.open()
    apsw_connection = apsw.Connection(path)
    other = sqlite3.connect(tmp_path / "b.db")
    with pytest.raises(InvalidInput, match="autocommit"):
        sqlite.process("o1", connection=apsw_connection)
    with pytest.raises(InvalidInput, match="Expected an apsw connection"):
        sqlite.process("o1", connection=other)
    with apsw_connection, pytest.raises(InvalidInput, match="to the memory store"):
        memory.process("o1", connection=apsw_connection)
    with pytest.raises(InvalidInput, match="Expected a connection or session"):
        sqlite.process("o1", connection=object())
    other.close()
    apsw_connection.close()
    sqlite.close()


@contextmanager
def _transaction(place_of: OnSQLite | OnPostgreSQL) -> Iterator[Any]:
    """A block that commits at its end, or rolls back."""
    connection = place_of.connection
    with connection if isinstance(place_of, OnSQLite) else connection.transaction():
        yield connection
