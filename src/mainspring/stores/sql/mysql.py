"""MySQL, MariaDB and TiDB, with asyncmy.

Sessions read committed rows: InnoDB then locks rows but no gaps, and writers of different rows do not collide.
MySQL has no timeout for idle transactions, only one for idle sessions. So every session has a short one, and the pool
does not use a session that has been idle for longer.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncmy
from asyncmy import errors
from asyncmy.constants.CLIENT import FOUND_ROWS

from mainspring.errors import ConfigError, MainspringError, StoreUnavailable
from mainspring.store import Position
from mainspring.stores.plan import Value
from mainspring.stores.sql.address import Address, parse_address
from mainspring.stores.sql.dialect import (
    IDLE_SECONDS,
    LOCK_SECONDS,
    Denied,
    Held,
    Overtaken,
    Parameter,
    Statement,
    Table,
    Undone,
    Unfit,
)
from mainspring.stores.sql.rows import Row
from mainspring.stores.sql.schema import Names
from mainspring.stores.sql.store import SqlStore

PACKET_BYTES: Final = 16 * 1024 * 1024
"""What a server must accept: the values of one statement, which escaping may double, and its text."""
_VARIABLES: Final = (
    "version",
    "max_allowed_packet",
    "wsrep_on",
    "wsrep_provider",
    "group_replication_single_primary_mode",
    "group_replication_group_name",
)
_NO_FENCE: Final = (
    "the lock of a shard would count on one node only, and two owners could both write. "
    "Use a server with replicas that are only read"
)
_TYPES: Final = {
    "integer": "BIGINT",
    "uuid": "VARCHAR(64)",
    "name": "VARCHAR(510)",  # 255 characters, each of which may be stored as two
    "word": "VARCHAR(32)",
    "key": "VARBINARY(1530)",  # compared as bytes; the collations of text ignore spaces at the end
    "text": "MEDIUMTEXT",
    "bytes": "LONGBLOB",
}
_SSL_MODES: Final = ("disable", "require", "verify-full")
_SETTINGS: Final = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_notes = 0, time_zone = '+00:00', "
    f"lock_wait_timeout = 60, wait_timeout = {IDLE_SECONDS}, net_write_timeout = {LOCK_SECONDS}",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_MEANINGS: Final[Sequence[tuple[tuple[int, ...], type[MainspringError | Undone]]]] = (
    # Duplicate key, deadlock, and what TiDB calls a write conflict.
    ((1062, 1213, 9007), Overtaken),
    # A wait that was too long, and what MySQL and TiDB say to NOWAIT.
    ((1205, 3572), Held),
    # A row or packet that is too large, a number out of range, invalid text, a text that is too long.
    ((1118, 1153, 1264, 1366, 1406), Unfit),
    # The forms of access denied, unknown database, a way of authenticating that the server does not accept.
    ((1044, 1045, 1049, 1142, 1251, 1698), ConfigError),
    # No such table; and what concerns everybody: no room, no memory, no connection left, a server that is read-only or
    # going down, a statement that was ended.
    (
        (1021, 1037, 1038, 1040, 1041, 1053, 1114, 1146, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1317, 1792, 1836),
        StoreUnavailable,
    ),
)
_OF_THE_SERVER: Final = 1000
_OF_THE_CLIENT: Final = range(2000, 3000)
"""Numbers of errors that are about the connection. All others above `_OF_THE_SERVER` are answers to a statement."""


class MySQL:
    clock: str = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
    primary_index: str = "FORCE INDEX (PRIMARY)"
    skip_same_attempt: str = "ON DUPLICATE KEY UPDATE attempt = attempt"
    current_schema: str = "DATABASE()"

    def render(self, sql: str) -> str:
        return sql.replace("?", "%s")

    def keys(self, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        if len(keys) == 1:  # MariaDB reads the whole table for an UPDATE with a list of one row
            return Statement(f"({' AND '.join(f'{column} = ?' for column in columns)})", keys[0])
        return Statement(f"({', '.join(columns)}) IN ({_tuples(keys)})", _flat(keys))

    def values(self, columns: Sequence[str], rows: Sequence[Row]) -> Statement:
        return Statement(f"VALUES {_tuples(rows)}", _flat(rows))

    def for_each(self, query: str, numbers: Sequence[int]) -> Statement:
        one = f"({query.format('?')})"
        return Statement(f"SELECT {', '.join([one] * len(numbers))}", list(numbers))

    def for_places(self, query: str, places: Sequence[tuple[int, Position]], values: Sequence[Value]) -> Statement:
        """MariaDB has no join whose right side depends on the left."""
        one = f"({query.format('?', '?', '?', '?')})"
        rows: list[Row] = [(shard_id, after.due_at, after.due_at, after.uuid, *values) for shard_id, after in places]
        return Statement(" UNION ALL ".join([one] * len(places)), _flat(rows))

    def delete(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        """By a join, row by row: with a list of keys, a small table would be read and locked as a whole."""
        first = f"SELECT {', '.join(f'? AS {column}' for column in columns)}"
        others = f" UNION ALL SELECT {', '.join('?' * len(columns))}" * (len(keys) - 1)
        same = " AND ".join(f"t.{column} = wanted.{column}" for column in columns)
        join = f"({first}{others}) AS wanted STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON {same}"
        return Statement(f"DELETE t FROM {join}", _flat(keys))

    def text(self, column: str) -> str:
        return f"CONVERT({column} USING utf8mb4)"

    def create_table(self, table: Table, full_name: str) -> list[str]:
        parts = [
            f"{column.name} {_TYPES[column.kind]}{'' if column.optional else ' NOT NULL'}" for column in table.columns
        ]
        parts.append(f"PRIMARY KEY ({', '.join(table.primary_key)})")
        parts += (f"KEY by_{'_'.join(index)} ({', '.join(index)})" for index in table.indexes)
        options = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin"
        return [f"CREATE TABLE IF NOT EXISTS {full_name} ({', '.join(parts)}) {options}"]


def refusal(variables: Mapping[str, str]) -> str:
    """Why a server with these variables cannot be used; nothing if it can."""
    version = variables.get("version", "").lower()
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if variables.get("wsrep_on") == "ON" and variables.get("wsrep_provider", "none") not in ("", "none"):
        return f"Expected one server that is written to, got a node of a Galera cluster: {_NO_FENCE}"
    multi_primary = variables.get("group_replication_single_primary_mode") == "OFF"
    if multi_primary and variables.get("group_replication_group_name"):
        return f"Expected a group in single-primary mode, got one that is written to everywhere: {_NO_FENCE}"
    if number and "tidb" not in version and number < ((10, 6) if "mariadb" in version else (8, 0)):
        return f"Expected MariaDB 10.6, MySQL 8.0 or newer, got {version}: older ones cannot skip rows that are locked"
    packet = int(variables.get("max_allowed_packet", PACKET_BYTES))
    if packet < PACKET_BYTES:
        return f"Expected max_allowed_packet of the server to be at least {PACKET_BYTES}, got {packet}"
    return ""


def _tuples(rows: Sequence[Row]) -> str:
    one = f"({', '.join('?' * len(rows[0]))})"
    return ", ".join([one] * len(rows))


def _flat(rows: Sequence[Row]) -> list[Parameter]:
    return [value for row in rows for value in row]


class _Session:
    """MySQL: a statement waits at least a second for locks, so keys are looked at before they are inserted."""

    share_lock = "FOR SHARE SKIP LOCKED"
    row_lock = "FOR UPDATE SKIP LOCKED"
    key_lock = "FOR UPDATE NOWAIT"
    lock_seconds = 1

    def __init__(self, connection: asyncmy.Connection) -> None:
        self._connection = connection

    @property
    def is_usable(self) -> bool:
        # `connected` alone does not notice that the server has gone; we would notice only at the next call.
        return bool(self._connection.connected) and not getattr(self._connection, "_stream_broken", False)

    async def fetch(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]:
        async with self._connection.cursor() as cursor:
            await cursor.execute(sql, parameters or None)
            rows: Sequence[Sequence[Value]] = await cursor.fetchall()
            return rows

    async def execute(self, sql: str, parameters: Sequence[Parameter]) -> int:
        async with self._connection.cursor() as cursor:
            return int(await cursor.execute(sql, parameters or None))

    async def insert(self, sql: str, parameters: Sequence[Parameter], *, wait_ms: int) -> None:
        await self.execute(sql, parameters)

    async def begin(self) -> None:
        await self.execute("START TRANSACTION", ())

    async def commit(self) -> None:
        await self.execute("COMMIT", ())

    async def rollback(self) -> None:
        await self.execute("ROLLBACK", ())

    async def check_server(self) -> None:
        names = ", ".join(f"'{name}'" for name in _VARIABLES)
        rows = await self.fetch(f"SHOW VARIABLES WHERE Variable_name IN ({names})", ())
        reason = refusal({str(name).lower(): str(value) for name, value in rows})
        if reason:
            raise ConfigError(reason)

    @asynccontextmanager
    async def migration_lock(self, name: str) -> AsyncIterator[None]:
        """The name is valid on the whole server, which releases it when the session is gone."""
        lock = "CONCAT('mainspring ', LEFT(MD5(CONCAT(DATABASE(), ' ', %s)), 32))"
        [[locked]] = await self.fetch(f"SELECT GET_LOCK({lock}, 60)", (name,))
        if locked != 1:
            raise StoreUnavailable("Another process has been migrating for more than 60 s")
        yield
        await self.fetch(f"SELECT RELEASE_LOCK({lock})", (name,))

    async def close(self) -> None:
        await self._connection.ensure_closed()

    def terminate(self) -> None:
        self._connection.close()


class _MariaDBSession(_Session):
    """A statement can have a timeout of its own. The session's must not be 0 s: SKIP LOCKED then fails."""

    share_lock = "LOCK IN SHARE MODE SKIP LOCKED"
    key_lock = ""
    lock_seconds = LOCK_SECONDS

    async def insert(self, sql: str, parameters: Sequence[Parameter], *, wait_ms: int) -> None:
        await self.execute(f"SET STATEMENT innodb_lock_wait_timeout = {wait_ms // 1000} FOR {sql}", parameters)


class _TiDBSession(_Session):
    """A shared lock locks nothing there, and neither does SKIP LOCKED."""

    share_lock = "FOR UPDATE"
    row_lock = "FOR UPDATE NOWAIT"


class MySQLDriver:
    dialect: MySQL = MySQL()
    idle_seconds: float = IDLE_SECONDS / 2

    def __init__(self, address: Address) -> None:
        self.place = address.place
        self._address = address
        self._ssl = _ssl_context(address.choice("sslmode", _SSL_MODES, "disable"))

    async def connect(self) -> _Session:
        address = self._address
        try:
            connection = await asyncmy.connect(
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password,
                database=address.database,
                charset="utf8mb4",
                ssl=self._ssl,
                autocommit=True,
                client_flag=FOUND_ROWS,
            )
        except RuntimeError as error:
            # The driver looks for the socket of a connection that has been reset since it was accepted.
            raise ConnectionResetError(str(error)) from error
        try:
            session = await _session_of(connection)
        except BaseException:
            connection.close()
            raise
        return session

    def translate(self, error: BaseException) -> MainspringError | Undone | None:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        reason = f"Expected to use the database {self.place}, got: {str(error) or type(error).__name__}"
        if isinstance(error, errors.Error):
            known = next((meaning for numbers, meaning in _MEANINGS if number in numbers), None)
            if known is None and number >= _OF_THE_SERVER and number not in _OF_THE_CLIENT:
                known = Denied
            return (known or StoreUnavailable)(reason)
        if isinstance(error, UnicodeError):
            return Unfit(reason)
        if isinstance(error, OSError | EOFError | ssl.SSLError):
            return StoreUnavailable(reason)
        return None


async def _session_of(connection: asyncmy.Connection) -> _Session:
    session = _Session(connection)
    [[version]] = await session.fetch("SELECT VERSION()", ())
    for name, kind in (("mariadb", _MariaDBSession), ("tidb", _TiDBSession)):
        if name in str(version).lower():
            session = kind(connection)
    for setting in (*_SETTINGS, f"SET SESSION innodb_lock_wait_timeout = {session.lock_seconds}"):
        await session.execute(setting, ())
    return session


def _ssl_context(mode: str) -> ssl.SSLContext | None:
    if mode == "disable":
        return None
    context = ssl.create_default_context()
    if mode == "require":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def mysql_store(url: str) -> SqlStore:
    address = parse_address(url, port=3306, options=("prefix", "sslmode"))
    return SqlStore(MySQLDriver(address), Names(address.name("prefix", "mainspring_")))
