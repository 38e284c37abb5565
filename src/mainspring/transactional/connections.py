"""Which connection the caller has, and how a statement runs on it. Drivers are recognised by name, never imported
before the caller has: a connection of a driver that is not loaded cannot exist.

Every adapter refuses a connection that would commit each statement by itself, because then nothing is bound to the
caller's data, and asks for plain tuples, whatever kind of rows the caller has set up for its own queries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from msgspec import Struct

from mainspring.errors import ConfigError, InvalidInput
from mainspring.transactional.dialects import MYSQL, POSTGRESQL, SQLITE, Dialect, Value
from mainspring.transactional.statements import Rows, Steps, T

IN_TRANSACTION: Final = 1
"""The flag in MySQL's server status."""
_NO_TABLE: Final = re.compile(r"no such table|relation .* does not exist|Table '.*' doesn't exist")
"""As SQLite, PostgreSQL and MySQL say it, in the errors of every driver."""


@contextmanager
def _missing_tables_named() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _NO_TABLE.search(str(error)):
            raise ConfigError(
                "Expected the database of a Mainspring store, got a database without tables of Mainspring: "
                "`mainspring admin migrate --store URL` makes them; `prefix` and `schema` are those of the store's URL"
            ) from error
        raise


class BlockingConnection(Struct, frozen=True):
    """A connection whose statements return rows."""

    dialect: Dialect
    driver: str
    placeholder: str
    run: Callable[[str, Sequence[Value]], Rows]

    def drive(self, steps: Steps[T]) -> T:
        rows: Rows | None = None
        try:
            while True:
                statement = next(steps) if rows is None else steps.send(rows)
                with _missing_tables_named():
                    rows = self.run(rendered(statement.sql, self.placeholder), statement.parameters)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()


class AwaitedConnection(Struct, frozen=True):
    """A connection whose statements are awaited."""

    dialect: Dialect
    driver: str
    placeholder: str
    run: Callable[[str, Sequence[Value]], Awaitable[Rows]]

    async def drive(self, steps: Steps[T]) -> T:
        rows: Rows | None = None
        try:
            while True:
                statement = next(steps) if rows is None else steps.send(rows)
                with _missing_tables_named():
                    rows = await self.run(rendered(statement.sql, self.placeholder), statement.parameters)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()


class Bridged(Struct, frozen=True):
    """An async SQLAlchemy connection or session: it runs functions that take its blocking counterpart."""

    run_sync: Callable[[Callable[[object], object]], Awaitable[Any]]


Connection = BlockingConnection | AwaitedConnection | Bridged


def recognised(connection: object) -> Connection:
    """How to use this connection. Raises `InvalidInput` for anything else, and for one that is in autocommit mode."""
    for kind in type(connection).__mro__:
        adapt = _KINDS.get((kind.__module__.partition(".")[0], kind.__name__))
        if adapt is not None:
            return adapt(connection)
    known = ", ".join(sorted({f"{package}.{name}" for package, name in _KINDS}))
    raise InvalidInput(f"Expected a connection or session of one of {known}, got {type(connection).__qualname__}")


def rendered(sql: str, placeholder: str) -> str:
    """Turn `?` into what the driver calls a value."""
    if placeholder == "$":
        numbers = count(1)
        return "".join(f"${next(numbers)}" if character == "?" else character for character in sql)
    return sql.replace("?", placeholder)


def _require_transaction(open_or_implied: bool) -> None:
    if not open_or_implied:
        raise InvalidInput(
            "Expected a connection with an open transaction, got one in autocommit mode: begin a transaction first"
        )


# --- SQLite -----------------------------------------------------------------------------------------------


def _implies_transaction(connection: Any) -> bool:
    """Whether sqlite3 begins a transaction by itself before it writes."""
    return bool(connection.in_transaction) or (
        connection.isolation_level is not None and getattr(connection, "autocommit", False) is not True
    )


def _sqlite3(connection: Any) -> BlockingConnection:
    _require_transaction(_implies_transaction(connection))

    def run(sql: str, parameters: Sequence[Value]) -> Rows:
        cursor = connection.cursor()
        cursor.row_factory = None
        rows: Rows = cursor.execute(sql, parameters).fetchall()
        cursor.close()
        return rows

    return BlockingConnection(SQLITE, "sqlite3", "?", run)


def _apsw(connection: Any) -> BlockingConnection:
    _require_transaction(connection.in_transaction)

    def run(sql: str, parameters: Sequence[Value]) -> Rows:
        rows: Rows = connection.cursor().execute(sql, parameters).fetchall()
        return rows

    return BlockingConnection(SQLITE, "apsw", "?", run)


def _aiosqlite(connection: Any) -> AwaitedConnection:
    _require_transaction(_implies_transaction(connection))

    async def run(sql: str, parameters: Sequence[Value]) -> Rows:
        async with await connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(sql, parameters)
            rows: Rows = await cursor.fetchall()
            return rows

    return AwaitedConnection(SQLITE, "aiosqlite", "?", run)


# --- PostgreSQL -------------------------------------------------------------------------------------------


def _asyncpg(connection: Any) -> AwaitedConnection:
    _require_transaction(connection.is_in_transaction())

    async def run(sql: str, parameters: Sequence[Value]) -> Rows:
        rows: Rows = [tuple(row) for row in await connection.fetch(sql, *parameters)]
        return rows

    return AwaitedConnection(POSTGRESQL, "asyncpg", "$", run)


def _psycopg_row_factory(connection: Any) -> object:
    _require_transaction(not connection.autocommit or connection.info.transaction_status.name != "IDLE")
    return sys.modules["psycopg.rows"].tuple_row


def _psycopg(connection: Any) -> BlockingConnection:
    row_factory = _psycopg_row_factory(connection)

    def run(sql: str, parameters: Sequence[Value]) -> Rows:
        with connection.cursor(row_factory=row_factory) as cursor:
            cursor.execute(sql, parameters)
            rows: Rows = cursor.fetchall() if cursor.description else ()
            return rows

    return BlockingConnection(POSTGRESQL, "psycopg", "%s", run)


def _psycopg_async(connection: Any) -> AwaitedConnection:
    row_factory = _psycopg_row_factory(connection)

    async def run(sql: str, parameters: Sequence[Value]) -> Rows:
        async with connection.cursor(row_factory=row_factory) as cursor:
            await cursor.execute(sql, parameters)
            rows: Rows = await cursor.fetchall() if cursor.description else ()
            return rows

    return AwaitedConnection(POSTGRESQL, "psycopg", "%s", run)


# --- MySQL ------------------------------------------------------------------------------------------------


def _pymysql(connection: Any) -> BlockingConnection:
    _require_transaction(not connection.get_autocommit() or bool(connection.server_status & IN_TRANSACTION))
    return _mysql_blocking(connection, "pymysql", sys.modules["pymysql.cursors"].Cursor)


def _mysqlclient(connection: Any) -> BlockingConnection:
    # The driver does not show the server's status, so a BEGIN in autocommit mode cannot be told from no BEGIN.
    _require_transaction(not connection.get_autocommit())
    return _mysql_blocking(connection, "mysqlclient", sys.modules["MySQLdb.cursors"].Cursor)


def _mysql_blocking(connection: Any, driver: str, cursor_class: object) -> BlockingConnection:
    def run(sql: str, parameters: Sequence[Value]) -> Rows:
        with connection.cursor(cursor_class) as cursor:
            cursor.execute(sql, parameters)
            rows: Rows = cursor.fetchall()
            return rows

    return BlockingConnection(MYSQL, driver, "%s", run)


def _asyncmy(connection: Any) -> AwaitedConnection:
    return _mysql_waiting(connection, "asyncmy", sys.modules["asyncmy.cursors"].Cursor)


def _aiomysql(connection: Any) -> AwaitedConnection:
    return _mysql_waiting(connection, "aiomysql", sys.modules["aiomysql.cursors"].Cursor)


def _mysql_waiting(connection: Any, driver: str, cursor_class: object) -> AwaitedConnection:
    _require_transaction(not connection.get_autocommit() or bool(connection.get_transaction_status()))

    async def run(sql: str, parameters: Sequence[Value]) -> Rows:
        async with connection.cursor(cursor_class) as cursor:
            await cursor.execute(sql, parameters)
            rows: Rows = await cursor.fetchall()
            return rows

    return AwaitedConnection(MYSQL, driver, "%s", run)


# --- SQLAlchemy -------------------------------------------------------------------------------------------

_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": "$"}
_DIALECTS: Final = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}


def _sqlalchemy_session(session: Any) -> BlockingConnection:
    return _sqlalchemy(session.connection())


def _sqlalchemy(connection: Any) -> BlockingConnection:
    """Through SQLAlchemy, not beneath it: only then does it know that there is something to commit."""
    dialect = _DIALECTS.get(connection.dialect.name)
    placeholder = _PLACEHOLDERS.get(connection.dialect.paramstyle)
    if dialect is None or placeholder is None:
        raise InvalidInput(
            "Expected a SQLAlchemy connection to PostgreSQL, MySQL or SQLite, "
            f"got {connection.dialect.name}+{connection.dialect.driver}"
        )
    _require_transaction(not _sqlalchemy_autocommits(connection))

    def run(sql: str, parameters: Sequence[Value]) -> Rows:
        with connection.exec_driver_sql(sql, tuple(parameters)) as result:
            rows: Rows = [tuple(row) for row in result] if result.returns_rows else ()
            return rows

    return BlockingConnection(dialect, connection.dialect.driver, placeholder, run)


def _sqlalchemy_autocommits(connection: Any) -> bool:
    if not connection.in_transaction():
        connection.begin()  # as its first statement would; a program may have taken BEGIN into its own hands
    detect = getattr(connection.dialect, "detect_autocommit_setting", None)
    pooled = connection.connection
    if detect is None:  # before 2.0.43
        return bool(connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT")
    return bool(detect(pooled.dbapi_connection)) and not getattr(pooled.driver_connection, "in_transaction", False)


def _bridged(connection: Any) -> Bridged:
    return Bridged(connection.run_sync)


_KINDS: Final[dict[tuple[str, str], Callable[[Any], Connection]]] = {
    ("sqlite3", "Connection"): _sqlite3,
    ("apsw", "Connection"): _apsw,
    ("aiosqlite", "Connection"): _aiosqlite,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("psycopg", "Connection"): _psycopg,
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("pymysql", "Connection"): _pymysql,
    ("MySQLdb", "Connection"): _mysqlclient,
    ("asyncmy", "Connection"): _asyncmy,
    ("aiomysql", "Connection"): _aiomysql,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): _sqlalchemy_session,
    ("sqlalchemy", "AsyncConnection"): _bridged,
    ("sqlalchemy", "AsyncSession"): _bridged,
}
