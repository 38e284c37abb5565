"""A store that stalls and applies later what it was sent: work that never began is not taken for work that may have."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import (
    AsyncIdempotentProcessor,
    IdempotentProcessor,
    InProgress,
    NotDone,
    RedisStore,
    UnknownOutcome,
    Unresolved,
)
from mainspring.idempotency.sync_processor import run
from mainspring.model import Record
from tests.idempotency.stalling import Stalling
from tests.servers.server import Server

LEASE_SECONDS = 30.0
IN_THE_WAY = (InProgress, StoreUnavailable, UnknownOutcome)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.idempotency.uncertain.RETRY_SECONDS", 0.02)


class Program:
    """One process: its calls are those of threads or of an event loop."""

    def __init__(
        self, store: Stalling | RedisStore, *, waits: bool, work: Callable[[Any], Any], **options: Any
    ) -> None:
        self._blocking: IdempotentProcessor[Any, Any] | None = None
        self._waiting: AsyncIdempotentProcessor[Any, Any] | None = None
        settings: dict[str, Any] = {"scope": "late", "lease_seconds": LEASE_SECONDS, "wait_seconds": 0, **options}
        if waits:

            async def work_waiting(payload: Any) -> Any:
                return work(payload)

            self._waiting = AsyncIdempotentProcessor(store, work_waiting, **settings)
        else:
            self._blocking = IdempotentProcessor(store, work, **settings)

    async def process(self, payload: Any) -> Any:
        if self._waiting is not None:
            return await self._waiting.process(payload)
        assert self._blocking is not None
        return await asyncio.to_thread(self._blocking.process, payload)


async def until(
    ask: Callable[[], Awaitable[Any]],
    *,
    seconds: float = 5.0,
    while_: tuple[type[Exception], ...] = (InProgress, StoreUnavailable),
) -> Any:
    """What it gives once nobody is in the way."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await ask()
        except while_:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


both = pytest.mark.parametrize("waits", [False, True], ids=["threads", "asyncio"])


@both
async def test_a_claim_that_is_applied_late_does_not_keep_its_own_process_from_the_work(waits: bool) -> None:
    store, runs = Stalling(), list[int]()
    program = Program(store, waits=waits, work=runs.append)
    store.is_stalled = True
    with pytest.raises(StoreUnavailable):
        await program.process(1)
    store.go_on()
    await program.process(1)
    assert runs == [1]


@both
async def test_a_claim_that_is_applied_late_is_withdrawn_for_other_processes(waits: bool) -> None:
    store, runs = Stalling(), list[int]()
    first, second = (Program(store, waits=waits, work=runs.append) for _ in range(2))
    store.is_stalled = True
    with pytest.raises(StoreUnavailable):
        await first.process(1)
    store.go_on()
    await until(lambda: second.process(1))
    assert runs == [1]


@both
async def test_a_claim_whose_lease_has_passed_before_it_was_applied_is_no_unknown_outcome(waits: bool) -> None:
    store, runs = Stalling(), list[int]()
    first, second = (Program(store, waits=waits, work=runs.append) for _ in range(2))
    store.is_stalled = True
    with pytest.raises(StoreUnavailable):
        await first.process(1)
    store.now += round(LEASE_SECONDS * 1000) + 1
    store.go_on()
    await first.process(1)
    assert (await second.process(1)).was_replay
    assert runs == [1]


@both
async def test_a_claim_that_is_applied_after_it_was_withdrawn_finds_its_place_taken(waits: bool) -> None:
    store, runs = Stalling(), list[int]()
    first, second = (Program(store, waits=waits, work=runs.append) for _ in range(2))
    store.is_stalled = True
    with pytest.raises(StoreUnavailable):
        await first.process(1)
    late, store.late = store.late, []
    store.is_stalled = False
    await asyncio.sleep(0.2)  # the process looks, and finds nothing
    for write in late:
        await write()
    await second.process(1)
    assert runs == [1]


@both
async def test_of_two_claims_that_are_applied_late_the_second_to_come_finds_its_place_taken(waits: bool) -> None:
    """The first is there when the process looks, and is removed: the other must not come into its place."""
    store, runs = Stalling(), list[int]()
    first, second = (Program(store, waits=waits, work=runs.append) for _ in range(2))
    store.is_stalled = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await first.process(1)
    (later, sooner), store.late = store.late, []
    await sooner()
    store.is_stalled = False
    await asyncio.sleep(0.2)  # the process looks, and withdraws what is there
    await later()
    await asyncio.sleep(0.2)
    store.now += round(LEASE_SECONDS * 1000) + 1
    await second.process(1)
    assert runs == [1]


@both
async def test_a_claim_that_is_applied_after_another_program_has_failed_and_gone_is_withdrawn(waits: bool) -> None:
    store, runs = Stalling(), list[int]()
    is_failing, may_fail = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(payload: int) -> None:
        runs.append(payload)
        if len(runs) == 1:
            loop.call_soon_threadsafe(is_failing.set)
            may_fail.wait(10)
            raise ValueError("not done")

    first, other = Program(store, waits=waits, work=work), Program(store, waits=False, work=work)
    store.is_stalled = True
    with pytest.raises(StoreUnavailable):
        await first.process(1)
    [late], store.late = store.late, []
    store.is_stalled = False
    failing = asyncio.create_task(other.process(1))
    await is_failing.wait()
    await asyncio.sleep(0.2)  # the first process looks, and finds the claim of the other
    may_fail.set()
    with pytest.raises(ValueError, match="not done"):
        await failing
    await late()
    await asyncio.sleep(0.2)
    store.now += round(LEASE_SECONDS * 1000) + 1
    await other.process(1)
    assert runs == [1, 1]


async def test_work_is_not_begun_under_a_claim_that_has_passed_to_another_before_its_answer_came() -> None:
    store, runs, answer = Stalling(), list[str](), asyncio.Event()
    is_there, claim = asyncio.Event(), store.claim

    async def slow(*arguments: Any, **named: Any) -> Record | None:
        found = await claim(*arguments, **named)
        is_there.set()
        await answer.wait()
        return found

    first = Program(store, waits=True, work=lambda _: runs.append("first"))
    second = Program(store, waits=True, work=lambda _: runs.append("second"), resolve=lambda *_: NotDone())
    store.claim = slow  # type: ignore[method-assign]
    slow_call = asyncio.create_task(first.process(1))
    await is_there.wait()
    store.claim = claim  # type: ignore[method-assign]
    store.now += round(LEASE_SECONDS * 1000) + 1
    await second.process(1)
    answer.set()
    with pytest.raises(StoreUnavailable):
        await slow_call
    assert (await first.process(1)).was_replay
    assert runs == ["second"]


@both
async def test_work_that_failed_while_the_store_was_away_may_run_again(waits: bool) -> None:
    store, runs = Stalling(), list[int]()

    def work(payload: int) -> str:
        runs.append(payload)
        if len(runs) == 1:
            store.is_stalled = True
            raise ValueError("not done")
        return "done"

    first, second = (Program(store, waits=waits, work=work) for _ in range(2))
    with pytest.raises(ValueError, match="not done"):
        await first.process(1)
    store.late.clear()  # the release is lost
    store.is_stalled = False
    assert (await until(lambda: second.process(1))).result == "done"
    assert runs == [1, 1]


@both
async def test_a_release_that_is_applied_late_removes_no_claim_of_somebody_else(waits: bool) -> None:
    store = Stalling()

    def fail(_: int) -> None:
        store.is_stalled = True
        raise ValueError("not done")

    first = Program(store, waits=waits, work=fail)
    with pytest.raises(ValueError, match="not done"):
        await first.process(1)
    [release] = store.late
    store.go_on()  # the release is applied
    running: list[Record | None] = []

    def work(_: int) -> str:
        for _ in range(2):
            run(release())  # type: ignore[arg-type]
        running.extend(kept.record for kept in store._records.values())
        return "done"

    second = Program(store, waits=waits, work=work)
    assert (await second.process(1)).result == "done"
    assert len(running) == 1, "the claim stands while its work runs"


@both
async def test_a_take_over_that_is_applied_late_leaves_the_outcome_unknown_and_resolve_is_asked(waits: bool) -> None:
    store, runs = Stalling(), list[int]()
    asked: list[Unresolved] = []

    def lost(_: int) -> None:
        raise UnknownOutcome("the call timed out")

    def resolve(_: int, unresolved: Unresolved) -> NotDone:
        asked.append(unresolved)
        return NotDone()

    with pytest.raises(UnknownOutcome):
        await Program(store, waits=waits, work=lost).process(1)
    first, second = (Program(store, waits=waits, work=runs.append, resolve=resolve) for _ in range(2))
    store.is_stalled = True
    with pytest.raises(StoreUnavailable):
        await first.process(1)
    store.go_on()
    await until(lambda: second.process(1))
    assert runs == [1]
    assert [unresolved.reason for unresolved in asked] == ["the call timed out"]


@both
@pytest.mark.parametrize("seed", range(10))
async def test_whatever_a_store_applies_late_and_in_whatever_order_the_work_runs_once(waits: bool, seed: int) -> None:
    dice = random.Random(seed)
    store, runs = Stalling(), list[int]()
    programs = [Program(store, waits=waits, work=runs.append) for _ in range(3)]
    keys = range(8)
    for _ in range(3):
        store.is_stalled = True
        for key in keys:
            with pytest.raises(StoreUnavailable):
                await dice.choice(programs).process(key)
        store.now += dice.choice((0, 40_000))
        store.go_on(dice)
        store.is_stalled = dice.random() < 0.5
    store.go_on(dice)
    for key in keys:
        # Unknown as long as whoever sent a claim has not looked for it, and no longer.
        await until(lambda key=key: dice.choice(programs).process(key), seconds=20, while_=IN_THE_WAY)  # type: ignore[misc]
    assert sorted(runs) == list(keys)


@pytest.mark.server("redis")
@both
async def test_a_redis_that_stalls_leaves_no_key_unknown_whose_work_never_began(
    waits: bool, start_server: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.idempotency.stores.redis.DEADLINE_SECONDS", 0.3)
    monkeypatch.setattr("mainspring.stores.redis.client.DEADLINE_SECONDS", 0.3)
    server = start_server("redis")
    url = server.fresh()
    runs: list[int] = []
    stores = [RedisStore(url) for _ in range(2)]
    first, second = (Program(store, waits=waits, work=runs.append, lease_seconds=1.0) for store in stores)
    await first.process(-1)
    await second.process(-2)
    server.pause()
    try:
        tries = [first.process(key) for key in range(20)]
        failed = await asyncio.gather(*tries, return_exceptions=True)
    finally:
        server.resume()
    assert {type(error) for error in failed} == {StoreUnavailable}
    await asyncio.sleep(1.5)  # the leases of all that was applied late have passed
    for key in range(20):
        program = first if key % 2 else second
        await until(lambda key=key, program=program: program.process(key))  # type: ignore[misc]
    assert sorted(runs) == [-2, -1, *range(20)]
    for store in stores:
        await store.aclose()
