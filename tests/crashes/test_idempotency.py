"""A process that dies in the middle of a request: the outcome is unknown, and nothing runs it again by itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mainspring.idempotency import SQLiteStore
from mainspring.idempotency.http.held_answer import Receive, Scope, Send
from mainspring.idempotency.http.middleware import IdempotencyMiddleware
from tests.support.asgi_requests import Client
from tests.support.source_tree import ROOT

LEASE_SECONDS = 3.0
DIES_AT_WORK = """
import asyncio, os, signal, sys
from mainspring.idempotency import SQLiteStore
from mainspring.idempotency.http.middleware import IdempotencyMiddleware
from tests.support.asgi_requests import Client

async def app(scope, receive, send):
    open(sys.argv[2], "w").write("the effect")
    os.kill(os.getpid(), signal.SIGKILL)

client = Client(IdempotencyMiddleware(app, store=SQLiteStore(sys.argv[1]), lease_seconds=float(sys.argv[3])))
asyncio.run(client(key="k"))
"""


async def test_a_request_whose_process_died_is_refused_until_somebody_settles_it(tmp_path: Path) -> None:
    keys, effect = str(tmp_path / "keys.db"), tmp_path / "effect"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DIES_AT_WORK, keys, str(effect), str(LEASE_SECONDS), cwd=ROOT
    )
    async with asyncio.timeout(20):
        assert await process.wait() == -9
    assert effect.read_text() == "the effect"
    runs: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        runs.append(1)

    store = SQLiteStore(keys)
    call = Client(IdempotencyMiddleware(app, store=store, lease_seconds=LEASE_SECONDS))
    try:
        refused = await call(key="k")
        assert (refused.status, refused.code) == (409, "in_progress"), "its lease may be renewed, for all we know"
        async with asyncio.timeout(20):
            while refused.code == "in_progress":
                await asyncio.sleep(0.1)
                refused = await call(key="k")
        assert (refused.status, refused.code, runs) == (409, "unknown_outcome", [])
    finally:
        await store.aclose()
