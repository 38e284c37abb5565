"""The numbered migrations, and how they are applied: in order, each once, all in one exclusive transaction.

A released migration is never edited; a change is a new one at the end of the list.
"""

from __future__ import annotations

from typing import Final

import apsw
from msgspec import Struct

from mainspring.errors import ConfigError


class Migration(Struct, frozen=True):
    number: int
    name: str
    sql: str


MIGRATIONS: Final = (
    Migration(
        1,
        "timers, shards, history, records",
        """
        CREATE TABLE timers (
            shard_id INTEGER NOT NULL, due_at INTEGER NOT NULL, uuid TEXT NOT NULL,
            namespace TEXT NOT NULL, timer_id TEXT NOT NULL, state TEXT NOT NULL,
            attempts INTEGER NOT NULL, generation INTEGER NOT NULL, version INTEGER NOT NULL, fence INTEGER NOT NULL,
            detail TEXT NOT NULL, payload TEXT,
            PRIMARY KEY (shard_id, due_at, uuid)
        ) WITHOUT ROWID, STRICT;
        CREATE UNIQUE INDEX timers_by_key ON timers (uuid, shard_id);

        CREATE TABLE shards (
            shard_id INTEGER PRIMARY KEY, version INTEGER NOT NULL, owner TEXT NOT NULL
        ) STRICT;

        -- The day (of started_at, in UTC) leads the key so that pruning removes key ranges. The document ends it
        -- so that an attempt reported twice is one row and two different reports are two.
        CREATE TABLE history (
            shard_id INTEGER NOT NULL, day INTEGER NOT NULL, uuid TEXT NOT NULL,
            started_at INTEGER NOT NULL, attempt INTEGER NOT NULL, document TEXT NOT NULL,
            PRIMARY KEY (shard_id, day, uuid, started_at, attempt, document)
        ) WITHOUT ROWID, STRICT;

        CREATE TABLE records (
            collection TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
            version INTEGER NOT NULL, expires_at INTEGER,
            PRIMARY KEY (collection, key)
        ) WITHOUT ROWID, STRICT;
        CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
        """,
    ),
)


_TABLES: Final = ("timers", "shards", "history", "records", "migrations")


def pending(connection: apsw.Connection) -> list[Migration]:
    """The migrations that this database lacks. A database that has unknown ones is refused."""
    known = MIGRATIONS[-1].number
    newest = _newest(connection)
    if newest > known:
        raise ConfigError(
            f"Expected a database with at most migration {known}, got {newest} in {connection.filename}: "
            "a newer Mainspring has been here, and only it may open the file"
        )
    return [migration for migration in MIGRATIONS if migration.number > newest]


def migrate(connection: apsw.Connection) -> list[Migration]:
    """Apply what is pending. Of several processes that do so at once, one does the work and the others wait."""
    if not pending(connection):
        return []
    connection.execute("BEGIN EXCLUSIVE")
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT) STRICT")
        applied = pending(connection)
        for migration in applied:
            connection.execute(migration.sql)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (migration.number, migration.name))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return applied


def missing_tables(connection: apsw.Connection) -> list[str]:
    """Our tables that somebody has dropped."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return [name for name in _TABLES if name not in found]


def _newest(connection: apsw.Connection) -> int:
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'migrations'").get:
        return 0
    newest: int | None = connection.execute("SELECT max(number) FROM migrations").get
    return newest or 0
