"""What all tests share: one event loop flavour, and real servers."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.servers.fixtures"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
