"""What a lock promises, on every record store. Time is moved by hand where it matters."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import LockLost
from mainspring.locks import LOCKS, Lock
from mainspring.store import Store
from tests.locks.doubles import HandClock, acquired


async def test_one_of_many_tasks_holds_the_lock_at_a_time_and_tokens_grow(store: Store) -> None:
    clock = SystemClock()
    clock.align(await store.time())
    inside: list[int] = []
    tokens: list[int] = []

    async def work(number: int) -> None:
        lock = Lock(store, clock, "cron:psj", owner=f"task {number}")
        for _ in range(2):
            async with lock.hold(wait_seconds=30) as held:
                inside.append(number)
                tokens.append(held.token)
                await held.confirm()
                assert inside == [number]
                inside.remove(number)

    await asyncio.gather(*(work(number) for number in range(6)))
    assert len(tokens) == 12
    assert tokens == sorted(set(tokens))


async def test_a_lock_passes_on_by_release_and_by_expiry_and_only_its_holder_lets_go(store: Store) -> None:
    clock = HandClock()
    ours, theirs = (Lock(store, clock, "n", ttl_seconds=9) for _ in range(2))
    first = await acquired(ours)
    assert await theirs.try_acquire() is None
    assert await first.release()
    with pytest.raises(LockLost):
        first.check()
    second = await acquired(theirs)
    clock.pass_seconds(8.99)
    assert await ours.try_acquire() is None
    with pytest.raises(LockLost):  # its holder has stopped believing in it already
        second.check()
    clock.pass_seconds(0.01)
    third = await acquired(ours)
    assert first.token < second.token < third.token
    assert not await second.release()
    with pytest.raises(LockLost):
        await second.renew()
    await third.confirm()
    # A week after its last use the record is gone, and the next token is greater still.
    clock.pass_seconds(8 * 86_400)
    assert await store.get_record(LOCKS, "n", now=clock.now_ms()) is None
    assert (await acquired(theirs)).token > third.token


async def test_a_lock_that_is_renewed_is_kept(store: Store) -> None:
    clock = HandClock()
    ours, theirs = (Lock(store, clock, "n", ttl_seconds=9) for _ in range(2))
    held = await acquired(ours)
    for _ in range(4):
        clock.pass_seconds(5)
        assert await theirs.try_acquire() is None
        await held.renew()
    held.check()
    assert await held.release()
    assert await held.release()  # it is free, still
    assert (await acquired(theirs)).token > held.token
    assert not await held.release()


async def test_a_deposed_holder_overwrites_nothing_of_its_successor_whatever_its_clock_says(store: Store) -> None:
    ours, theirs = HandClock(), HandClock()
    first = await acquired(Lock(store, ours, "n", ttl_seconds=9))
    record = await first.records.put_record("audit", "k", b"first", expect=0)
    assert record is not None
    assert await first.records.put_record("audit", "k", b"x", expect=7) is None  # as in the contract, while it is held

    theirs.step_ms = 3_600_000
    second = await acquired(Lock(store, theirs, "n", ttl_seconds=9))
    first.check()
    with pytest.raises(LockLost):
        await first.records.put_record("audit", "k", b"late", expect=record.version)
    written = await second.records.put_record("audit", "k", b"second", expect=record.version)
    assert written is not None
    for expect in (record.version, written.version):
        with pytest.raises(LockLost):
            await first.records.put_record("audit", "k", b"late", expect=expect)
        with pytest.raises(LockLost):
            await first.records.delete_record("audit", "k", expect=expect)
    assert await first.records.get_record("audit", "k") == written
    assert await first.records.scan_records("audit") == [written]
    assert await second.records.delete_record("audit", "k", expect=written.version)
