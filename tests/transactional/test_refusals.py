"""What is refused, before anything is written: the caller's transaction stays as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiosqlite
import apsw
import asyncmy
import asyncpg  # type: ignore[import-untyped]
import msgspec
import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine, event

from mainspring import Mainspring
from mainspring.errors import ConfigError, InvalidInput, NotFound
from mainspring.transactional import TimerWriter
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.transactional.conftest import Database


@pytest.fixture
def place(databases: Callable[[str], Database]) -> str:
    return databases("sqlite").place


@pytest.fixture
def connection(place: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(place)) as connection:
        yield connection


BAD_FIELDS: list[dict[str, Any]] = [
    {"handler": "note"},
    {"handler": "note", "url": "https://example.com/", "in_seconds": 1},
    {"in_seconds": 1},
    {"handler": "note", "in_seconds": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
    {"handler": "note", "in_seconds": -1},
    {"handler": "note", "at": datetime(2030, 1, 1)},  # noqa: DTZ001
    {"handler": "note", "in_seconds": 1, "payload": "x" * 200_000},
    {"handler": "note", "in_seconds": 1, "timeout_seconds": 0},
    {"url": "ftp://example.com/", "in_seconds": 1},
    {"url": "http://10.0.0.1/", "in_seconds": 1},
    {"url": "https://example.com/", "in_seconds": 1, "headers": {"Host": "other"}},
    {"url": "https://example.com/", "in_seconds": 1, "headers": {"X": "a\r\nb"}},
    {"url": "https://example.com/", "in_seconds": 1, "labels": {"a": "\x00"}},
    {"handler": "note", "in_seconds": 1, "payload": {"a": "\x00"}},
    {"handler": "note", "in_seconds": 1, "payload": {"a": 2**70}},
    {"handler": "note", "in_seconds": 1, "payload": msgspec.json.decode(b"[" * 60 + b"]" * 60)},
    {"handler": "note", "in_seconds": 1, "payload": [float("nan")]},
    {"handler": "note", "in_seconds": 1, "payload": "\ud800"},
    {"handler": "note", "in_seconds": 1, "payload": object()},
    {"handler": "note", "in_seconds": 1, "labels": {"a": "\ud800"}},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=range(len(BAD_FIELDS)))
async def test_what_the_service_refuses_is_refused_in_the_same_words(
    connection: sqlite3.Connection, fields: dict[str, Any]
) -> None:
    connection.execute("INSERT INTO orders VALUES ('kept')")
    with pytest.raises(InvalidInput) as here:
        TimerWriter("app").create(connection, "bad", **fields)
    async with Mainspring("memory://") as ms:

        @ms.handler("note")
        async def note(_: object) -> None: ...

        await ms.create_namespace("app")
        with pytest.raises(InvalidInput) as there:
            await ms.timers.create("app", "bad", **fields)
    assert here.value.detail == there.value.detail
    assert here.value.errors == there.value.errors
    assert connection.execute("SELECT COUNT(*) FROM orders WHERE name = 'kept'").fetchone() == (1,)
    assert connection.execute("SELECT COUNT(*) FROM timers WHERE timer_id = 'bad'").fetchone() == (0,)


@pytest.mark.parametrize("payload", ["\ud800", "\x00", 2**70, float("inf")])
async def test_what_a_payload_may_not_be_nothing_else_may_be_either(payload: object) -> None:
    async with Mainspring("memory://") as ms:
        await ms.create_namespace("app")
        await ms.timers.create("app", "t", in_seconds=600, url="https://example.com/")
        with pytest.raises(InvalidInput):
            await ms.timers.reschedule("app", "t", in_seconds=600, payload=payload)
        await ms.jobs.create("job", schedule="@daily", url="https://example.com/")
        with pytest.raises(InvalidInput):
            await ms.jobs.update("job", body=payload)
        with pytest.raises(InvalidInput):
            await ms.jobs.trigger("job", body=payload)


def test_ids_with_control_characters_are_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvalidInput, match="control characters"):
        TimerWriter("app").create(connection, "a\nb", in_seconds=1, handler="note")


def test_a_handler_needs_a_name(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvalidInput, match="name of a handler"):
        TimerWriter("app").create(connection, "t1", in_seconds=1, handler="")


def test_a_namespace_must_exist(connection: sqlite3.Connection) -> None:
    with pytest.raises(NotFound, match="'nowhere' does not exist"):
        TimerWriter("nowhere").create(connection, "t1", in_seconds=1, handler="note")


@pytest.mark.parametrize("thing", [None, "sqlite:///app.db", object(), 7])
def test_what_is_no_connection_is_answered_with_what_would_be(thing: object) -> None:
    with pytest.raises(InvalidInput, match=r"asyncpg.Connection.*sqlalchemy.AsyncSession.*sqlite3.Connection"):
        TimerWriter("app").create(thing, "t1", in_seconds=1, handler="note")


async def test_a_connection_that_is_awaited_is_not_for_create(place: str) -> None:
    async with aiosqlite.connect(place) as connection:
        with pytest.raises(InvalidInput, match="use acreate"):
            TimerWriter("app").create(connection, "t1", in_seconds=1, handler="note")


def test_names_of_tables_cannot_carry_sql() -> None:
    with pytest.raises(ConfigError, match="lower-case letters"):
        TimerWriter("app", prefix="x; DROP TABLE orders; --")


# --- autocommit -------------------------------------------------------------------------------------------


def refused(connection: object) -> None:
    with pytest.raises(InvalidInput, match="autocommit"):
        TimerWriter("app").create(connection, "auto", in_seconds=1, handler="note")


async def awaited_refused(connection: object) -> None:
    with pytest.raises(InvalidInput, match="autocommit"):
        await TimerWriter("app").acreate(connection, "auto", in_seconds=1, handler="note")


async def test_sqlite_connections_that_commit_by_themselves_are_refused(place: str) -> None:
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        refused(connection)
        connection.execute("BEGIN")
        TimerWriter("app").create(connection, "auto", in_seconds=3600, handler="note")
        connection.execute("ROLLBACK")
    with closing(apsw.Connection(place)) as other:
        refused(other)
    async with aiosqlite.connect(place, isolation_level=None) as third:
        await awaited_refused(third)


async def test_postgresql_connections_that_commit_by_themselves_are_refused(
    postgresql: PostgreSQL, databases: Callable[[str], Database]
) -> None:
    place = databases("postgresql").place
    plain = await asyncpg.connect(place)
    await awaited_refused(plain)
    await plain.close()
    with psycopg.connect(place, autocommit=True) as connection:
        refused(connection)
        with connection.transaction(force_rollback=True):
            TimerWriter("app").create(connection, "auto", in_seconds=3600, handler="note")


async def test_mysql_connections_that_commit_by_themselves_are_refused(
    mysql: MySQL, databases: Callable[[str], Database]
) -> None:
    name = databases("mysql").url.rpartition("/")[2]
    with closing(
        pymysql.connect(host="127.0.0.1", port=mysql.port, user="root", database=name, autocommit=True)
    ) as connection:
        refused(connection)
        connection.begin()
        TimerWriter("app").create(connection, "auto", in_seconds=3600, handler="note")
        connection.rollback()
    other = await asyncmy.connect(host="127.0.0.1", port=mysql.port, user="root", database=name, autocommit=True)
    await awaited_refused(other)
    await other.begin()
    await TimerWriter("app").acreate(other, "auto", in_seconds=3600, handler="note")
    await other.rollback()
    await other.ensure_closed()


def test_a_sqlalchemy_engine_that_commits_by_itself_is_refused(place: str) -> None:
    engine = create_engine(f"sqlite:///{place}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        refused(connection)
    engine.dispose()


def test_a_sqlalchemy_engine_whose_program_begins_transactions_itself_is_none_that_commits_by_itself(
    place: str,
) -> None:
    engine = create_engine(f"sqlite:///{place}")

    @event.listens_for(engine, "connect")
    def leave_it_to_us(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.connect() as connection:
        assert TimerWriter("app").create(connection, "begun-by-us", in_seconds=3600, handler="note").generation == 1
        connection.rollback()
        assert TimerWriter("app").create(connection, "begun-by-us", in_seconds=3600, handler="note").generation == 1
        connection.rollback()
    engine.dispose()


# --- inside the program -----------------------------------------------------------------------------------


def test_two_copies_of_sqlite_in_one_process_do_not_see_each_others_locks(tmp_path: Path) -> None:
    """The reason for the next test. Should this one fail some day, that refusal can go."""
    with closing(apsw.Connection(f"{tmp_path}/app.db")) as ours, closing(sqlite3.connect(ours.filename)) as theirs:
        theirs.isolation_level = None
        for statement in ("PRAGMA journal_mode = WAL", "CREATE TABLE t (x)", "BEGIN IMMEDIATE"):
            ours.execute(statement).fetchall()
        ours.execute("INSERT INTO t VALUES (1)")
        theirs.execute("BEGIN IMMEDIATE")
        theirs.execute("INSERT INTO t VALUES (2)")
        theirs.execute("COMMIT")
        ours.execute("COMMIT")
        assert ours.execute("SELECT x FROM t").fetchall() == [(1,)]


async def test_a_second_sqlite_in_the_process_of_the_engine_is_refused(tmp_path: Path) -> None:
    async with Mainspring(f"sqlite:///{tmp_path}/app.db") as ms:
        connection = sqlite3.connect(":memory:")
        with pytest.raises(InvalidInput, match="second SQLite"):
            await ms.timers.create("default", "t1", in_seconds=1, url="https://example.com/", connection=connection)
        connection.close()


async def test_a_connection_to_another_kind_of_database_is_refused() -> None:
    async with Mainspring("memory://") as ms:
        connection = apsw.Connection(":memory:")
        connection.execute("BEGIN")
        with pytest.raises(InvalidInput, match="to the memory store, got one to SQLite"):
            await ms.timers.create("default", "t1", in_seconds=1, url="https://example.com/", connection=connection)
        connection.close()
