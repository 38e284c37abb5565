"""`connection=`: the engine and the transaction in one program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from mainspring import DueTimer, Mainspring
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.transactional import TimerWriter
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.servers.postgresql import PostgreSQL
from tests.support.program_connections import WAYS

IN_PROGRAM = {"sqlite": "apsw", "postgresql": "asyncpg", "mysql": "sqlalchemy-connection"}


@asynccontextmanager
async def noting(url: str) -> AsyncIterator[tuple[Mainspring, asyncio.Queue[str]]]:
    fired: asyncio.Queue[str] = asyncio.Queue()
    async with Mainspring(url, allow_loopback=True, look_seconds=0.1) as ms:

        @ms.handler("note")
        async def note(timer: DueTimer) -> None:
            fired.put_nowait(timer.timer_id)

        with suppress(Conflict):
            await ms.namespaces.create("app")
        yield ms, fired


@pytest.fixture(params=["sqlite", *server_params("postgresql", "mysql")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.get(SERVERS[request.param]).fresh()


async def test_a_timer_of_the_program_commits_with_its_transaction(url: str) -> None:
    kind = url.partition(":")[0]
    way = WAYS[kind][IN_PROGRAM[kind]]
    async with noting(url) as (ms, fired), way(url.removeprefix("sqlite:///")) as work:
        await ms.timers.create("lost", namespace="app", delay_seconds=0, handler="note", connection=work.connection)
        await work.rollback()
        await ms.timers.create("kept", namespace="app", delay_seconds=0, handler="note", connection=work.connection)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fired.get(), 0.35)
        await work.commit()
        assert await asyncio.wait_for(fired.get(), 2) == "kept"
        with pytest.raises(NotFound):
            await ms.timers.get("lost", namespace="app")


async def test_handlers_and_namespaces_must_exist(url: str) -> None:
    kind = url.partition(":")[0]
    way = WAYS[kind][IN_PROGRAM[kind]]
    async with noting(url) as (ms, _), way(url.removeprefix("sqlite:///")) as work:
        with pytest.raises(InvalidInput, match="registered handler"):
            await ms.timers.create("t1", namespace="app", delay_seconds=0, handler="nobody", connection=work.connection)
        with pytest.raises(NotFound, match="create it before"):
            await ms.timers.create(
                "t1", namespace="nowhere", delay_seconds=0, handler="note", connection=work.connection
            )
        await work.rollback()


async def test_tables_may_have_a_schema_and_a_prefix(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    async with noting(f"{url}?schema=clockwork&prefix=our_") as (ms, fired):
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await ms.timers.create("t1", namespace="app", delay_seconds=0, handler="note", connection=connection)
        writer = TimerWriter(namespace="app", prefix="our_", schema="clockwork")
        async with connection.transaction():
            await writer.acreate(connection, "t2", delay_seconds=3600, handler="note")
            assert (await writer.acreate(connection, "t2", delay_seconds=0, handler="note")).generation == 2
        await connection.close()
        assert {await asyncio.wait_for(fired.get(), 2), await asyncio.wait_for(fired.get(), 2)} == {"t1", "t2"}
