"""Writes a little of everything with the version that runs this: `python -m tests.compatibility.make DIRECTORY`.

It uses what programs use, so that versions to come can run it, too. `old.db` is an embedded store; `registry.json` are
the jobs of a registry in Redis, key by key as the server holds them. Both are kept in this folder as they were written
before the services got the same rooms, and `made.json` says when.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis.asyncio

from mainspring import DueJob, DueTimer, Mainspring
from mainspring.idempotency import AsyncIdempotentProcessor
from mainspring.testing.target import Answer, TargetServer
from tests.servers.redis import Redis

LATER = datetime(2099, 12, 31, 12, 0, tzinfo=UTC)


async def main(directory: Path) -> None:
    await make_store(directory / "old.db")
    with Redis() as server:
        server.obtain()
        server.start()
        await make_registry(directory, server.fresh())


async def make_store(path: Path) -> None:
    ms = Mainspring(f"sqlite:///{path}", allow_loopback=True)
    ran = asyncio.Event()

    @ms.handler("note")
    async def note(timer: DueTimer) -> None: ...

    @ms.job("0 0 1 1 *", name="yearly", labels={"team": "blue"})
    async def yearly(job: DueJob) -> None:
        ran.set()

    async with TargetServer() as target, ms:
        target.script("/fetched", Answer(body="grüße".encode(), headers=(("content-type", "text/plain"),)))
        await ms.timers.create(
            "far", namespace="app", execute_at=LATER, handler="note", payload={"n": 1, "text": "ß"}, labels={"a": "b"}
        )
        await ms.timers.create(
            "headed",
            namespace="app",
            execute_at=LATER,
            callback_url="http://127.0.0.1:9/",
            headers={"Authorization": "x"},
        )
        await ms.timers.create("kept", namespace="app", execute_at=LATER, handler="note", payload=[1, 2.5, None])
        await ms.timers.park("kept", namespace="app")
        await ms.timers.create("done", namespace="app", delay_seconds=0, handler="note")
        while not (await ms.timers.history("done", namespace="app")).attempts:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await ms.jobs.trigger("yearly", by="ann")
        await ran.wait()
        while not [run async for run in ms.jobs.iterate_runs("yearly") if run.state == "succeeded"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        result = await ms.fetch(target.url + "/fetched", req_id="fetched")
        assert result.state == "succeeded"
        await ms.records("notes", dict[str, Any]).put("one", {"text": "kept"}, expect=0)
        async with ms.lock("nightly").hold():
            pass
        payments = AsyncIdempotentProcessor(ms.idempotency_store, pay, scope="pay")
        assert (await payments.process({"order": 7})).was_replay is False


async def pay(payload: dict[str, int]) -> dict[str, int]:
    return {"paid": payload["order"]}


async def make_registry(directory: Path, registry: str) -> None:
    async with Mainspring("memory://", registry=registry) as ms:
        await ms.jobs.create("nightly", "0 2 * * *", url="http://example.com/nightly", timezone="Europe/Berlin")
        await ms.jobs.create("paused", "@every 90s", url="http://example.com/", labels={"a": "b"})
        await ms.jobs.pause("paused", note="for a while", by="ann")
    async with redis_at(registry) as client:
        held = {key.decode(): base64.b64encode(await client.dump(key)).decode() for key in await client.keys()}
    (directory / "registry.json").write_text(json.dumps(held, indent=2, sort_keys=True) + "\n")


def redis_at(url: str) -> Any:
    return redis.asyncio.from_url(url)


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(into))
    (into / "made.json").write_text(json.dumps({"madeAt": time.time_ns() // 1_000_000}) + "\n")
