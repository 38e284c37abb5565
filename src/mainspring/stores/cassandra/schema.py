"""The keyspace and the numbered migrations: of several processes that start at once, one applies them.

Every statement may be repeated, so that the next process can go on where one has died. A released migration is never
edited; a change is a new one at the end of the list.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from mainspring.errors import ConfigError
from mainspring.stores.cassandra.address import Address
from mainspring.stores.cassandra.connection import Connection
from mainspring.stores.cassandra.migration_lease import COLUMNS as LEASE_COLUMNS
from mainspring.stores.cassandra.migration_lease import DEFINITION_SECONDS, MigrationLease, run_when_ready

Column = tuple[str, str, int]
"""Type, role, and position in the part of the key that the role names; -1 if it is in no key."""


class Migration(Struct, frozen=True):
    number: int
    name: str
    statements: tuple[str, ...]


# One partition per shard, with four kinds of rows besides its static columns (see rows.py for their keys).
_TIMERS: Final = """
    CREATE TABLE IF NOT EXISTS {keyspace}.mainspring_timers (
        shard_id int, row_type tinyint, at bigint, uuid text, entry blob,
        shard_version bigint static, shard_owner text static,
        shard_due_from bigint static, shard_due_guard bigint static,
        timer_due_at bigint, timer_version bigint, timer_attempts int,
        timer_namespace text, timer_id text, timer_state text, timer_generation bigint, timer_fence bigint,
        timer_detail blob, timer_payload text,
        attempt_document blob,
        PRIMARY KEY ((shard_id), row_type, at, uuid, entry)
    )
"""
# A collection that is listed has one partition, with an empty slot; in others each key is a slot of its own.
_RECORDS: Final = """
    CREATE TABLE IF NOT EXISTS {keyspace}.mainspring_records (
        collection text, slot text, key text,
        value blob, version bigint, expires_at bigint,
        PRIMARY KEY ((collection, slot), key)
    )
"""
_VERSIONS: Final = """
    CREATE TABLE IF NOT EXISTS {keyspace}.mainspring_migrations (
        number int, name text,
        PRIMARY KEY ((number))
    )
"""
_LEASE: Final = f"mainspring_migration_lease ({LEASE_COLUMNS})"

_SHAPE: Final = re.compile(r"(mainspring_\w+) \((.*), PRIMARY KEY \(\(([\w, ]+)\)([\w, ]*)\) \)")

MIGRATIONS: Final = (Migration(1, "timers, shards, history, records", (_TIMERS, _RECORDS)),)


def check(connection: Connection, address: Address) -> None:
    """Refuse tables that have our names but are not ours. Missing ones do not matter. Blocks."""
    rows = connection.run(
        "SELECT table_name, column_name, type, kind, position FROM system_schema.columns"  # noqa: S608
        f" WHERE keyspace_name = '{address.keyspace}'"
    )
    found: dict[str, dict[str, Column]] = {}
    for table, name, kind, role, position in rows:
        found.setdefault(str(table), {})[str(name)] = (str(kind), str(role), int(str(position)))
    for definition in (_TIMERS, _RECORDS, _VERSIONS, _LEASE):
        table, columns = _columns(definition)
        present = found.get(table)
        if not present:
            continue
        keys = {name for name, (_, role, _) in present.items() if role in ("partition_key", "clustering")}
        for name in (*columns, *sorted(keys - columns.keys())):
            if present.get(name) != columns.get(name):
                raise ConfigError(
                    f"Expected the table {table} in {address.keyspace} to have {_text(name, columns.get(name))}, "
                    f"got {_text(name, present.get(name))}: it is not Mainspring's, or was changed; "
                    "name another keyspace in the URL, or restore it"
                )


def _columns(definition: str) -> tuple[str, dict[str, Column]]:
    """The name and the columns of a table, as the servers would describe what this statement defines."""
    parts = _SHAPE.search(" ".join(definition.split()))
    if parts is None:
        raise ValueError(f"Expected the definition of a table, got {definition!r}")
    columns: dict[str, Column] = {}
    for column in parts[2].split(", "):
        name, kind, *static = column.split()
        columns[name] = (kind, "static" if static else "regular", -1)
    for role, names in (("partition_key", parts[3]), ("clustering", parts[4])):
        for position, name in enumerate(names.replace(",", " ").split()):
            columns[name] = (columns[name][0], role, position)
    return parts[1], columns


def _text(name: str, column: Column | None) -> str:
    if column is None:
        return f"no column {name}"
    kind, role, position = column
    place = f", {role.replace('_', ' ')} {position + 1}" if position >= 0 else ""
    return f"the column {name} {kind}{' static' if role == 'static' else place}"


def migrate(connection: Connection, address: Address) -> list[str]:
    """Apply what is pending and name it; if nothing is, change nothing. Blocks."""
    if not pending(connection, address):
        return []
    _create_keyspace(connection, address)
    lease = MigrationLease(connection, address.keyspace)
    with lease.taken():
        applied = pending(connection, address)
        if applied:
            lease.run(_VERSIONS.format(keyspace=address.keyspace))
        for migration in applied:
            for statement in migration.statements:
                lease.run(statement.format(keyspace=address.keyspace))
            run_when_ready(
                connection,
                f"INSERT INTO {address.keyspace}.mainspring_migrations (number, name)"  # noqa: S608
                f" VALUES ({migration.number}, '{migration.name}')",
            )
    return [_title(migration) for migration in applied]


def pending_names(connection: Connection, address: Address) -> list[str]:
    """The migrations that the keyspace lacks. Blocks."""
    return [_title(migration) for migration in pending(connection, address)]


def pending(connection: Connection, address: Address) -> list[Migration]:
    """A keyspace that has unknown migrations is refused."""
    check(connection, address)
    known = MIGRATIONS[-1].number
    present = _applied(connection, address)
    if present and max(present) > known:
        raise ConfigError(
            f"Expected a keyspace with at most migration {known}, got {max(present)} in {address.keyspace}: "
            "a newer Mainspring has been here, and only it may use it"
        )
    return [migration for migration in MIGRATIONS if migration.number not in present]


def _title(migration: Migration) -> str:
    return f"{migration.number:04} {migration.name}"


def _create_keyspace(connection: Connection, address: Address) -> None:
    """Unless the URL says how many copies to keep, the keyspace must exist."""
    if address.replication is not None:
        connection.run(
            f"CREATE KEYSPACE IF NOT EXISTS {address.keyspace} WITH replication ="
            f" {{'class': 'NetworkTopologyStrategy', 'replication_factor': {address.replication}}}",
            seconds=DEFINITION_SECONDS,
        )
    elif not connection.run(
        f"SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{address.keyspace}'"  # noqa: S608
    ):
        raise ConfigError(
            f"Expected the keyspace {address.keyspace} or replication=… in the URL to create it with, got neither"
        )


def _applied(connection: Connection, address: Address) -> set[int]:
    table = f"keyspace_name = '{address.keyspace}' AND table_name = 'mainspring_migrations'"
    if not connection.run(f"SELECT table_name FROM system_schema.tables WHERE {table}"):  # noqa: S608
        return set()
    rows = run_when_ready(connection, f"SELECT number FROM {address.keyspace}.mainspring_migrations")  # noqa: S608
    return {int(str(number)) for (number,) in rows}
