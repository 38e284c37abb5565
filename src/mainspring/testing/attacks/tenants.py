"""Attacks, or accidents, by those who have a token: they ask for far too much."""

from __future__ import annotations

import time
from typing import Final

from mainspring.client import AsyncClient, CreateTimer
from mainspring.errors import MainspringError
from mainspring.testing.attacks.attack import Attack, Victim, crowd

_LARGE: Final = "x" * 100_000
_LATER_SECONDS: Final = 86_400.0
_AT_ONCE: Final = 8


async def _shard_bomb(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    made = 0
    async with victim.client() as client:
        for number in range(size):
            if time.monotonic() > until:
                break
            try:
                await client.namespaces.create(f"bomb-{number}", shard_count=4096)
                made += 1
            except MainspringError:
                continue  # what a server may answer
    return made


async def _large_lists(victim: Victim, seconds: float, size: int) -> int:
    async with victim.client() as client:
        for number in range(size):
            await client.timers.create(
                f"large-{number}", callback_url="http://127.0.0.1:9/", delay_seconds=_LATER_SECONDS, payload=_LARGE
            )

        async def read(until: float) -> int:
            listed = 0
            while time.monotonic() < until:
                listed += len((await client.timers.list(limit=1000)).timers)
            return listed

        return await crowd(read, _AT_ONCE, seconds)


async def _one_id_in_a_batch(victim: Victim, seconds: float, size: int) -> int:
    later = CreateTimer(timer_id="same", callback_url="http://127.0.0.1:9/", delay_seconds=_LATER_SECONDS)

    async def repeat(client: AsyncClient, until: float) -> int:
        created = 0
        while time.monotonic() < until:
            created += (await client.timers.create_batch([later] * size)).created
        return created

    async with victim.client() as client:
        return await crowd(lambda until: repeat(client, until), 2, seconds)


TENANT_ATTACKS: Final = (
    Attack(
        name="shard-bomb",
        what="Namespaces of 4,096 shards each, and then a restart.",
        run=_shard_bomb,
        size=300,
        counts="namespaces made",
        restarts=True,
    ),
    Attack(
        name="large-lists",
        what="Eight readers of lists of timers with 100 KB each.",
        run=_large_lists,
        size=300,
        counts="timers listed",
    ),
    Attack(
        name="one-id-in-a-batch",
        what="Batches that name one id a thousand times.",
        run=_one_id_in_a_batch,
        size=1_000,
        counts="timers named",
    ),
)
