"""What happens around a lock: blocks that end early or late, stores that are away, clocks that jump."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import Conflict, InvalidInput, LockLost, LockTaken, StoreUnavailable
from mainspring.locks import LOCKS, Lock
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from tests.locks.doubles import HandClock, LossyRecords, acquired

NOBODY = "no program writes this"


def simulated(loop: SimulatedLoop) -> tuple[SimulatedClock, LossyRecords]:
    clock = SimulatedClock(loop)
    return clock, LossyRecords(MemoryStore(clock))


def test_a_block_renews_its_lock_as_long_as_it_lasts() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        other = Lock(records, clock, "n")
        async with Lock(records, clock, "n").hold() as held:
            for _ in range(30):
                await asyncio.sleep(31)
                assert await other.try_acquire() is None
                held.check()
        assert await other.try_acquire() is not None

    run_simulated(main)


def test_a_block_is_cancelled_before_the_lease_ends_if_the_store_stays_away() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        lock = Lock(records, clock, "n", ttl_seconds=90)

        async def work() -> None:
            async with lock.hold():
                records.is_cut = True
                await asyncio.sleep(1000)

        with pytest.raises(LockLost):
            await work()
        assert clock.monotonic() == pytest.approx(81)
        records.is_cut = False
        other = Lock(records, clock, "n")
        assert await other.try_acquire() is None  # nobody could let it go
        async with other.hold(wait_seconds=10):
            assert clock.monotonic() == pytest.approx(90, abs=1)

    run_simulated(main)


def test_a_store_that_comes_back_before_the_lease_ends_costs_nothing() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        async with Lock(records, clock, "n", ttl_seconds=90).hold() as held:
            records.is_cut = True
            await asyncio.sleep(75)
            records.is_cut = False
            records.lose_answers = 1  # and the first renewal is written without our knowing
            await asyncio.sleep(75)
            held.check()
            await held.confirm()

    run_simulated(main)


def test_no_block_begins_with_a_lease_that_has_ended_before_its_answer_came() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        lock, other = (Lock(records, clock, "n", ttl_seconds=90) for _ in range(2))

        async def stall(collection: str) -> None:
            records.before_put = go_on
            await asyncio.sleep(82)

        async def go_on(collection: str) -> None:
            """The store is itself again."""

        records.before_put = stall
        assert await lock.try_acquire() is None
        records.before_put = stall
        async with lock.hold(wait_seconds=200) as held:
            assert held.seconds_left > 80
            assert await other.try_acquire() is None

    run_simulated(main)


def test_a_block_is_cancelled_when_a_renewal_finds_another_holder() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        ahead = SimulatedClock(loop, skew_ms=3_600_000)

        async def work() -> None:
            async with Lock(records, clock, "n", ttl_seconds=90).hold():
                assert await Lock(records, ahead, "n").try_acquire() is not None
                await asyncio.sleep(1000)

        with pytest.raises(LockLost):
            await work()
        assert clock.monotonic() == pytest.approx(30)

    run_simulated(main)


def test_a_block_that_does_not_notice_the_loss_is_told_at_its_end() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        ahead = SimulatedClock(loop, skew_ms=3_600_000)
        with pytest.raises(LockLost, match="taken by somebody else before the block ended"):
            async with Lock(records, clock, "n").hold():
                successor = await Lock(records, ahead, "n").try_acquire()
        assert successor is not None
        await successor.confirm()

    run_simulated(main)


def test_what_a_block_raises_comes_out_as_it_is_and_the_lock_is_free() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        lock = Lock(records, clock, "n")
        for error in (TimeoutError("of the block"), ValueError("of the block")):
            with pytest.raises(type(error), match="of the block"):
                async with lock.hold():
                    raise error
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), lock.hold():
                await asyncio.sleep(10)
        assert await lock.try_acquire() is not None

    run_simulated(main)


def test_a_lock_that_is_held_is_refused_after_the_wait() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        async with Lock(records, clock, "n").hold():
            with pytest.raises(LockTaken, match=r"'n' is held by somebody else, and was not released within 7 s"):
                async with Lock(records, clock, "n").hold(wait_seconds=7):
                    raise AssertionError("never entered")
            assert clock.monotonic() == pytest.approx(7)

    run_simulated(main)


async def test_failure_to_get_a_lock_is_a_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    records = MemoryStore(clock)
    await acquired(Lock(records, clock, "n", owner="ann"))
    logger = logging.getLogger("mainspring")
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, logger="mainspring"):
            assert await Lock(records, clock, "n").try_acquire() is None
    finally:
        logger.removeHandler(caplog.handler)
    lines = {(line.levelname, line.getMessage(), line.__dict__["fields"]["owner"]) for line in caplog.records}
    assert lines == {("DEBUG", "a lock is held by somebody else  lock=n owner=ann", "ann")}


async def test_a_lock_whose_answer_was_lost_is_got_by_the_next_try_of_the_same_program() -> None:
    clock = HandClock()
    records = LossyRecords(MemoryStore(clock))
    lock, other = Lock(records, clock, "n"), Lock(records, clock, "n")
    records.lose_answers = 1
    with pytest.raises(StoreUnavailable):
        await lock.try_acquire()
    assert await other.try_acquire() is None
    held = await acquired(lock)
    assert await lock.try_acquire() is None
    records.lose_answers = 1
    with pytest.raises(StoreUnavailable):
        await held.renew()
    clock.pass_seconds(30)
    await held.renew()
    records.lose_answers = 1
    with pytest.raises(StoreUnavailable):
        await held.release()
    assert await held.release()
    assert await other.try_acquire() is not None
    assert not await held.release()


def test_a_lock_that_could_not_be_let_go_is_got_by_the_next_try_of_the_same_program() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        lock, other = Lock(records, clock, "n"), Lock(records, clock, "n")
        async with lock.hold():
            records.is_cut = True
        records.is_cut = False
        assert await other.try_acquire() is None
        held = await acquired(lock)
        records.is_cut = True
        with pytest.raises(StoreUnavailable):
            await held.release()
        records.is_cut = False
        assert await other.try_acquire() is None
        async with lock.hold():
            assert clock.monotonic() < 1

    run_simulated(main)


async def test_a_lock_whose_answer_was_lost_is_got_however_many_tries_fail_after_that() -> None:
    clock = HandClock()
    records = LossyRecords(MemoryStore(clock))
    lock = Lock(records, clock, "n")
    records.lose_answers = 1
    with pytest.raises(StoreUnavailable):
        await lock.try_acquire()
    before_put = records.before_put

    async def refuse(_: str) -> None:
        raise StoreUnavailable("nothing is written")

    records.before_put = refuse
    with pytest.raises(StoreUnavailable):
        await lock.try_acquire()
    records.before_put = before_put
    assert await lock.try_acquire() is not None


async def test_a_successor_that_comes_between_the_proof_and_the_write_is_not_overwritten() -> None:
    clock = HandClock()
    inner = MemoryStore(clock)
    records = LossyRecords(inner)
    first = await acquired(Lock(records, clock, "n", ttl_seconds=9))
    written = await first.records.put_record("audit", "k", b"first", expect=0)
    assert written is not None

    async def be_deposed(collection: str) -> None:
        clock.pass_seconds(9)
        second = await acquired(Lock(inner, clock, "n"))
        assert await second.records.put_record("audit", "k", b"second", expect=written.version) is not None

    records.before_put = be_deposed
    with pytest.raises(LockLost):
        await first.records.put_record("audit", "k", b"late", expect=written.version)
    found = await inner.get_record("audit", "k", now=clock.now_ms())
    assert found is not None
    assert found.value == b"second"


async def test_a_lease_counts_from_before_the_request_that_wrote_it() -> None:
    clock = HandClock()
    records = LossyRecords(MemoryStore(clock))

    async def take_two_seconds(collection: str) -> None:
        clock.pass_seconds(2)

    records.before_put = take_two_seconds
    held = await acquired(Lock(records, clock, "n", ttl_seconds=10))
    assert held.seconds_left == pytest.approx(7)
    await held.renew()
    assert held.seconds_left == pytest.approx(7)


async def test_a_clock_that_went_back_does_not_keep_a_lock_of_the_dead() -> None:
    clock = HandClock()
    records = MemoryStore(clock)
    dead = await acquired(Lock(records, clock, "n", ttl_seconds=90))
    clock.step_ms = -3_600_000
    lock = Lock(records, clock, "n", ttl_seconds=5)
    for _ in range(3):
        assert await lock.try_acquire() is None
        clock.pass_seconds(30)
    held = await acquired(lock)
    assert held.token > dead.token


async def test_a_holder_that_renews_is_not_deposed_because_the_clock_went_back() -> None:
    clock = HandClock()
    records = MemoryStore(clock)
    held = await acquired(Lock(records, clock, "n", ttl_seconds=90))
    clock.step_ms = -3_600_000
    lock = Lock(records, clock, "n")
    for _ in range(10):
        assert await lock.try_acquire() is None
        clock.pass_seconds(30)
        await held.renew()


async def test_a_block_that_blocked_its_event_loop_past_the_lease_is_cancelled_at_its_next_wait() -> None:
    clock = SystemClock()
    records = MemoryStore(clock)

    async def work() -> None:
        async with Lock(records, clock, "n", ttl_seconds=0.1).hold() as held:
            time.sleep(0.11)  # noqa: ASYNC251 - as a program does that knows no better
            with pytest.raises(LockLost):
                held.check()
            await asyncio.sleep(20)

    with pytest.raises(LockLost):
        await work()


async def test_names_and_leases_are_checked_and_foreign_records_left_alone() -> None:
    clock = HandClock()
    records = MemoryStore(clock)
    for name in ("", "x" * 256):
        with pytest.raises(InvalidInput, match="lock name"):
            Lock(records, clock, name)
    for ttl_seconds in (0.0, -1.0, 86_401.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="ttl_seconds"):
            Lock(records, clock, "n", ttl_seconds=ttl_seconds)
    foreign = await records.put_record(LOCKS, "n", NOBODY.encode(), expect=0, now=clock.now_ms())
    with pytest.raises(Conflict, match="not that of a lock"):
        await Lock(records, clock, "n").try_acquire()
    assert await records.get_record(LOCKS, "n", now=clock.now_ms()) == foreign


def test_a_write_of_an_earlier_holder_that_comes_late_does_not_touch_a_lock_of_the_same_name() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock, records = simulated(loop)
        earlier = await acquired(Lock(records, clock, "n", ttl_seconds=1))
        await asyncio.sleep(8 * 86_400)  # nobody has used the name for so long that its record is gone
        later = await acquired(Lock(records, clock, "n"))
        stale = {"expect": earlier._version, "now": clock.now_ms()}
        assert await records.put_record(LOCKS, "n", b"", **stale) is None
        assert not await records.delete_record(LOCKS, "n", **stale)
        await later.confirm()

    run_simulated(main)
