"""A process of its own that uses a lock, told by its arguments what to do.

python -m tests.locks.program url count FILE ROUNDS   reads a number, adds one and writes it back, under the lock
python -m tests.locks.program url stop-in-block       stops (SIGSTOP) while it holds the lock, then goes on to write
python -m tests.locks.program url stop-before-write   stops between the proof that it holds the lock and the write
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from mainspring import open_lock
from mainspring.clock import SystemClock
from mainspring.errors import LockLost
from mainspring.locks import Held, Lock
from mainspring.model import Record
from mainspring.stores import store_from_url
from tests.locks.doubles import LossyRecords

NAME = "cron:psj"
TTL_SECONDS = 1.0
WAIT_SECONDS = 40.0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def append(held: Held) -> Record | None:
    """Add the token of the holder to the audit."""
    found = await held.records.get_record("audit", NAME)
    tokens: list[int] = msgspec.json.decode(found.value) if found else []
    value = msgspec.json.encode([*tokens, held.token])
    return await held.records.put_record("audit", NAME, value, expect=found.version if found else 0)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def read(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()]


def write(file: Path, numbers: list[int]) -> None:
    file.write_text(" ".join(map(str, numbers)))


async def count(url: str, file: Path, rounds: int) -> None:
    async with open_lock(url, NAME) as lock:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        for _ in range(rounds):
            async with lock.hold(wait_seconds=WAIT_SECONDS) as held:
                *before, number = read(file)
                await asyncio.sleep(0.003)  # time enough for others, if they were let in
                write(file, [*before, held.token, number + 1])


async def stop_before_the_audit(collection: str) -> None:
    """After the proof, when checking can no longer help."""
    if collection == "audit":
        stop()


async def be_stopped(url: str, where: str) -> None:
    clock = SystemClock()
    store = store_from_url(url, clock=clock)
    await store.open()
    clock.align(await store.time())
    records = LossyRecords(store)
    try:
        async with Lock(records, clock, NAME, ttl_seconds=TTL_SECONDS).hold(wait_seconds=WAIT_SECONDS) as held:
            await append(held)
            if where == "stop-before-write":
                records.before_put = stop_before_the_audit
            else:
                stop()
            say(f"wrote {await append(held)}")
    except LockLost:
        say("lost")
    await store.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [url, "count", file, rounds]:
            asyncio.run(count(url, Path(file), int(rounds)))
        case [url, where]:
            asyncio.run(be_stopped(url, where))
