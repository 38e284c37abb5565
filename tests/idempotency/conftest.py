"""Every store that the library names, empty, and two that it reaches through their URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainspring.idempotency.stores import IdempotencyStore
from tests.idempotency.places import store_at
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

SHARED = ["sqlite", *server_params("postgresql", "redis", "mysql", "mongodb", "dynamodb", "cassandra")]


@pytest.fixture(params=["memory", *SHARED])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _place(request, tmp_path)


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes can share."""
    return _place(request, tmp_path)


def _place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/idempotency.db"
        case name:
            fleet: Fleet = request.getfixturevalue("fleet")
            return fleet.get(SERVERS[name]).empty()


@pytest.fixture
def store(url: str) -> Iterator[IdempotencyStore]:
    """For threads."""
    store = store_at(url)
    yield store
    store.close()


@pytest.fixture
async def waiting_store(url: str) -> AsyncIterator[IdempotencyStore]:
    """For the event loop."""
    store = store_at(url)
    yield store
    await store.aclose()
