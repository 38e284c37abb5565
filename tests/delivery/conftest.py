"""The sender must behave alike on both event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender


@pytest.fixture(scope="session", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender(guard=Guard(allow_loopback=True)) as opened:
        yield opened
