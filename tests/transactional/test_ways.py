"""One create on every kind of connection: it is there when the program's data is, and it fires."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

import pytest

from mainspring.transactional import TimerFields, TimerWriter
from tests.support.program_connections import WAYS, Work, create
from tests.transactional.conftest import Database

LOOKS = 0.35
"""Seconds in which the engine has looked a few times."""


MARKS: dict[str, Collection[pytest.MarkDecorator]] = {
    "sqlite": [],
    "postgresql": [pytest.mark.server("postgresql")],
    "mysql": [pytest.mark.server("mysql")],
}
every_way = pytest.mark.parametrize(
    ("database", "way"),
    [pytest.param(kind, way, marks=MARKS[kind], id=f"{kind}-{way}") for kind, ways in WAYS.items() for way in ways],
    indirect=["database"],
)


@pytest.fixture
async def work(database: Database, way: str) -> AsyncIterator[Work]:
    async with WAYS[database.kind][way](database.place) as work:
        yield work


@pytest.fixture
def writer() -> TimerWriter:
    return TimerWriter(namespace="app", allow_loopback=True)


async def orders(work: Work, name: str) -> int:
    [[found]] = await work.fetch(f"SELECT COUNT(*) FROM orders WHERE name = '{name}'")
    return int(found)


@every_way
async def test_a_timer_fires_after_the_commit_and_not_before(
    database: Database, way: str, work: Work, writer: TimerWriter
) -> None:
    name = f"committed-{way}"
    await work.fetch(f"INSERT INTO orders VALUES ('{name}')")
    created = await create(writer, work, name, delay_seconds=0, handler="note", payload={"way": way})
    assert created.generation == 1
    database.engine.watch(LOOKS)
    assert database.engine.said(f"fired {name} ") == []
    await work.commit()
    assert database.engine.wait_for(f"fired {name} ", 2) == f"fired {name} 1 {{'way': '{way}'}}"
    assert await orders(work, name) == 1


@every_way
async def test_a_timer_never_fires_after_a_rollback(
    database: Database, way: str, work: Work, writer: TimerWriter
) -> None:
    name = f"rolled-back-{way}"
    await work.fetch(f"INSERT INTO orders VALUES ('{name}')")
    await create(writer, work, name, delay_seconds=0, handler="note")
    await work.rollback()
    database.engine.watch(LOOKS)
    assert database.engine.said(f"fired {name} ") == []
    assert await orders(work, name) == 0
    assert await work.fetch(f"SELECT 1 FROM {database.tables}timers WHERE timer_id = '{name}'") == []


@every_way
async def test_a_repeated_create_replaces_the_timer_and_counts_on(
    database: Database, way: str, work: Work, writer: TimerWriter
) -> None:
    name = f"repeated-{way}"
    first = await create(writer, work, name, delay_seconds=3600, handler="note", payload=1, labels={"a": "1"})
    await work.commit()
    target = "http://127.0.0.1:1/"
    changed: TimerFields = {"callback_url": target, "payload": "'?%s$1\\", "labels": {"b": "2"}, "delay_seconds": 7200}
    second = await create(writer, work, name, **changed)
    third = await create(writer, work, name, **changed)
    await work.commit()
    assert (first.generation, second.generation, third.generation) == (1, 2, 3)
    assert third.created_at == first.created_at
    assert third.delivery_id != first.delivery_id
    columns = "generation, state, attempts, payload"
    rows = await work.fetch(f"SELECT {columns} FROM {database.tables}timers WHERE timer_id = '{name}'")
    assert rows == [(3, "scheduled", 0, '"\'?%s$1\\\\"')]
    await work.rollback()
