"""Every store, empty and open. `fresh_url` is the one place that binds the tests to databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.store import Store
from mainspring.stores import store_from_url
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

TIMER_STORES = ["memory", "sqlite", *server_params("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")]
RECORD_STORES = [*TIMER_STORES, *server_params("redis")]


@pytest.fixture(params=TIMER_STORES)
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the URL of a store that is empty, each time it is called; the ones before it are no longer needed."""
    numbers = count(1)
    match request.param:
        case "memory":
            return lambda: "memory://"
        case "sqlite":
            return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"
        case name:
            fleet: Fleet = request.getfixturevalue("fleet")
            return fleet.get(SERVERS[name]).empty


@pytest.fixture
async def store(fresh_url: Callable[[], str]) -> AsyncIterator[Store]:
    store = store_from_url(fresh_url(), clock=SystemClock())
    await store.open()
    yield store
    await store.close()
