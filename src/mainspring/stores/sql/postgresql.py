"""PostgreSQL, with asyncpg.

Nothing depends on the state of a session, so the store also works behind PgBouncer in transaction mode: timeouts are
set in each transaction, and locks end with it. Only prepared statements must be switched off there, with the option
`statement_cache_size=0`.

With prepared statements the planner is told to use indexes. All statements can, and a plan that was cached while a
table was small must not read all of it later on.
"""
# ruff: noqa: S608  (only constants and checked names are put together here)

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

import asyncpg  # type: ignore[import-untyped]

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
from mainspring.stores.sql.schema import HISTORY, RECORDS, SHARDS, TIMERS, Names
from mainspring.stores.sql.store import SqlStore

_TYPES: Final = {
    "integer": "bigint",
    "uuid": 'text COLLATE "C"',
    "name": 'text COLLATE "C"',
    "word": 'text COLLATE "C"',
    "key": 'text COLLATE "C"',
    "text": "text",
    "bytes": "bytea",
}
_ARRAYS: Final = {
    column.name: _TYPES[column.kind].partition(" ")[0] + "[]"
    for table in (TIMERS, SHARDS, HISTORY, RECORDS)
    for column in table.columns
}
_SSL_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")
_BEGIN: Final = f"""
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '{LOCK_SECONDS}s';
    SET LOCAL statement_timeout = '{LOCK_SECONDS + 1}s';
    SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';
"""
_READ_BY_INDEX: Final = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}
_QUESTION_MARK: Final = re.compile(r"\?")

# Classes of SQLSTATE, or whole ones, and what they mean; others are `Denied`. The first that fits counts.
_MEANINGS: Final[Sequence[tuple[tuple[str, ...], type[MainspringError | Undone]]]] = (
    (("23505", "40P01", "40001"), Overtaken),
    (("55P03",), Held),
    (("22", "54"), Unfit),
    (("28", "3D", "42501"), ConfigError),
    (("08", "0A", "25", "40", "42P01", "53", "55", "57", "58", "F0", "XX"), StoreUnavailable),
)


class PostgreSQL:
    clock: str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    primary_index: str = ""
    skip_same_attempt: str = "ON CONFLICT DO NOTHING"
    current_schema: str = "current_schema()"

    def render(self, sql: str) -> str:
        numbers = count(1)
        return _QUESTION_MARK.sub(lambda _: f"${next(numbers)}", sql)

    def keys(self, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        arrays = ", ".join(f"?::{_ARRAYS[column]}" for column in columns)
        return Statement(f"({', '.join(columns)}) IN (SELECT * FROM unnest({arrays}))", _transposed(keys))

    def values(self, columns: Sequence[str], rows: Sequence[Row]) -> Statement:
        arrays = ", ".join(f"?::{_ARRAYS[column]}" for column in columns)
        return Statement(f"SELECT * FROM unnest({arrays})", _transposed(rows))

    def for_each(self, query: str, numbers: Sequence[int]) -> Statement:
        each = "unnest(?::bigint[]) WITH ORDINALITY AS numbers(number, place)"
        return Statement(f"SELECT ({query.format('number')}) FROM {each} ORDER BY place", [list(numbers)])

    def for_places(self, query: str, places: Sequence[tuple[int, Position]], values: Sequence[Value]) -> Statement:
        """By one short query inside a loop: to plan a long statement takes longer than to read all of it."""
        each = "unnest(?::bigint[], ?::bigint[], ?::text[]) AS place(shard, instant, id)"
        one = query.format("place.shard", "place.instant", "place.instant", 'place.id COLLATE "C"')
        arrays = _transposed([(shard_id, *after) for shard_id, after in places])
        return Statement(f"SELECT found.* FROM {each} CROSS JOIN LATERAL ({one}) AS found", [*arrays, *values])

    def delete(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        condition = self.keys(columns, keys)
        return Statement(f"DELETE FROM {table} WHERE {condition.sql}", condition.parameters)

    def text(self, column: str) -> str:
        return column

    def create_table(self, table: Table, full_name: str) -> list[str]:
        columns = [
            f"{column.name} {_TYPES[column.kind]}{'' if column.optional else ' NOT NULL'}" for column in table.columns
        ]
        key = f"PRIMARY KEY ({', '.join(table.primary_key)})"
        index_name = f"{full_name.rpartition('.')[2]}_by"
        return [
            f"CREATE TABLE IF NOT EXISTS {full_name} ({', '.join([*columns, key])})",
            *(
                f"CREATE INDEX IF NOT EXISTS {'_'.join((index_name, *index))} ON {full_name} ({', '.join(index)})"
                for index in table.indexes
            ),
        ]


def _transposed(rows: Sequence[Row]) -> list[Parameter]:
    return [list(column) for column in zip(*rows, strict=True)]


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


class _Session:
    share_lock = "FOR SHARE SKIP LOCKED"
    row_lock = "FOR UPDATE SKIP LOCKED"
    key_lock = ""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @property
    def is_usable(self) -> bool:
        return not self._connection.is_closed()

    async def fetch(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]:
        try:
            rows: Sequence[Sequence[Value]] = await self._connection.fetch(sql, *parameters)
        except UnicodeDecodeError:
            rows = await self._fetch_spoiled(sql, parameters)
        return rows

    async def _fetch_spoiled(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]:
        """One row's text is not valid, and comes as bytes instead. The others are unaffected."""
        text = {"typename": "text", "schema": "pg_catalog"}
        await self._connection.set_type_codec(**text, encoder=str.encode, decoder=_text_or_bytes, format="binary")
        try:
            rows: Sequence[Sequence[Value]] = await self._connection.fetch(sql, *parameters)
        finally:
            await self._connection.reset_type_codec(**text)
        return rows

    async def execute(self, sql: str, parameters: Sequence[Parameter]) -> int:
        status = await self._connection.execute(sql, *parameters)
        number = status.rpartition(" ")[2]
        return int(number) if number.isdigit() else 0

    async def insert(self, sql: str, parameters: Sequence[Parameter], *, wait_ms: int) -> None:
        """The statement itself sets the timeout, because it may be a transaction of its own."""
        briefly = f"WHERE (SELECT set_config('lock_timeout', '{wait_ms}', true)) IS NOT NULL"
        await self._connection.execute(f"{sql} {briefly}", *parameters)

    async def begin(self) -> None:
        await self._connection.execute(_BEGIN)

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")

    async def rollback(self) -> None:
        if self._connection.is_in_transaction():
            await self._connection.execute("ROLLBACK")

    async def check_server(self) -> None:
        """Every version that can skip locked rows will do, and all supported ones can."""

    @asynccontextmanager
    async def migration_lock(self, name: str) -> AsyncIterator[None]:
        await self._connection.execute("BEGIN")
        await self._connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", name)
        yield
        await self._connection.execute("COMMIT")

    async def close(self) -> None:
        await self._connection.close()

    def terminate(self) -> None:
        self._connection.terminate()


class PostgreSQLDriver:
    dialect: PostgreSQL = PostgreSQL()
    idle_seconds: float = 300.0

    def __init__(self, address: Address) -> None:
        self.place = address.place
        self._address = address
        self._statements = address.number("statement_cache_size", 200)
        self._ssl = address.choice("sslmode", _SSL_MODES, "prefer")

    async def connect(self) -> _Session:
        address = self._address
        settings = {"application_name": "mainspring"} | (_READ_BY_INDEX if self._statements else {})
        return _Session(
            await asyncpg.connect(
                host=address.host,
                port=address.port,
                user=address.user or None,
                password=address.password or None,
                database=address.database,
                ssl=self._ssl,
                statement_cache_size=self._statements,
                max_cached_statement_lifetime=0,
                server_settings=settings,
            )
        )

    def translate(self, error: BaseException) -> MainspringError | Undone | None:
        reason = f"Expected to use the database {self.place}, got: {str(error) or type(error).__name__}"
        if isinstance(error, asyncpg.PostgresError):
            state = error.sqlstate or "XX000"
            return next((meaning for states, meaning in _MEANINGS if state.startswith(states)), Denied)(reason)
        if isinstance(error, ValueError):  # the client's own DataError, and what cannot be encoded
            return Unfit(reason)
        if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError | ssl.SSLError | EOFError):
            return StoreUnavailable(reason)
        return None


def postgresql_store(url: str) -> SqlStore:
    options = ("host", "prefix", "schema", "sslmode", "statement_cache_size")
    address = parse_address(url, port=5432, options=options)
    return SqlStore(PostgreSQLDriver(address), Names(address.name("prefix", "mainspring_"), address.name("schema")))
