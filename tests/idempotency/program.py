"""A process of its own that uses the library, told by its arguments what to do. The effect is a line in a file.

python -m tests.idempotency.program url effects callers CALLERS     many callers of one key, threads
python -m tests.idempotency.program url effects tasks CALLERS       the same, on an event loop
python -m tests.idempotency.program url effects die                 dies between the effect and its record
python -m tests.idempotency.program url effects stop                stops (SIGSTOP) between the two, then goes on
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mainspring.idempotency import AsyncIdempotentProcessor, IdempotentProcessor, LostClaim
from tests.idempotency.places import store_at

SCOPE = "charge"
PAYLOAD = {"order": 17}
LEASE_SECONDS = 1.0
WAIT_SECONDS = 40.0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def leave_effect(effects: Path) -> None:
    """One write of one line: those of several processes do not mix."""
    with effects.open("a") as file:
        file.write(f"{os.getpid()}\n")


def call_from_threads(url: str, effects: Path, callers: int) -> None:
    def charge(_: object) -> int:
        leave_effect(effects)
        time.sleep(0.2)
        return os.getpid()

    store = store_at(url)
    processor = IdempotentProcessor(store, charge, scope=SCOPE, wait_seconds=WAIT_SECONDS)
    processor.open()
    together = threading.Barrier(callers, timeout=30)

    def ask(_: int) -> int:
        together.wait()
        return processor.process(PAYLOAD).result

    _wait_for_start()
    with ThreadPoolExecutor(callers) as pool:
        say(f"results {sorted(set(pool.map(ask, range(callers))))} waiting {processor.waiting_keys}")
    store.close()


async def call_from_tasks(url: str, effects: Path, callers: int) -> None:
    async def charge(_: object) -> int:
        leave_effect(effects)
        await asyncio.sleep(0.2)
        return os.getpid()

    store = store_at(url)
    processor = AsyncIdempotentProcessor(store, charge, scope=SCOPE, wait_seconds=WAIT_SECONDS)
    await processor.open()
    await asyncio.to_thread(_wait_for_start)
    records = await asyncio.gather(*(processor.process(PAYLOAD) for _ in range(callers)))
    say(f"results {sorted({record.result for record in records})} waiting {processor.waiting_keys}")
    await store.aclose()


def _wait_for_start() -> None:
    say("ready")
    sys.stdin.readline()


def end_between(url: str, effects: Path, number: signal.Signals) -> None:
    def charge(_: object) -> str:
        leave_effect(effects)
        os.kill(os.getpid(), number)
        return "first"

    processor = IdempotentProcessor(store_at(url), charge, scope=SCOPE, lease_seconds=LEASE_SECONDS)
    try:
        say(f"result {processor.process(PAYLOAD).result}")
    except LostClaim as error:
        say(f"lost {error.result}")


def main(url: str, effects: str, what: str, callers: str = "0") -> None:
    match what:
        case "callers":
            call_from_threads(url, Path(effects), int(callers))
        case "tasks":
            asyncio.run(call_from_tasks(url, Path(effects), int(callers)))
        case "die":
            end_between(url, Path(effects), signal.SIGKILL)
        case "stop":
            end_between(url, Path(effects), signal.SIGSTOP)


if __name__ == "__main__":
    main(*sys.argv[1:])
