"""One server at a time keeps the clocks of jobs equal to the registry; one that was frozen meanwhile does nothing."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mainspring.clock import wall_ms
from mainspring.jobs.registry import JOBS
from mainspring.testing.torture.process import ServerProcess
from tests.cluster.job_cluster import INSIDE
from tests.servers.postgresql import PostgreSQL
from tests.support.patience import until
from tests.support.sql_databases import Database

SERVERS = 2
ROUNDS = 4
LOCK_SECONDS = 1.5
LOOK_SECONDS = 0.1

AUDIT = (
    # Whoever writes itself into the lock holds it from then on; whoever lets go empties it.
    "CREATE TABLE holders (number SERIAL, writer TEXT)",
    "CREATE FUNCTION note_holder() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " INSERT INTO holders (writer) SELECT CASE (convert_from(NEW.value, 'UTF8')::json ->> 'owner')"
    " WHEN '' THEN '' ELSE session_user END; RETURN NULL; END $$",
    "CREATE TRIGGER note_holder AFTER INSERT OR UPDATE ON mainspring_records FOR EACH ROW"
    " WHEN (NEW.collection = 'lock') EXECUTE FUNCTION note_holder()",
    # A clock that is new was made by who keeps the clocks; changes of it are made by its own ticks, too.
    "CREATE TABLE told (job TEXT, writer TEXT, holder TEXT)",
    "CREATE FUNCTION note_clock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " INSERT INTO told SELECT NEW.timer_id, session_user, (SELECT writer FROM holders ORDER BY number DESC LIMIT 1);"
    " RETURN NULL; END $$",
    "CREATE TRIGGER note_clock AFTER INSERT ON mainspring_timers FOR EACH ROW"
    " WHEN (NEW.namespace = 'mainspring.jobs' AND NEW.generation = 1 AND NEW.attempts = 0"
    " AND NEW.state = 'scheduled') EXECUTE FUNCTION note_clock()",
    "SELECT 1",
)


@asynccontextmanager
async def servers_with_names(directory: Path, url: str) -> AsyncIterator[dict[str, ServerProcess]]:
    """Servers on one database, each by the user that it logs in as."""
    database = Database(url)
    users = [f"{url.rpartition('/')[2]}_{number}" for number in range(SERVERS)]
    surroundings = {"PYTHONPATH": str(INSIDE), "LOCK_SECONDS": str(LOCK_SECONDS), "LOOK_SECONDS": str(LOOK_SECONDS)}
    async with AsyncExitStack() as stack:
        servers: dict[str, ServerProcess] = {}
        for user in users:
            await database.run(f"CREATE ROLE {user} LOGIN SUPERUSER", "SELECT 1")
            stack.push_async_callback(database.run, f"DROP OWNED BY {user}", f"DROP ROLE {user}", "SELECT 1")
        for user in users:
            own_url = re.sub(r"://[^@/]*@", f"://{user}@", url)
            servers[user] = ServerProcess(directory / user, surroundings, store=own_url)
            stack.push_async_callback(servers[user].kill)
        for server in servers.values():
            assert await server.ready(), server.tail()
        yield servers


@pytest.mark.slow
async def test_a_holder_that_was_frozen_past_its_lease_touches_no_clock_beside_its_successor(
    tmp_path: Path, postgresql: PostgreSQL
) -> None:
    url = postgresql.fresh()
    database = Database(url)
    await database.store().migrate()
    await database.run(*AUDIT)

    async def holder(*, other_than: str = "") -> str:
        async def look() -> str | None:
            rows = await database.run("SELECT writer FROM holders ORDER BY number DESC LIMIT 1")
            return str(rows[0][0]) if rows and rows[0][0] not in ("", other_than) else None

        return await until(look, seconds=20, what="a holder of the lock")

    async def until_told(count: int) -> None:
        async def look() -> bool | None:
            return len(await database.run("SELECT job FROM told")) == count or None

        await until(look, seconds=20, what=f"{count} clocks")

    async with servers_with_names(tmp_path, url) as servers:
        for number in range(1, ROUNDS + 1):
            frozen = await holder()
            servers[frozen].send(signal.SIGSTOP)
            successor = await holder(other_than=frozen)
            await write_job(database, f"job-{2 * number - 1}")
            await until_told(2 * number - 1)
            await write_job(database, f"job-{2 * number}")  # for whoever looks first
            servers[frozen].send(signal.SIGCONT)
            await until_told(2 * number)
            await asyncio.sleep(3 * LOOK_SECONDS)
            assert await holder() == successor, "it has let go of what was not its own"
            assert await database.run("SELECT * FROM told WHERE writer != holder") == []
    assert len(await database.run("SELECT DISTINCT writer FROM told")) == SERVERS


async def write_job(database: Database, name: str) -> None:
    """As another program does, in the registry alone."""
    store = database.store()
    await store.open()
    try:
        value = json.dumps({"schedule": "0 0 1 1 *", "url": "http://127.0.0.1:9/"}).encode()
        assert await store.put_record(JOBS, name, value, expect=0, now=wall_ms()) is not None
    finally:
        await store.close()
