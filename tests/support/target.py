"""Somebody to call, as a fixture of all tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.testing.target import TargetServer


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer() as server:
        yield server
