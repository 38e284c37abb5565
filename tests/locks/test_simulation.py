"""Seeded histories of contenders with lost requests and answers, partitions and slow stores: never two inside."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import msgspec
import pytest

from mainspring.errors import LockLost, LockTaken, StoreUnavailable
from mainspring.locks import Held, Lock
from mainspring.store import RecordStore
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import FaultyStore, SimulatedClock, SimulatedLoop, run_simulated

TTL_SECONDS = 9.0
FAULTY_SECONDS = 600.0
NOTHING = msgspec.json.encode([])


class History:
    """Who is inside, and which tokens were, in order."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.tokens: list[int] = []
        self.losses = 0

    def enter(self, token: int) -> None:
        assert not self.inside
        assert token > max(self.tokens, default=0)
        self.inside.add(token)
        self.tokens.append(token)


async def append(records: RecordStore, token: int, clock: SimulatedClock) -> None:
    """Add a token to the audit."""
    found = await records.get_record("audit", "k", now=clock.now_ms())
    tokens: list[int] = msgspec.json.decode(found.value if found else NOTHING)
    expect = found.version if found else 0
    await records.put_record("audit", "k", msgspec.json.encode([*tokens, token]), expect=expect, now=clock.now_ms())


async def work(held: Held, history: History, dice: random.Random, clock: SimulatedClock) -> None:
    history.enter(held.token)
    try:
        for _ in range(dice.randrange(5)):
            await asyncio.sleep(dice.random() * TTL_SECONDS)
            with suppress(StoreUnavailable):  # it goes on, as long as it may
                await append(held.records, held.token, clock)
    finally:
        history.inside.remove(held.token)


async def contend(store: FaultyStore, history: History, dice: random.Random, clock: SimulatedClock) -> None:
    lock = Lock(store, clock, "n", ttl_seconds=TTL_SECONDS)
    while True:
        await asyncio.sleep(dice.random() * TTL_SECONDS / 3)
        store.cut = store.fault_rate > 0 and dice.random() < 0.1
        try:
            async with lock.hold(wait_seconds=dice.random() * TTL_SECONDS) as held:
                store.cut = store.fault_rate > 0 and dice.random() < 0.5
                await work(held, history, dice, clock)
        except LockLost:
            history.losses += 1
        except (LockTaken, StoreUnavailable):
            pass


async def run(loop: SimulatedLoop, seed: int) -> History:
    dice = random.Random(seed)
    clock = SimulatedClock(loop)
    inner = MemoryStore(clock)
    history = History()
    stores = [FaultyStore(inner, dice, fault_rate=0.2, latency_seconds=TTL_SECONDS / 10) for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        contenders = [tasks.create_task(contend(store, history, dice, SimulatedClock(loop))) for store in stores]
        await asyncio.sleep(FAULTY_SECONDS)
        for store in stores:
            store.fault_rate, store.cut = 0, False
        before = len(history.tokens)
        await asyncio.sleep(10 * TTL_SECONDS)
        assert len(history.tokens) > before, "Expected the lock to be had again once the faults are over"
        for contender in contenders:
            contender.cancel()
    found = await inner.get_record("audit", "k", now=clock.now_ms())
    assert found is not None
    audit: list[int] = msgspec.json.decode(found.value)
    assert audit == sorted(audit)
    return history


@pytest.mark.parametrize("seed", range(40))
def test_there_is_one_holder_at_a_time_and_tokens_never_go_back(seed: int) -> None:
    async def main(loop: SimulatedLoop) -> None:
        history = await run(loop, seed)
        assert history.losses > 0, "Expected faults that cost somebody the lock"

    run_simulated(main)
