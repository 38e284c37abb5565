"""The simulated database keeps the contracts that every store keeps, in dictionaries and in SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from mainspring.clock import wall_ms
from mainspring.store import Store
from mainspring.testing.record_conformance import RecordStoreConformance
from mainspring.testing.simulation.clock import EPOCH_MS
from mainspring.testing.simulation.database import Database
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.plan import World
from mainspring.testing.simulation.sqlite import SQLiteTables
from mainspring.testing.simulation.store import SimulatedStore
from mainspring.testing.simulation.tables import Tables
from mainspring.testing.timer_conformance import TimerStoreConformance


class Instance:
    name = "i0"
    index = 0


class RealLoop:
    """What a database needs of a simulated loop, on the loop of the test: nothing takes any time."""

    now_us = (wall_ms() - EPOCH_MS) * 1000

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def call_at_us(self, _: int, callback: Callable[..., object], *args: object, context: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *args, context=context)


@pytest.fixture(params=[Tables, SQLiteTables])
def store(request: pytest.FixtureRequest) -> Store:
    database = Database(
        cast(SimulatedLoop, RealLoop()),
        request.param(),
        World(store_timeout=1_000_000_000),
        Draws(1),
        journal=[],
        reached=lambda _caller, _name: None,
        sometimes=lambda _what: None,
    )
    return SimulatedStore(database, Instance())


class TestTimers(TimerStoreConformance):
    pass


class TestRecords(RecordStoreConformance):
    pass
