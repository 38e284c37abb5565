"""A program keeps its transaction open. What it has written waits for it; nobody else does.

Not on SQLite, which has one writer at a time: there everybody waits for a transaction that has written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.client import AsyncClient
from mainspring.errors import StoreUnavailable
from mainspring.transactional import TimerWriter
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.program_connections import WAYS, create
from tests.support.running_server import running_server
from tests.transactional.conftest import Database

PROMPT_SECONDS = 2.0


@pytest.fixture(params=server_params("postgresql", "mysql"))
def database(request: pytest.FixtureRequest, databases: Callable[[str], Database]) -> Database:
    return databases(request.param)


async def test_timers_are_on_time_while_a_program_holds_one_that_is_due(database: Database) -> None:
    way = next(iter(WAYS[database.kind].values()))
    writer = TimerWriter(namespace="app")
    async with way(database.place) as holder, way(database.place) as work:
        await create(writer, holder, "due-and-held", delay_seconds=0.5, handler="note")
        await holder.commit()
        await create(writer, holder, "due-and-held", delay_seconds=3600, handler="note")
        for n in range(200):
            await create(writer, work, f"on-time-{n}", delay_seconds=0.5 + 0.02 * n, handler="note")
        await work.commit()
        committed = time.monotonic()
        for n in range(200):
            due = committed + 0.5 + 0.02 * n
            database.engine.wait_for(f"fired on-time-{n} ", max(due + PROMPT_SECONDS - time.monotonic(), 0))
        assert database.engine.said("fired due-and-held ") == []
        await holder.commit()
        database.engine.watch(0.5)
        assert database.engine.said("fired due-and-held ") == []
        rows = await work.fetch("SELECT generation, state FROM mainspring_timers WHERE timer_id = 'due-and-held'")
        assert rows == [(2, "scheduled")]
        await work.rollback()


async def test_a_due_timer_that_was_held_is_called_after_the_rollback(database: Database) -> None:
    way = next(iter(WAYS[database.kind].values()))
    writer = TimerWriter(namespace="app")
    async with way(database.place) as holder:
        await create(writer, holder, "held-for-a-while", delay_seconds=0.5, handler="note")
        await holder.commit()
        await create(writer, holder, "held-for-a-while", delay_seconds=3600, handler="note")
        database.engine.watch(1.5)
        await holder.rollback()
        database.engine.wait_for("fired held-for-a-while 1 ", 5)


async def test_outcomes_are_recorded_while_a_program_holds_a_timer_whose_call_is_in_flight(database: Database) -> None:
    way = next(iter(WAYS[database.kind].values()))
    writer = TimerWriter(namespace="app")
    async with way(database.place) as holder, way(database.place) as work:
        for n in range(20):
            await create(writer, work, f"ends-{n}", delay_seconds=0, handler="slow")
        await create(writer, work, "ends-held", delay_seconds=0, handler="slow")
        await work.commit()
        database.engine.wait_for("begun ends-held ")
        await create(writer, holder, "ends-held", delay_seconds=3600, handler="note")
        for n in range(20):
            database.engine.wait_for(f"fired ends-{n} ")
        deadline = time.monotonic() + PROMPT_SECONDS
        left = -1
        while left and time.monotonic() < deadline:
            [[left]] = await work.fetch("SELECT COUNT(*) FROM mainspring_timers WHERE state = 'running' "
                                        "AND timer_id LIKE 'ends-%' AND timer_id <> 'ends-held'")  # fmt: skip
            await work.rollback()
            await asyncio.sleep(0.05)
        assert left == 0
        await holder.commit()


async def test_creates_through_the_api_succeed_beside_one_whose_timer_a_program_holds(
    database: Database, fleet: Fleet, tmp_path: Path
) -> None:
    store = fleet.get(SERVERS[database.kind]).fresh()
    url = "https://example.com/"
    way = next(iter(WAYS[database.kind].values()))
    with running_server(tmp_path, store) as server:
        async with AsyncClient(server.url, server.token, retries=0) as client, way(store) as holder:
            await client.timers.create("held", delay_seconds=3600, callback_url=url)
            for name in ("held", "new"):
                await create(TimerWriter(namespace="default"), holder, name, delay_seconds=3600, callback_url=url)
            names = [*(f"t{n}" for n in range(7)), "held", "new", *(f"u{n}" for n in range(7))]
            answers = await asyncio.gather(
                *(client.timers.create(name, delay_seconds=3600, callback_url=url) for name in names),
                return_exceptions=True,
            )
            failed = [name for name, answer in zip(names, answers, strict=True) if isinstance(answer, Exception)]
            assert failed == ["held", "new"]
            assert all(isinstance(answer, StoreUnavailable) for answer in answers[7:9])
            assert "transaction" in str(answers[7])
            await holder.commit()
            assert (await client.timers.create("held", delay_seconds=3600, callback_url=url)).generation == 3
