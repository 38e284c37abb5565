"""The HTTP edge behind a listener, for tests that bring none of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.api.app import build_app
from mainspring.api.listener import Listener, listening
from tests.api.edge import LIMITS
from tests.support.service_doubles import Edge


@pytest.fixture
async def edge() -> Edge:
    return Edge()


@pytest.fixture
async def listener(edge: Edge) -> AsyncIterator[Listener]:
    async with listening(build_app(edge.api), host="127.0.0.1", port=0, limits=LIMITS, drain_seconds=1) as listener:
        yield listener
