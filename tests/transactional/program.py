"""A program that writes an order and its reminder, says so, and waits to be killed or told to go on.

python -m tests.transactional.program <kind> <place> <name>
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import asyncio
import sys

from mainspring.transactional import TimerWriter
from tests.support.program_connections import WAYS, create


async def main(kind: str, place: str, name: str) -> None:
    first = next(iter(WAYS[kind].values()))
    async with first(place) as work:
        await work.fetch(f"INSERT INTO orders VALUES ('{name}')")
        await create(TimerWriter(namespace="app"), work, name, delay_seconds=0, handler="note")
        print("written", flush=True)
        sys.stdin.readline()
        await work.commit()
        print("committed", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
