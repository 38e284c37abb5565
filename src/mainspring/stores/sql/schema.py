"""The tables, and the numbered migrations that make them: in order, each once, by one process at a time.

A released migration is never edited; a change is a new one at the end of the list. MySQL commits every statement that
defines something, so each of them can be repeated after a crash between two.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mainspring.errors import ConfigError
from mainspring.stores.sql.dialect import Column, Dialect, Session, Table

_INTEGER: Final = "integer"
_NAME: Final = "name"
_UUID: Final = "uuid"
_WORD: Final = "word"
_KEY: Final = "key"
_TEXT: Final = "text"

TIMERS: Final = Table(
    "timers",
    (
        Column("shard_id", _INTEGER),
        Column("due_at", _INTEGER),
        Column("uuid", _UUID),
        Column("namespace", _NAME),
        Column("timer_id", _NAME),
        Column("state", _WORD),
        Column("attempts", _INTEGER),
        Column("generation", _INTEGER),
        Column("version", _INTEGER),
        Column("fence", _INTEGER),
        Column("detail", _TEXT),
        Column("payload", _TEXT, optional=True),
        Column("labels", _TEXT, optional=True),
    ),
    ("shard_id", "uuid"),
    (("shard_id", "due_at", "uuid"),),
)
SHARDS: Final = Table(
    "shards",
    (Column("shard_id", _INTEGER), Column("version", _INTEGER), Column("owner", _NAME)),
    ("shard_id",),
)
HISTORY: Final = Table(  # the day (of started_at, in UTC) leads the key so that pruning removes key ranges
    "history",
    (
        Column("shard_id", _INTEGER),
        Column("day", _INTEGER),
        Column("uuid", _UUID),
        Column("started_at", _INTEGER),
        Column("attempt", _INTEGER),
        Column("digest", _WORD),
        Column("document", _TEXT),
    ),
    ("shard_id", "day", "uuid", "started_at", "attempt", "digest"),
)
RECORDS: Final = Table(
    "records",
    (
        Column("collection", _KEY),
        Column("record_key", _KEY),
        Column("value", "bytes"),
        Column("version", _INTEGER),
        Column("expires_at", _INTEGER, optional=True),
    ),
    ("collection", "record_key"),
    (("expires_at",),),
)
_MIGRATIONS_TABLE: Final = Table(
    "migrations", (Column("number", _INTEGER), Column("name", _NAME)), ("number",)
)  # fmt: skip


_TABLES: Final = (TIMERS, SHARDS, HISTORY, RECORDS, _MIGRATIONS_TABLE)


class Migration(Struct, frozen=True):
    number: int
    name: str
    tables: tuple[Table, ...]


MIGRATIONS: Final = (Migration(1, "timers, shards, history, records", (TIMERS, SHARDS, HISTORY, RECORDS)),)


class Names(Struct, frozen=True):
    """What the tables are called in one database: a prefix, and a schema where the database has them."""

    prefix: str = "mainspring_"
    schema: str = ""

    def full(self, table: str) -> str:
        return f"{self.schema}.{self.prefix}{table}" if self.schema else f"{self.prefix}{table}"


class Schema:
    """The migrations of one database."""

    def __init__(self, dialect: Dialect, names: Names, place: str) -> None:
        self._dialect = dialect
        self._names = names
        self._place = place
        self._migrations = names.full("migrations")

    async def pending(self, session: Session) -> list[Migration]:
        """The migrations that this database lacks. One that has unknown ones, or foreign tables, is refused."""
        await self._check_tables(session)
        known = MIGRATIONS[-1].number
        newest = await self._newest(session)
        if newest > known:
            raise ConfigError(
                f"Expected a database with at most migration {known}, got {newest} in {self._place}: "
                "a newer Mainspring has been here, and only it may use the database"
            )
        return [migration for migration in MIGRATIONS if migration.number > newest]

    async def migrate(self, session: Session) -> list[Migration]:
        """Apply what is pending. Of several processes that do so at once, one does the work and the others wait."""
        if not await self.pending(session):
            return []
        async with session.migration_lock(self._migrations):
            if self._names.schema:
                await session.execute(f"CREATE SCHEMA IF NOT EXISTS {self._names.schema}", ())
            await self._create(session, _MIGRATIONS_TABLE)
            applied = await self.pending(session)
            for migration in applied:
                for table in migration.tables:
                    await self._create(session, table)
                insert = self._dialect.render(f"INSERT INTO {self._migrations} (number, name) VALUES (?, ?)")  # noqa: S608
                await session.execute(insert, (migration.number, migration.name))
        return applied

    async def _create(self, session: Session, table: Table) -> None:
        for statement in self._dialect.create_table(table, self._names.full(table.name)):
            await session.execute(statement, ())

    async def _check_tables(self, session: Session) -> None:
        """A table with one of our names has our columns, or it is not ours."""
        for table in _TABLES:
            found = await self._columns(session, table)
            expected = {column.name for column in table.columns}
            if found and not expected <= found:
                raise ConfigError(
                    f"Expected the table {self._names.full(table.name)} in {self._place} to be Mainspring's, with the "
                    f"columns {', '.join(sorted(expected))}, got {', '.join(sorted(found))}: it belongs to somebody "
                    "else, or was changed. Another prefix in the store's URL (?prefix=) gives all tables other names"
                )

    async def _columns(self, session: Session, table: Table) -> set[str]:
        """None when there is no such table."""
        schema = f"'{self._names.schema}'" if self._names.schema else self._dialect.current_schema
        columns = self._dialect.render(
            f"SELECT column_name FROM information_schema.columns WHERE table_schema = {schema} AND table_name = ?"  # noqa: S608
        )
        return {str(name) for (name,) in await session.fetch(columns, (f"{self._names.prefix}{table.name}",))}

    async def _newest(self, session: Session) -> int:
        if not await self._columns(session, _MIGRATIONS_TABLE):
            return 0
        [[newest]] = await session.fetch(f"SELECT MAX(number) FROM {self._migrations}", ())  # noqa: S608
        return newest if isinstance(newest, int) else 0
