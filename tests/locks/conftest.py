"""Every record store, empty and open, and those that several processes can share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.store import Store
from mainspring.stores import store_from_url
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

EVERY_STORE = [
    "memory",
    "sqlite",
    *server_params("postgresql", "mysql", "mongodb", "cassandra", "dynamodb", "redis"),
]
SHARED = ["sqlite", *server_params("postgresql", "redis")]


@pytest.fixture(params=EVERY_STORE)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = store_from_url(_empty_place(request, tmp_path), clock=SystemClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _empty_place(request, tmp_path)


def _empty_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/locks.db"
        case name:
            fleet: Fleet = request.getfixturevalue("fleet")
            return fleet.get(SERVERS[name]).empty()
