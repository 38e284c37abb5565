"""Every store, empty and open, as one parametrised fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.store import Store
from mainspring.stores import store_from_url

pytest.register_assert_rewrite("mainspring.testing")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/test.db"}[request.param]
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    yield store
    await store.close()
