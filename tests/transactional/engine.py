"""An engine in a process of its own: it says what it fires, until its input ends.

In its own process because a test program with sqlite3 must not share one with the engine's SQLite.

    python -m tests.transactional.engine <store URL>
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from mainspring import DueTimer, Mainspring
from mainspring.errors import Conflict


async def main(url: str) -> None:
    async with Mainspring(url, allow_loopback=True, look_seconds=0.1) as ms:

        @ms.handler("note")
        async def note(timer: DueTimer) -> None:
            print("fired", timer.timer_id, timer.generation, timer.payload, flush=True)

        @ms.handler("slow")
        async def slow(timer: DueTimer) -> None:
            print("begun", timer.timer_id, timer.generation, timer.payload, flush=True)
            await asyncio.sleep(0.5)
            print("fired", timer.timer_id, timer.generation, timer.payload, flush=True)

        with suppress(Conflict):
            await ms.namespaces.create("app")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
