"""What a program raises inside a block of ours comes out as it is, so that `except ValueError` works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, SyncMainspring, open_lock
from mainspring.client import AsyncClient, Client
from mainspring.idempotency import AsyncIdempotentProcessor, IdempotentProcessor, InMemoryStore
from mainspring.listening import listening
from mainspring.testing.target import TargetServer

URL = "http://127.0.0.1:1"


@asynccontextmanager
async def held(path: Path) -> AsyncIterator[None]:
    async with Mainspring(f"sqlite:///{path / 'app.db'}") as ms, ms.lock("x").hold():
        yield


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Nobody asks it for anything."""


async def work(order: str) -> None:
    """Nobody asks for it."""


AWAITED: dict[str, Callable[[Path], AbstractAsyncContextManager[object]]] = {
    "Mainspring": lambda path: Mainspring("memory://"),
    "Mainspring on a file": lambda path: Mainspring(f"sqlite:///{path / 'app.db'}"),
    "Mainspring at rest": lambda path: Mainspring("memory://").at_rest(),
    "a lock of a program": held,
    "open_lock": lambda path: open_lock(f"sqlite:///{path / 'app.db'}", "x"),
    "AsyncClient": lambda path: AsyncClient(URL),
    "listening": lambda path: listening(app),
    "TargetServer": lambda path: TargetServer(),
    "AsyncIdempotentProcessor": lambda path: AsyncIdempotentProcessor(InMemoryStore(), work, scope="x"),
}
BLOCKING: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "SyncMainspring": lambda: SyncMainspring("memory://"),
    "SyncMainspring at rest": lambda: SyncMainspring("memory://").at_rest(),
    "Client": lambda: Client(URL),
    "IdempotentProcessor": lambda: IdempotentProcessor(InMemoryStore(), str, scope="x"),
}


@pytest.mark.parametrize("block", AWAITED.values(), ids=AWAITED)
async def test_an_exception_of_the_program_leaves_a_block_that_awaits_as_it_is(
    block: Callable[[Path], AbstractAsyncContextManager[object]], tmp_path: Path
) -> None:
    own = ValueError("its own")
    with pytest.raises(ValueError, match="its own") as raised:
        async with block(tmp_path):
            raise own
    assert raised.value is own


@pytest.mark.parametrize("block", BLOCKING.values(), ids=BLOCKING)
def test_an_exception_of_the_program_leaves_a_block_that_waits_as_it_is(
    block: Callable[[], AbstractContextManager[object]],
) -> None:
    own = ValueError("its own")
    with pytest.raises(ValueError, match="its own") as raised, block():
        raise own
    assert raised.value is own
