"""What the fault tests share: a target to call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.testing.target import TargetServer


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer() as server:
        yield server
