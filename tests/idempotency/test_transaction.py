"""Effect and outcome in the caller's own transaction: both, or neither."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiosqlite
import apsw
import asyncmy
import asyncpg  # type: ignore[import-untyped]
import psycopg
import pymysql
import pytest

from mainspring.errors import ConfigError, InvalidInput
from mainspring.idempotency import (
    AsyncIdempotentProcessor,
    IdempotentProcessor,
    InMemoryStore,
    KeyReuse,
    NotDone,
    NotRecorded,
    PostgresStore,
    Resolved,
    SQLiteStore,
    UnknownOutcome,
    Unresolved,
    UrlStore,
)
from tests.servers.fixtures import server_params
from tests.servers.mysql import MySQL
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

    def records(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM records").get)

    def close(self) -> None:
        self.connection.close()
        self.store.close()


class OnSqlite3:
    """With Python's own SQLite library: the store makes the tables, and is closed before anybody connects."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "app.db")
        self.store = SQLiteStore(self.path)
        made = IdempotentProcessor(self.store, place, scope="tables")
        made.open()
        made.close()
        self.connection = self.connect()
        self.connection.execute(ORDERS)

    def connect(self) -> Any:
        return sqlite3.connect(self.path, timeout=10, check_same_thread=False)

    def orders(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM orders").fetchone()[0])

    def records(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM records").fetchone()[0])

    def close(self) -> None:
        self.connection.close()
        self.store.close()


class Executing(pymysql.connections.Connection):
    """PyMySQL's connection, and `execute`, as the others have it."""

    def execute(self, sql: str) -> Any:
        cursor = self.cursor()
        cursor.execute(sql)
        return cursor


class OnMySQL:
    def __init__(self, url: str) -> None:
        self.url = urlsplit(url)
        self.prefix = dict(parse_qsl(self.url.query)).get("prefix", "mainspring_")
        self.store = UrlStore(url)
        self.connection = self.connect()
        self._run("DROP TABLE IF EXISTS orders")
        self._run(ORDERS)

    def connect(self) -> Any:
        url = self.url
        return Executing(
            host=url.hostname,
            port=url.port or 3306,
            user=url.username,
            password=url.password or "",
            database=url.path.strip("/"),
        )

    def _run(self, sql: str) -> Any:
        with closing(self.connect()) as connection:
            return connection.execute(sql).fetchall()

    def orders(self) -> int:
        return int(self._run("SELECT count(*) FROM orders")[0][0])

    def records(self) -> int:
        return int(self._run(f"SELECT count(*) FROM {self.prefix}records WHERE collection = 'idempotency'")[0][0])

    def close(self) -> None:
        self.connection.close()
        self.store.close()


class OnPostgreSQL:
    def __init__(self, url: str) -> None:
        self.schema = dict(parse_qsl(url.partition("?")[2]))["schema"]
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

    def records(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(f"SELECT count(*) FROM {self.schema}.mainspring_records").fetchone()
            assert row is not None
            return int(row[0])

    def close(self) -> None:
        self.connection.close()
        self.store.close()


Place = OnSQLite | OnSqlite3 | OnPostgreSQL | OnMySQL


@pytest.fixture(params=["sqlite", "sqlite3", *server_params("postgresql", "mysql")])
def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place
    match request.param:
        case "sqlite":
            made = OnSQLite(tmp_path)
        case "sqlite3":
            made = OnSqlite3(tmp_path)
        case "mysql":
            made = OnMySQL(request.getfixturevalue("mysql").empty())
        case _:
            made = OnPostgreSQL(request.getfixturevalue("postgresql").empty())
    yield made
    made.close()


def _processor(place_of: Place, work: Any = place, **options: Any) -> IdempotentProcessor[Any, Any]:
    processor: IdempotentProcessor[Any, Any] = IdempotentProcessor(place_of.store, work, scope="orders", **options)
    if not isinstance(place_of, OnSqlite3):
        processor.open()
    return processor


def test_effect_and_outcome_commit_together(place_of: Place) -> None:
    processor = _processor(place_of)
    for was_replay in (False, True, True):
        with _transaction(place_of) as connection:
            record = processor.process("o1", connection=connection)
            assert (record.result, record.was_replay) == ("placed o1", was_replay)
    assert place_of.orders() == 1
    if not isinstance(place_of, OnSqlite3):
        assert _processor(place_of).process("o1").was_replay, "without a transaction, too"


def test_after_a_rollback_there_is_neither(place_of: Place) -> None:
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


def test_a_key_is_bound_to_its_payload_in_a_transaction_too(place_of: Place) -> None:
    processor = _processor(place_of)
    with _transaction(place_of) as connection:
        processor.process("o1", "k", connection=connection)
    with pytest.raises(KeyReuse), _transaction(place_of) as connection:
        processor.process("o2", "k", connection=connection)
    assert place_of.orders() == 1


def test_work_that_failed_in_a_committed_transaction_is_unknown(place_of: Place) -> None:
    def half(order: str, connection: Any) -> object:
        place(order, connection)
        return object()

    processor = _processor(place_of, half)
    with _transaction(place_of) as connection, pytest.raises(NotRecorded):
        processor.process("o1", connection=connection)
    with _transaction(place_of) as connection, pytest.raises(UnknownOutcome, match="was committed although"):
        processor.process("o1", connection=connection)
    assert place_of.orders() == 1


def test_transactions_of_one_key_wait_for_each_other(place_of: Place) -> None:
    together = threading.Barrier(6, timeout=10)
    processor = _processor(place_of)

    def ask(_: int) -> bool:
        connection = place_of.connect()
        try:
            together.wait()
            with _committed(connection):
                return processor.process("o1", connection=connection).was_replay
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        replays = list(pool.map(ask, range(6)))
    assert sorted(replays) == [False] + [True] * 5
    assert place_of.orders() == 1


def test_a_forgotten_key_runs_again_in_a_transaction(place_of: Place) -> None:
    processor = _processor(place_of)
    with _transaction(place_of) as connection:
        key = processor.process("o1", connection=connection).key
    if isinstance(place_of, OnSqlite3):
        with pytest.raises(ConfigError, match="is used by sqlite3 in this process"):
            processor.forget(key)
        return
    assert processor.forget(key)
    with _transaction(place_of) as connection:
        assert not processor.process("o1", connection=connection).was_replay
    assert place_of.orders() == 2


def test_a_result_that_is_not_to_be_kept_leaves_the_key_free(place_of: Place) -> None:
    processor = _processor(place_of, keep=lambda result: result != "placed o1")
    for order, was_replay in (("o1", False), ("o1", False), ("o2", False), ("o2", True)):
        with _transaction(place_of) as connection:
            assert processor.process(order, connection=connection).was_replay == was_replay
    assert place_of.orders() == 3


def _left_unknown(place_of: Place, *orders: str) -> None:
    def half(order: str, connection: Any) -> object:
        place(order, connection)
        return object()

    for order in orders:
        with _transaction(place_of) as connection, pytest.raises(NotRecorded):
            _processor(place_of, half).process(order, connection=connection)


def test_what_is_unknown_runs_again_in_a_transaction_where_that_is_harmless(place_of: Place) -> None:
    _left_unknown(place_of, "o1")
    processor = _processor(place_of, safe_to_repeat=True)
    for was_replay in (False, True):
        with _transaction(place_of) as connection:
            assert processor.process("o1", connection=connection).was_replay == was_replay
    assert place_of.orders() == 2


def test_what_is_unknown_is_resolved_in_a_transaction_too(place_of: Place) -> None:
    _left_unknown(place_of, "done", "not", "lost")
    answers = {"done": Resolved("found"), "not": NotDone(), "lost": None}
    asked: list[tuple[str, int]] = []

    def resolve(order: str, unresolved: Unresolved) -> Any:
        asked.append((order, unresolved.attempt))
        return answers[order]

    processor = _processor(place_of, resolve=resolve)
    for order, result in (("done", "found"), ("not", "placed not")):
        for _ in range(2):
            with _transaction(place_of) as connection:
                assert processor.process(order, connection=connection).result == result
    with pytest.raises(UnknownOutcome), _transaction(place_of) as connection:
        processor.process("lost", connection=connection)
    assert asked == [("done", 1), ("not", 1), ("lost", 1)]
    assert place_of.orders() == 4


def test_records_that_have_expired_are_removed_and_their_keys_run_again(
    place_of: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.idempotency.core.PURGE_EVERY", 2)
    brief = _processor(place_of, ttl_seconds=1)
    for number in range(6):
        with _transaction(place_of) as connection:
            brief.process(f"o{number}", connection=connection)
    assert place_of.records() == 6
    time.sleep(1.1)  # the database's clock is nobody's to set
    lasting = _processor(place_of)
    for _ in range(3):
        with _transaction(place_of) as connection:
            lasting.process("o0", connection=connection)
    assert place_of.records() == 1
    assert place_of.orders() == 7


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


async def test_asyncmy_commits_both_or_neither(mysql: MySQL) -> None:
    url = mysql.empty()
    parts = urlsplit(url)

    async def work(order: str, connection: Any) -> str:
        async with connection.cursor() as cursor:
            await cursor.execute(f"INSERT INTO orders VALUES ('{order}')")
        return order

    store = UrlStore(url)
    processor: AsyncIdempotentProcessor[str, str] = AsyncIdempotentProcessor(store, work, scope="orders")
    await processor.open()
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        db=parts.path.strip("/"),
    )
    async with connection.cursor() as cursor:
        await cursor.execute("DROP TABLE IF EXISTS orders")
        await cursor.execute(ORDERS)
    await processor.process("o1", connection=connection)
    await connection.rollback()
    for was_replay in (False, True):
        assert (await processor.process("o1", connection=connection)).was_replay == was_replay
        await connection.commit()
    async with connection.cursor() as cursor:
        await cursor.execute("SELECT count(*) FROM orders")
        assert await cursor.fetchone() == (1,)
    connection.close()
    await store.aclose()


async def test_aiosqlite_commits_both_or_neither(tmp_path: Path) -> None:
    async def work(order: str, connection: Any) -> str:
        await connection.execute(f"INSERT INTO orders VALUES ('{order}')")
        return order

    path = str(tmp_path / "app.db")
    store = SQLiteStore(path)
    processor: AsyncIdempotentProcessor[str, str] = AsyncIdempotentProcessor(store, work, scope="orders")
    await processor.open()
    await processor.aclose()
    async with aiosqlite.connect(path) as connection:
        await connection.execute(ORDERS)
        await processor.process("o1", connection=connection)
        await connection.rollback()
        for was_replay in (False, True):
            assert (await processor.process("o1", connection=connection)).was_replay == was_replay
            await connection.commit()
        with pytest.raises(ConfigError, match="is used by aiosqlite in this process"):
            await processor.process("o2")
        async with connection.execute("SELECT count(*) FROM orders") as cursor:
            assert await cursor.fetchone() == (1,)


def test_other_connections_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    sqlite = IdempotentProcessor(SQLiteStore(path), place, scope="orders")
    memory = IdempotentProcessor(InMemoryStore(), place, scope="orders")
    sqlite.open()
    apsw_connection = apsw.Connection(path)
    other = sqlite3.connect(tmp_path / "b.db")
    with pytest.raises(InvalidInput, match="autocommit"):
        sqlite.process("o1", connection=apsw_connection)
    with pytest.raises(InvalidInput, match=r"Expected an apsw connection, got one of sqlite3.*Close the store"):
        sqlite.process("o1", connection=other)
    with apsw_connection, pytest.raises(InvalidInput, match="to the memory store"):
        memory.process("o1", connection=apsw_connection)
    with pytest.raises(InvalidInput, match="Expected a connection or session"):
        sqlite.process("o1", connection=object())
    other.close()
    apsw_connection.close()
    sqlite.close()


@contextmanager
def _transaction(place_of: Place) -> Iterator[Any]:
    """A block that commits at its end, or rolls back."""
    connection = place_of.connection
    with connection.transaction() if isinstance(place_of, OnPostgreSQL) else _committed(connection):
        yield connection


@contextmanager
def _committed(connection: Any) -> Iterator[None]:
    """The same for a connection that need not stay open."""
    if not isinstance(connection, Executing):
        with connection:
            yield
        return
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
