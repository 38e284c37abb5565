"""A row that the database does not want, for reasons of its own: it is unavailable, and no other row is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncmy
import asyncpg  # type: ignore[import-untyped]
import pymongo
import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock
from mainspring.model import Shard, State, Timer
from mainspring.store import Begin, Finish, Put, Store, Verdict
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import create, timer
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

APPLIED, UNAVAILABLE = Verdict.APPLIED, Verdict.UNAVAILABLE
DENIED = "denied"


async def _deny_in_postgresql(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        f"""
        CREATE FUNCTION deny() RETURNS trigger AS $$ BEGIN
            IF NEW.timer_id = '{DENIED}' AND NEW.attempts > 0 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW;
        END $$ LANGUAGE plpgsql;
        CREATE TRIGGER deny BEFORE INSERT OR UPDATE ON mainspring_timers FOR EACH ROW EXECUTE FUNCTION deny()
        """
    )
    await connection.close()


async def _deny_in_mysql(url: str) -> None:
    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username, database=parts.path[1:], autocommit=True
    )
    async with connection.cursor() as cursor:
        for verb in ("INSERT", "UPDATE"):
            await cursor.execute(
                f"""
                CREATE TRIGGER deny_{verb} BEFORE {verb} ON mainspring_timers FOR EACH ROW BEGIN
                    IF NEW.timer_id = '{DENIED}' AND NEW.attempts > 0 THEN
                        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one';
                    END IF;
                END
                """
            )
    await connection.ensure_closed()


async def _deny_in_mongodb(url: str) -> None:
    client: pymongo.AsyncMongoClient[dict[str, object]] = pymongo.AsyncMongoClient(url)
    async with client:
        database = client.get_default_database()
        wanted = {"$nor": [{"timer_id": DENIED, "attempts": {"$gt": 0}}]}
        await database.command("collMod", "mainspring_timers", validator=wanted)


DENY = {"postgresql": _deny_in_postgresql, "mysql": _deny_in_mysql, "mongodb": _deny_in_mongodb}


@pytest.fixture(params=server_params(*DENY))
async def denying(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, list[Timer]]]:
    """A store with eleven rows in it, one of which it does not want to be changed."""
    fleet: Fleet = request.getfixturevalue("fleet")
    server = await asyncio.to_thread(fleet.get, SERVERS[request.param])
    url = await asyncio.to_thread(server.fresh)
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    await store.claim_shards([Shard(0, 0, "me")])
    rows = [timer(name) for name in (*(f"t{number}" for number in range(5)), DENIED, *(f"u{n}" for n in range(5)))]
    await create(store, *rows)
    await DENY[request.param](url)
    yield store, rows
    await store.close()


async def test_an_attempt_that_cannot_be_begun_keeps_no_other_from_it(denying: tuple[Store, list[Timer]]) -> None:
    store, rows = denying
    verdicts = await store.begin([Begin(row.key, 1, 1) for row in rows])
    assert verdicts == [UNAVAILABLE if row.timer_id == DENIED else APPLIED for row in rows]


async def test_an_outcome_that_cannot_be_recorded_keeps_no_other_from_it(denying: tuple[Store, list[Timer]]) -> None:
    store, rows = denying
    ended = [replace(row, state=State.RETRYING, attempts=1) for row in rows]
    verdicts = await store.finish([Finish(row.key, 1, Put(row, 1), None) for row in ended])
    assert verdicts == [UNAVAILABLE if row.timer_id == DENIED else APPLIED for row in rows]
