"""On PostgreSQL and MariaDB: triggers note each write in its own transaction.

Each server logs in as a user of its own; a claim notes its user, and so does every begun timer and every attempt in
the history, beside the newest claim of its shard.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, cast

from tests.cluster.stale_writes.audit import Claim, Write
from tests.support.sql_databases import Database

_TABLES = (
    "CREATE TABLE claims (shard_id BIGINT, version BIGINT, owner VARCHAR(80), PRIMARY KEY (shard_id, version))",
    "CREATE TABLE writes"
    " (kind VARCHAR(10), shard_id BIGINT, writer VARCHAR(80), version BIGINT, owner VARCHAR(80), fence BIGINT)",
)
_CLAIM = "INSERT INTO claims VALUES (NEW.shard_id, NEW.version, {user});"
_WRITE = """
    INSERT INTO writes SELECT '{kind}', NEW.shard_id, {{user}}, newest.version,
        (SELECT owner FROM claims WHERE shard_id = NEW.shard_id AND version = newest.version), {fence}
    FROM (SELECT MAX(version) AS version FROM claims WHERE shard_id = NEW.shard_id) AS newest;
"""
_TRIGGERS = (
    ("first_claim", "INSERT", "shards", _CLAIM),
    ("claim", "UPDATE", "shards", f"IF NEW.version > OLD.version THEN {_CLAIM} END IF;"),
    # Nothing but a begin updates; all else is removed and inserted.
    ("begin", "UPDATE", "timers", _WRITE.format(kind="begin", fence="NEW.fence")),
    ("outcome", "INSERT", "history", _WRITE.format(kind="outcome", fence="NULL")),
)


class _Dialect(NamedTuple):
    user: str
    trigger: tuple[str, ...]
    create_user: tuple[str, ...]
    drop_user: tuple[str, ...]


_POSTGRESQL = _Dialect(
    user="session_user",
    trigger=(
        "CREATE FUNCTION note_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action} RETURN NULL; END $$",
        "CREATE TRIGGER note_{name} AFTER {event} ON mainspring_{table} FOR EACH ROW EXECUTE FUNCTION note_{name}()",
    ),
    create_user=("CREATE ROLE {name} LOGIN SUPERUSER",),
    # Roles outlive their database: take back what they may do there and remove them.
    drop_user=("DROP OWNED BY {name}", "DROP ROLE {name}"),
)
_MARIADB = _Dialect(
    user="CONVERT(SUBSTRING_INDEX(USER(), '@', 1) USING utf8mb4)",  # CURRENT_USER is who made the trigger
    trigger=("CREATE TRIGGER note_{name} AFTER {event} ON mainspring_{table} FOR EACH ROW BEGIN {action} END",),
    create_user=("CREATE USER {name}@'127.0.0.1'", "GRANT ALL ON {place}.* TO {name}@'127.0.0.1'"),
    drop_user=("DROP USER {name}@'127.0.0.1'",),
)


class SqlAudit:
    def __init__(self, url: str) -> None:
        self._url = url
        self._database = Database(url)
        self._place = url.rpartition("/")[2]
        self._dialect = _POSTGRESQL if url.startswith("postgresql:") else _MARIADB
        self._users: list[str] = []

    async def watch(self, servers: int) -> Sequence[str]:
        await self._database.store().migrate()
        await self._run(*_TABLES)
        for name, event, table, action in _TRIGGERS:
            body = action.format(user=self._dialect.user)
            await self._run(
                *(part.format(name=name, event=event, table=table, action=body) for part in self._dialect.trigger)
            )
        for number in range(servers):
            name = f"{self._place}_{number}"
            await self._run(*(part.format(name=name, place=self._place) for part in self._dialect.create_user))
            self._users.append(name)
        return [re.sub(r"://[^@/]*@", f"://{user}@", self._url) for user in self._users]

    async def writes(self) -> list[Write]:
        rows = await self._run("SELECT kind, shard_id, writer, version, owner, fence FROM writes")
        return [Write(*row) for row in cast("list[Write]", rows)]

    async def claims(self) -> list[Claim]:
        rows = await self._run("SELECT shard_id, version, owner FROM claims ORDER BY shard_id, version")
        return [Claim(*row) for row in cast("list[Claim]", rows)]

    async def close(self) -> None:
        for name in self._users:
            await self._run(*(part.format(name=name) for part in self._dialect.drop_user))

    async def _run(self, *statements: str) -> list[tuple[object, ...]]:
        return await self._database.run(*statements)
