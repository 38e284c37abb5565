"""Counts stale writes on PostgreSQL: begins and outcomes that were written by anybody but the owner of their shard.

Triggers do it, in the transactions of the writes themselves. Each server logs in as a role of its own; a claim notes
its role, and every begun timer and every attempt in the history is compared with the newest claim of its shard. So it
does not depend on what the writer believes to be its fence, and a begin must carry that very fence besides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import asyncpg  # type: ignore[import-untyped]

from mainspring.stores.sql.postgresql import postgresql_store

_NOTE = """
    CREATE FUNCTION note_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE claim record;
        BEGIN
            {action}
            RETURN NULL;
        END $$;
    CREATE TRIGGER note_{name} AFTER {event} ON mainspring_{table} FOR EACH ROW EXECUTE FUNCTION note_{name}();
"""
_ON_CLAIM = "INSERT INTO claims VALUES (NEW.shard_id, NEW.version, session_user) ON CONFLICT DO NOTHING;"
_COMPARE = """
    SELECT version, role INTO claim FROM claims WHERE shard_id = NEW.shard_id ORDER BY version DESC LIMIT 1;
    INSERT INTO writes VALUES ('{kind}', NEW.shard_id, session_user, claim.version, claim.role, {is_stale});
"""
_ON_BEGIN = _COMPARE.format(kind="begin", is_stale="claim.role <> session_user OR claim.version <> NEW.fence")
_ON_OUTCOME = _COMPARE.format(kind="outcome", is_stale="claim.role <> session_user")
_TRIGGERS = (
    ("first_claim", "INSERT", "shards", _ON_CLAIM),
    ("claim", "UPDATE", "shards", f"IF NEW.version > OLD.version THEN {_ON_CLAIM} END IF;"),
    ("begin", "UPDATE", "timers", _ON_BEGIN),  # nothing but a begin updates; all else is removed and inserted
    ("outcome", "INSERT", "history", _ON_OUTCOME),
)


class StaleWrites:
    """Of one database, whose tables are made here if there are none yet."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.roles: list[str] = []

    async def watch(self, servers: int) -> Sequence[str]:
        """Start counting. The URLs for so many servers."""
        await postgresql_store(self._url).migrate()
        place = self._url.rpartition("/")[2]
        self.roles = [f"{place}_{n}" for n in range(servers)]
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("CREATE TABLE claims (shard_id BIGINT, version BIGINT, role TEXT)")
            await connection.execute("CREATE UNIQUE INDEX claims_by_version ON claims (shard_id, version)")
            await connection.execute(
                "CREATE TABLE writes"
                " (kind TEXT, shard_id BIGINT, writer TEXT, version BIGINT, owner TEXT, is_stale BOOLEAN)"
            )
            for name, event, table, action in _TRIGGERS:
                await connection.execute(_NOTE.format(name=name, event=event, table=table, action=action))
            for role in self.roles:
                await connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        finally:
            await connection.close()
        return [re.sub(r"://[^@/]*@", f"://{role}@", self._url) for role in self.roles]

    async def ask(self, query: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self._url)
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    async def found(self) -> list[tuple[object, ...]]:
        """Kind, shard, writer, and the version and the owner at that moment of each stale write."""
        return await self.ask("SELECT kind, shard_id, writer, version, owner FROM writes WHERE is_stale IS NOT FALSE")

    async def counted(self) -> dict[str, int]:
        """How many writes were looked at, by kind."""
        rows = await self.ask("SELECT kind, COUNT(*) FROM writes GROUP BY kind")
        return {str(kind): int(str(count)) for kind, count in rows}

    async def close(self) -> None:
        """Roles outlive their database: take back what they may do there and remove them."""
        connection = await asyncpg.connect(self._url)
        try:
            for role in self.roles:
                await connection.execute(f"DROP OWNED BY {role}")
                await connection.execute(f"DROP ROLE {role}")
        finally:
            await connection.close()
