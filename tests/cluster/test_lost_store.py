"""A store that is not there at the start, goes away, takes rights away, or refuses the password."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.errors import Unavailable
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import ServerProcess, serving
from tests.servers.fixtures import server_params
from tests.servers.postgresql import PostgreSQL
from tests.servers.server import Server
from tests.support.patience import until, until_gone

NAMES = server_params("postgresql", "mysql", "mongodb")
GUARDED = server_params("postgresql", "mysql")
"""Those that ask the tests for a user."""
StartServer = Callable[[str], Server]


@pytest.mark.parametrize("name", NAMES)
async def test_a_start_waits_for_the_store_and_goes_on_when_it_is_there(
    name: str, start_server: StartServer, tmp_path: Path
) -> None:
    database = start_server(name)
    url = database.fresh()
    database.stop()
    server = ServerProcess(tmp_path, store=url)
    try:

        async def look() -> bool | None:
            return True if "waiting for the store" in server.tail() else None

        await until(look, seconds=15, what="a word about the store")
        database.start()
        assert await server.ready(seconds=30)
    finally:
        await server.kill()


@pytest.mark.parametrize("name", NAMES)
async def test_a_start_without_a_store_ends_with_a_clear_word(
    name: str, start_server: StartServer, tmp_path: Path
) -> None:
    database = start_server(name)
    url = database.fresh()
    database.stop()
    server = ServerProcess(tmp_path, store=url, store_wait_seconds="1")
    assert await server.ended(seconds=20) == 1
    assert re.search(r"\"message\": \"(Expected .+, got|No MongoDB primary answers: )", server.tail(), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
async def test_a_store_that_is_lost_and_comes_back_needs_no_restart(
    name: str, start_server: StartServer, tmp_path: Path, target: TargetServer
) -> None:
    database = start_server(name)
    async with serving(tmp_path, store=database.fresh()) as server, server.client() as client:
        for n in range(20):
            await client.timers.create(f"t{n}", callback_url=target.url, delay_seconds=1)
        database.stop()
        with pytest.raises(Unavailable):
            await client.timers.create("refused", callback_url=target.url, delay_seconds=0)
        database.start()
        await target.wait_for(20, seconds=20)
        for n in range(20):
            await until_gone(client, f"t{n}")
        await client.timers.create("later", callback_url=target.url, delay_seconds=0)
        await target.wait_for(21, seconds=10)


async def test_rights_that_are_revoked_and_granted_again_need_no_restart(
    postgresql: PostgreSQL, tmp_path: Path, target: TargetServer
) -> None:
    url = postgresql.fresh()
    place = url.rpartition("/")[2]
    user = f"u_{place}"
    postgresql.execute(f"CREATE ROLE {user} LOGIN; GRANT ALL ON SCHEMA public TO {user}", database=place)
    tables = "ALL TABLES IN SCHEMA public"
    async with serving(tmp_path, store=url.replace("postgres@", f"{user}@")) as server, server.client() as client:
        for n in range(20):
            await client.timers.create(f"t{n}", callback_url=target.url, delay_seconds=1)
        postgresql.execute(f"REVOKE ALL ON {tables} FROM {user}", database=place)
        with pytest.raises(Unavailable):
            await client.timers.create("refused", callback_url=target.url, delay_seconds=0)
        with pytest.raises(Unavailable):
            await client.ready()
        await asyncio.sleep(8)  # longer than the lease
        assert server.exit_code is None, server.tail()
        assert target.deliveries == {}
        postgresql.execute(f"GRANT ALL ON {tables} TO {user}", database=place)
        await target.wait_for(20, seconds=20)
        for n in range(20):
            await until_gone(client, f"t{n}")
        await client.timers.create("later", callback_url=target.url, delay_seconds=0)
        await target.wait_for(21, seconds=10)
        log = server.log.read_text()
        assert log.count("the lease was not renewed") <= 3
        assert "has a newer owner" not in log


@pytest.mark.parametrize("name", GUARDED)
async def test_a_wrong_password_is_told_at_once_and_shown_nowhere(
    name: str, start_server: StartServer, tmp_path: Path
) -> None:
    url = re.sub(r"://[^@/]*@", "://nobody:wrong-canary@", start_server(name).fresh())
    server = ServerProcess(tmp_path, store=url)
    code = await server.ended(seconds=20)
    assert "wrong-canary" not in server.log.read_text()
    assert code == 2, server.tail()
    assert re.search(r"\"message\": \"Expected to use the database .+nobody", server.tail(), re.MULTILINE)
