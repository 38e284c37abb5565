"""Stores that several processes can share, and a target to call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

SHARED_STORES = ["sqlite", *server_params("postgresql", "mysql", "mongodb")]


@pytest.fixture(params=SHARED_STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.get(SERVERS[request.param]).fresh()
