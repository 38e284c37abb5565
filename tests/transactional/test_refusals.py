"""What is refused, before anything is written: the caller's transaction stays as it was."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
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
from mainspring.errors import ConfigError, Conflict, InvalidInput, NotFound
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
    {"handler": "note", "callback_url": "https://example.com/", "delay_seconds": 1},
    {"delay_seconds": 1},
    {"handler": "note", "delay_seconds": 1, "execute_at": datetime(2030, 1, 1, tzinfo=UTC)},
    {"handler": "note", "delay_seconds": -1},
    {"handler": "note", "execute_at": datetime(2030, 1, 1)},  # noqa: DTZ001
    {"handler": "note", "delay_seconds": 1, "payload": "x" * 200_000},
    {"handler": "note", "delay_seconds": 1, "callback_timeout_seconds": 0},
    {"callback_url": "ftp://example.com/", "delay_seconds": 1},
    {"callback_url": "http://10.0.0.1/", "delay_seconds": 1},
    {"callback_url": "https://example.com/", "delay_seconds": 1, "headers": {"Host": "other"}},
    {"callback_url": "https://example.com/", "delay_seconds": 1, "headers": {"X": "a\r\nb"}},
    {"callback_url": "https://example.com/", "delay_seconds": 1, "labels": {"a": "\x00"}},
    {"handler": "note", "delay_seconds": 1, "payload": {"a": "\x00"}},
    {"handler": "note", "delay_seconds": 1, "payload": {"a": 2**70}},
    {"handler": "note", "delay_seconds": 1, "payload": msgspec.json.decode(b"[" * 60 + b"]" * 60)},
    {"handler": "note", "delay_seconds": 1, "payload": [float("nan")]},
    {"handler": "note", "delay_seconds": 1, "payload": "\ud800"},
    {"handler": "note", "delay_seconds": 1, "payload": object()},
    {"handler": "note", "delay_seconds": 1, "labels": {"a": "\ud800"}},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=range(len(BAD_FIELDS)))
async def test_what_the_service_refuses_is_refused_in_the_same_words(
    connection: sqlite3.Connection, fields: dict[str, Any]
) -> None:
    connection.execute("INSERT INTO orders VALUES ('kept')")
    with pytest.raises(InvalidInput) as here:
        TimerWriter(namespace="app").create(connection, "bad", **fields)
    async with Mainspring("memory://") as ms:

        @ms.handler("note")
        async def note(_: object) -> None: ...

        with suppress(Conflict):
            await ms.namespaces.create("app")
        with pytest.raises(InvalidInput) as there:
            await ms.timers.create("bad", namespace="app", **fields)
    assert here.value.detail == there.value.detail
    assert here.value.errors == there.value.errors
    assert connection.execute("SELECT COUNT(*) FROM orders WHERE name = 'kept'").fetchone() == (1,)
    assert connection.execute("SELECT COUNT(*) FROM timers WHERE timer_id = 'bad'").fetchone() == (0,)


@pytest.mark.parametrize("payload", ["\ud800", "\x00", 2**70, float("inf")])
async def test_what_a_payload_may_not_be_nothing_else_may_be_either(payload: object) -> None:
    async with Mainspring("memory://") as ms:
        with suppress(Conflict):
            await ms.namespaces.create("app")
        await ms.timers.create("t", namespace="app", delay_seconds=600, callback_url="https://example.com/")
        with pytest.raises(InvalidInput):
            await ms.timers.update("t", namespace="app", delay_seconds=600, payload=payload)
        await ms.jobs.create("job", schedule="@daily", url="https://example.com/")
        with pytest.raises(InvalidInput):
            await ms.jobs.update("job", body=payload)
        with pytest.raises(InvalidInput):
            await ms.jobs.trigger("job", body=payload)


def test_ids_with_control_characters_are_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvalidInput, match="control characters"):
        TimerWriter(namespace="app").create(connection, "a\nb", delay_seconds=1, handler="note")


def test_a_handler_needs_a_name(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvalidInput, match="name of a handler"):
        TimerWriter(namespace="app").create(connection, "t1", delay_seconds=1, handler="")


def test_a_namespace_must_exist(connection: sqlite3.Connection) -> None:
    with pytest.raises(NotFound, match="'nowhere' does not exist"):
        TimerWriter(namespace="nowhere").create(connection, "t1", delay_seconds=1, handler="note")


def test_a_namespace_that_is_being_deleted_takes_no_timers(connection: sqlite3.Connection) -> None:
    select = "SELECT value FROM records WHERE collection = 'namespace' AND key = 'app'"
    [(record,)] = connection.execute(select).fetchall()
    going = json.dumps(json.loads(record) | {"deletion": {"force": True}}).encode()
    connection.execute("UPDATE records SET value = ? WHERE collection = 'namespace' AND key = 'app'", (going,))
    with pytest.raises(Conflict, match="'app' is being deleted"):
        TimerWriter(namespace="app").create(connection, "t1", delay_seconds=1, handler="note")
    connection.rollback()


def test_a_timer_stays_in_the_earlier_shards_of_its_namespace_and_a_new_one_goes_to_the_newest(
    connection: sqlite3.Connection,
) -> None:
    def shard_of(timer_id: str) -> int:
        [(shard_id,)] = connection.execute("SELECT shard_id FROM timers WHERE timer_id = ?", (timer_id,)).fetchall()
        return int(shard_id)

    TimerWriter(namespace="app").create(connection, "present", delay_seconds=3600, handler="note")
    [(record,)] = connection.execute(
        "SELECT value FROM records WHERE collection = 'namespace' AND key = 'app'"
    ).fetchall()
    before = json.loads(record)
    earlier = {name: before[name] for name in ("firstShard", "shardCount", "salt", "grouped")}
    for since, newest in ((2**50, False), (1, True)):
        more = {"firstShard": 9000, "shardCount": 64, "salt": "\0009000", "earlier": [earlier], "since": since}
        connection.execute(
            "UPDATE records SET value = ? WHERE collection = 'namespace' AND key = 'app'",
            (json.dumps(before | more).encode(),),
        )
        writer = TimerWriter(namespace="app")
        assert writer.create(connection, "present", delay_seconds=3600, handler="note").generation > 1
        assert shard_of("present") < 9000
        writer.create(connection, f"new {since}", delay_seconds=3600, handler="note")
        assert (shard_of(f"new {since}") >= 9000) is newest
    connection.rollback()


@pytest.mark.parametrize("thing", [None, "sqlite:///app.db", object(), 7])
def test_what_is_no_connection_is_answered_with_what_would_be(thing: object) -> None:
    with pytest.raises(InvalidInput, match=r"asyncpg.Connection.*sqlalchemy.AsyncSession.*sqlite3.Connection"):
        TimerWriter(namespace="app").create(thing, "t1", delay_seconds=1, handler="note")


async def test_a_connection_that_is_awaited_is_not_for_create(place: str) -> None:
    async with aiosqlite.connect(place) as connection:
        with pytest.raises(InvalidInput, match="use acreate"):
            TimerWriter(namespace="app").create(connection, "t1", delay_seconds=1, handler="note")


def test_names_of_tables_cannot_carry_sql() -> None:
    with pytest.raises(ConfigError, match="lower-case letters"):
        TimerWriter(namespace="app", prefix="x; DROP TABLE orders; --")


# --- autocommit -------------------------------------------------------------------------------------------


def refused(connection: object) -> None:
    with pytest.raises(InvalidInput, match="autocommit"):
        TimerWriter(namespace="app").create(connection, "auto", delay_seconds=1, handler="note")


async def awaited_refused(connection: object) -> None:
    with pytest.raises(InvalidInput, match="autocommit"):
        await TimerWriter(namespace="app").acreate(connection, "auto", delay_seconds=1, handler="note")


async def test_sqlite_connections_that_commit_by_themselves_are_refused(place: str) -> None:
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        refused(connection)
        connection.execute("BEGIN")
        TimerWriter(namespace="app").create(connection, "auto", delay_seconds=3600, handler="note")
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
            TimerWriter(namespace="app").create(connection, "auto", delay_seconds=3600, handler="note")


async def test_mysql_connections_that_commit_by_themselves_are_refused(
    mysql: MySQL, databases: Callable[[str], Database]
) -> None:
    name = databases("mysql").url.rpartition("/")[2]
    with closing(
        pymysql.connect(host="127.0.0.1", port=mysql.port, user="root", database=name, autocommit=True)
    ) as connection:
        refused(connection)
        connection.begin()
        TimerWriter(namespace="app").create(connection, "auto", delay_seconds=3600, handler="note")
        connection.rollback()
    other = await asyncmy.connect(host="127.0.0.1", port=mysql.port, user="root", database=name, autocommit=True)
    await awaited_refused(other)
    await other.begin()
    await TimerWriter(namespace="app").acreate(other, "auto", delay_seconds=3600, handler="note")
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
        assert (
            TimerWriter(namespace="app")
            .create(connection, "begun-by-us", delay_seconds=3600, handler="note")
            .generation
            == 1
        )
        connection.rollback()
        assert (
            TimerWriter(namespace="app")
            .create(connection, "begun-by-us", delay_seconds=3600, handler="note")
            .generation
            == 1
        )
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
            await ms.timers.create("t1", delay_seconds=1, callback_url="https://example.com/", connection=connection)
        connection.close()


async def test_a_connection_to_another_kind_of_database_is_refused() -> None:
    async with Mainspring("memory://") as ms:
        connection = apsw.Connection(":memory:")
        connection.execute("BEGIN")
        with pytest.raises(InvalidInput, match="to the memory store, got one to SQLite"):
            await ms.timers.create("t1", delay_seconds=1, callback_url="https://example.com/", connection=connection)
        connection.close()
