"""Every kind of connection that a program may have, behind one small interface, so that one test runs on all.

`place` is what the store URL says: the path of the SQLite file, or the server's URL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, Unpack
from urllib.parse import urlsplit

import aiomysql  # type: ignore[import-untyped]
import aiosqlite
import apsw
import asyncmy
import asyncpg  # type: ignore[import-untyped]
import psycopg
import pymysql
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from mainspring.timers.messages import TimerView
from mainspring.transactional import TimerFields, TimerWriter


class Work(Protocol):
    """A connection in a transaction."""

    awaited: bool
    connection: Any

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


async def create(writer: TimerWriter, work: Work, timer_id: str, **fields: Unpack[TimerFields]) -> TimerView:
    if work.awaited:
        return await writer.acreate(work.connection, timer_id, **fields)
    return writer.create(work.connection, timer_id, **fields)


class BlockingWay:
    awaited = False

    def __init__(self, connection: Any, execute: Callable[[str], Any] | None = None) -> None:
        self.connection = connection
        self._execute = execute or self._with_cursor

    def _with_cursor(self, sql: str) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(sql)
        return cursor

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._execute(sql)
        return [tuple(row) for row in cursor.fetchall()] if sql.startswith("SELECT") else []

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()


class Apsw(BlockingWay):
    async def commit(self) -> None:
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN")

    async def rollback(self) -> None:
        self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN")


class AwaitedWay:
    awaited = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        if isinstance(self.connection, aiosqlite.Connection):
            cursor = await cursor
        async with cursor as opened:
            await opened.execute(sql)
            return [tuple(row) for row in await opened.fetchall()] if sql.startswith("SELECT") else []

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()


class Bridged(AwaitedWay):
    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        result = await self.connection.execute(text(sql))
        return [tuple(row) for row in result] if result.returns_rows else []


class Asyncpg(AwaitedWay):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._transaction = connection.transaction()

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(sql)]

    async def commit(self) -> None:
        await self._transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self.begin()


@asynccontextmanager
async def over_sqlite3(place: str) -> AsyncIterator[Work]:
    connection = sqlite3.connect(place)
    connection.row_factory = lambda cursor, row: {  # a program's own rows must not matter
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    try:
        yield BlockingWay(connection, lambda sql: _plain_cursor(connection, sql))
    finally:
        connection.close()


def _plain_cursor(connection: sqlite3.Connection, sql: str) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql)


@asynccontextmanager
async def over_scoped_session(place: str) -> AsyncIterator[Work]:
    engine = create_engine(sqlalchemy_url(place, "pysqlite"))
    session = scoped_session(sessionmaker(engine))
    try:
        yield BlockingWay(session, lambda sql: session.execute(text(sql)))
    finally:
        session.remove()
        engine.dispose()


@asynccontextmanager
async def over_apsw(place: str) -> AsyncIterator[Work]:
    connection = apsw.Connection(place)
    connection.set_busy_timeout(5000)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield Apsw(connection)
    finally:
        connection.close()


@asynccontextmanager
async def over_aiosqlite(place: str) -> AsyncIterator[Work]:
    async with aiosqlite.connect(place) as connection:
        yield AwaitedWay(connection)


@asynccontextmanager
async def over_asyncpg(place: str) -> AsyncIterator[Work]:
    connection = await asyncpg.connect(place)
    work = Asyncpg(connection)
    await work.begin()
    try:
        yield work
    finally:
        await connection.close()


@asynccontextmanager
async def over_asyncpg_pool(place: str) -> AsyncIterator[Work]:
    async with asyncpg.create_pool(place, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        work = Asyncpg(connection)
        await work.begin()
        yield work


@asynccontextmanager
async def over_psycopg(place: str) -> AsyncIterator[Work]:
    connection = psycopg.connect(place, row_factory=psycopg.rows.dict_row)
    try:
        yield BlockingWay(connection, lambda sql: connection.cursor(row_factory=psycopg.rows.tuple_row).execute(sql))
    finally:
        connection.close()


@asynccontextmanager
async def over_async_psycopg(place: str) -> AsyncIterator[Work]:
    connection = await psycopg.AsyncConnection.connect(place)
    work = AwaitedWay(connection)

    async def fetch(sql: str) -> list[tuple[Any, ...]]:
        cursor = await connection.execute(sql)
        return await cursor.fetchall() if cursor.description else []

    work.fetch = fetch  # type: ignore[method-assign]
    try:
        yield work
    finally:
        await connection.close()


def _mysql_arguments(place: str) -> dict[str, Any]:
    parts = urlsplit(place)
    return {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": ""}


def _mysql_database(place: str) -> str:
    return urlsplit(place).path.removeprefix("/")


@asynccontextmanager
async def over_pymysql(place: str) -> AsyncIterator[Work]:
    connection = pymysql.connect(
        **_mysql_arguments(place), database=_mysql_database(place), cursorclass=pymysql.cursors.DictCursor
    )

    def execute(sql: str) -> Any:
        cursor = connection.cursor(pymysql.cursors.Cursor)
        cursor.execute(sql)
        return cursor

    try:
        yield BlockingWay(connection, execute)
    finally:
        connection.close()


@asynccontextmanager
async def over_asyncmy(place: str) -> AsyncIterator[Work]:
    connection = await asyncmy.connect(**_mysql_arguments(place), database=_mysql_database(place))
    try:
        yield AwaitedWay(connection)
    finally:
        await connection.ensure_closed()


@asynccontextmanager
async def over_aiomysql(place: str) -> AsyncIterator[Work]:
    connection = await aiomysql.connect(**_mysql_arguments(place), db=_mysql_database(place))
    try:
        yield AwaitedWay(connection)
    finally:
        await connection.ensure_closed()


def sqlalchemy_url(place: str, driver: str) -> str:
    scheme, separator, rest = place.partition("://")
    return f"{scheme}+{driver}://{rest}" if separator else f"sqlite+{driver}:///{place}"


def over_sqlalchemy(driver: str, *, session: bool) -> Callable[[str], AbstractAsyncContextManager[Work]]:
    @asynccontextmanager
    async def opened(place: str) -> AsyncIterator[Work]:
        engine = create_engine(sqlalchemy_url(place, driver))
        connection = Session(engine) if session else engine.connect()
        try:
            yield BlockingWay(connection, lambda sql: connection.execute(text(sql)))
        finally:
            connection.close()
            engine.dispose()

    return opened


def over_async_sqlalchemy(driver: str, *, session: bool) -> Callable[[str], AbstractAsyncContextManager[Work]]:
    @asynccontextmanager
    async def opened(place: str) -> AsyncIterator[Work]:
        engine = create_async_engine(sqlalchemy_url(place, driver))
        connection = AsyncSession(engine) if session else await engine.connect()
        try:
            yield Bridged(connection)
        finally:
            await connection.close()
            await engine.dispose()

    return opened


WAYS: Mapping[str, Mapping[str, Callable[[str], AbstractAsyncContextManager[Work]]]] = {
    "sqlite": {
        "sqlite3": over_sqlite3,
        "apsw": over_apsw,
        "aiosqlite": over_aiosqlite,
        "sqlalchemy-connection": over_sqlalchemy("pysqlite", session=False),
        "sqlalchemy-session": over_sqlalchemy("pysqlite", session=True),
        "sqlalchemy-scoped-session": over_scoped_session,
        "sqlalchemy-async-session": over_async_sqlalchemy("aiosqlite", session=True),
    },
    "postgresql": {
        "asyncpg": over_asyncpg,
        "asyncpg-pool": over_asyncpg_pool,
        "psycopg": over_psycopg,
        "psycopg-async": over_async_psycopg,
        "sqlalchemy-session": over_sqlalchemy("psycopg", session=True),
        "sqlalchemy-async-connection": over_async_sqlalchemy("asyncpg", session=False),
        "sqlalchemy-async-session": over_async_sqlalchemy("psycopg", session=True),
    },
    "mysql": {
        "pymysql": over_pymysql,
        "asyncmy": over_asyncmy,
        "aiomysql": over_aiomysql,
        "sqlalchemy-connection": over_sqlalchemy("pymysql", session=False),
        "sqlalchemy-async-session": over_async_sqlalchemy("asyncmy", session=True),
    },
}
