"""SQL stores and servers that go away, freeze, come back, or never wanted us."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import asyncmy
import pytest

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.model import Shard
from mainspring.store import Put, Verdict
from mainspring.testing.timer_samples import NOW, create, key_of, timer
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.servers.process import free_port
from tests.servers.server import Server
from tests.support.sql_databases import SERVERS, Database

StartServer = Callable[[str], Server]

both = pytest.mark.parametrize("name", server_params(*SERVERS))


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_is_not_there_is_unavailable_by_its_address(name: str) -> None:
    port = free_port()
    store = Database(f"{name}://user:canary@127.0.0.1:{port}/db").store()
    with pytest.raises(StoreUnavailable, match=f"db at 127.0.0.1:{port}") as caught:
        await store.open()
    assert "canary" not in str(caught.value)


async def test_a_connection_that_is_reset_as_soon_as_it_is_made_is_unavailable_on_mysql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the driver says then, if the reset comes before it looks at the socket: a moment that no test can hit."""

    async def connect(**_: object) -> None:
        raise RuntimeError("Transport does not expose socket instance")

    monkeypatch.setattr(asyncmy, "connect", connect)
    with pytest.raises(StoreUnavailable, match=r"db at 127\.0\.0\.1:1"):
        await Database("mysql://root@127.0.0.1:1/db").store().open()


async def test_an_unknown_user_or_database_is_a_wrong_setting_on_postgresql(postgresql: PostgreSQL) -> None:
    for user, place in (("nobody:canary", "postgres"), ("postgres", "nowhere")):
        store = Database(f"postgresql://{user}@127.0.0.1:{postgresql.port}/{place}").store()
        with pytest.raises(ConfigError, match=r"nobody.*does not exist|nowhere.*does not exist") as caught:
            await store.open()
        assert "canary" not in str(caught.value)


async def test_a_wrong_password_or_an_unknown_database_is_a_wrong_setting_on_mysql(mysql: MySQL) -> None:
    for user, place in (("root:canary", "mysql"), ("nobody:canary", "mysql"), ("root", "nowhere")):
        store = Database(f"mysql://{user}@127.0.0.1:{mysql.port}/{place}").store()
        with pytest.raises(ConfigError, match=r"Access denied|Unknown database") as caught:
            await store.open()
        assert "canary" not in str(caught.value)


@both
async def test_a_store_recovers_by_itself_after_its_server_was_killed(name: str, start_server: StartServer) -> None:
    server = start_server(name)
    database = Database(server.fresh())
    store = database.store()
    await store.open()
    await asyncio.gather(*(create(store, timer(f"t{n}")) for n in range(50)))

    server.kill()
    calls = (
        store.write([Put(timer("a"), 0)]),
        store.get([key_of("a")]),
        store.claim_shards([Shard(0, 0, "me")]),
        store.put_record("c", "k", b"", expect=0, now=NOW),
        store.time(),
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert all("127.0.0.1" in str(answer) for answer in answers)

    server.start()
    await create(store, timer("b"))
    assert await store.get([key_of("b")]) == [timer("b")]
    await store.close()


@both
async def test_connections_that_the_server_has_ended_are_replaced(
    name: str, fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(name)
    database = Database(server.fresh())
    store = database.store()
    await store.open()
    await asyncio.gather(*(store.write([Put(timer(f"t{n}"), 0)]) for n in range(50)), store.time())
    end = {
        "postgresql": "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "mysql": "SELECT GROUP_CONCAT('KILL ', id SEPARATOR ';') FROM information_schema.processlist"
        " WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    }
    [(kills,)] = await database.run(end[name])
    if isinstance(kills, str):
        await database.run(*kills.split(";"), "SELECT 1")
    await asyncio.sleep(0.05)
    await create(store, timer("after"))
    assert await store.get([key_of("after")]) == [timer("after")]
    await store.close()


@both
async def test_a_server_that_freezes_is_unavailable_within_a_lease_and_then_available_again(
    name: str, start_server: StartServer
) -> None:
    server = start_server(name)
    store = Database(server.fresh()).store()
    await store.open()
    await create(store, timer("before"))
    server.pause()
    started = time.monotonic()
    calls = (store.write([Put(timer("a"), 0)]), store.get([key_of("before")]), store.time())
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert time.monotonic() - started < 6
    server.resume()
    assert await store.get([key_of("before")]) == [timer("before")]
    assert await store.write([Put(timer("b"), 0)]) == [Verdict.APPLIED]
    await store.close()


@both
async def test_a_store_that_was_idle_for_longer_than_the_server_waits_goes_on(
    name: str, fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(name)
    store = Database(server.fresh()).store()
    await store.open()
    await create(store, timer("a"))
    await asyncio.sleep(2.3)
    assert await store.get([key_of("a")]) == [timer("a")]
    await create(store, timer("b"))
    await store.close()
