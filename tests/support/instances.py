"""A whole instance per test, on each store, with a real target to call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config


@pytest.fixture(params=["memory", "sqlite"])
async def instance(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Instance]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'mainspring.db'}"
    async with Instance(Config(allow_loopback=True, store=url, data_dir=str(tmp_path), drain_seconds=1.0)) as running:
        yield running
