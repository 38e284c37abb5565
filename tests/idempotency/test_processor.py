"""What callers see, on every store, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mainspring.errors import ConfigError, InvalidInput, StoreUnavailable
from mainspring.idempotency import (
    AsyncIdempotentProcessor,
    IdempotencyRecord,
    IdempotentProcessor,
    InMemoryStore,
    InProgress,
    KeyReuse,
    NotDone,
    NotRecorded,
    Resolved,
    SQLiteStore,
    UnknownOutcome,
    Unresolved,
    idempotent,
)
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.sync_processor import heart_of


class _Client:
    """Has a method that stores have, too."""

    def close(self) -> None: ...


class Work:
    """Counts its runs and returns, or raises, what it was told to."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes = list(outcomes) or [{"ok": True}]
        self.runs = 0
        self._lock = threading.Lock()

    def __call__(self, _: object) -> Any:
        with self._lock:
            self.runs += 1
            outcome = self.outcomes[min(self.runs, len(self.outcomes)) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def later(self, payload: object) -> Any:
        await asyncio.sleep(0.01)
        return self(payload)


@pytest.mark.parametrize("result", [None, False, 0, "", b"", [], {}, 0.5, "text", b"\x00\n\xff", {"a": [1, None]}])
def test_every_result_is_a_result_and_comes_back_as_it_was(store: IdempotencyStore, result: object) -> None:
    work = Work(result)
    processor = IdempotentProcessor(store, work, scope="results")
    first, second = processor.process({"n": 1}), processor.process({"n": 1})
    assert (first.result, first.was_replay) == (result, False)
    assert (second.result, second.was_replay, second.key) == (result, True, first.key)
    assert type(second.result) is type(result)
    assert work.runs == 1
    assert (processor.replays.executed, processor.replays.replayed) == (1, 1)


async def test_the_waiting_form_does_the_same(waiting_store: IdempotencyStore) -> None:
    work = Work(None)
    processor = AsyncIdempotentProcessor(waiting_store, work.later, scope="waiting")
    records = await asyncio.gather(*(processor.process({"n": 1}) for _ in range(20)))
    assert work.runs == 1
    assert sorted(record.was_replay for record in records) == [False] + [True] * 19
    assert (await processor.process({"n": 1.0})).was_replay
    assert processor.waiting_keys == 0


async def test_both_forms_share_their_keys(url: str, waiting_store: IdempotencyStore) -> None:
    from tests.idempotency.places import store_at  # noqa: PLC0415

    other = waiting_store if url.startswith("memory") else store_at(url)  # a store in memory is one object
    blocking = IdempotentProcessor(other, Work("first"), scope="both")
    waiting = AsyncIdempotentProcessor(waiting_store, Work("second").later, scope="both")
    await asyncio.to_thread(blocking.process, 1)
    record = await waiting.process(1)
    assert (record.result, record.was_replay) == ("first", True)
    await asyncio.to_thread(other.close)


def test_scopes_do_not_share_keys(store: IdempotencyStore) -> None:
    one, other = Work("one"), Work("other")
    assert IdempotentProcessor(store, one, scope="a").process(1, key="k").result == "one"
    assert IdempotentProcessor(store, other, scope="b").process(1, key="k").result == "other"


def test_a_key_is_bound_to_its_payload(store: IdempotencyStore) -> None:
    work = Work()
    processor = IdempotentProcessor(store, work, scope="bound")
    assert not processor.process({"amount": 1}, key="k").was_replay
    assert processor.process({"amount": 1, "received_at": "later"}, key="k").was_replay
    with pytest.raises(KeyReuse) as refused:
        processor.process({"amount": 2}, key="k")
    assert refused.value.key == "k"
    assert work.runs == 1


def test_an_exception_is_not_kept_and_the_next_caller_runs(store: IdempotencyStore) -> None:
    work = Work(ValueError("no"), TimeoutError("slow"), "done")
    processor = IdempotentProcessor(store, work, scope="exceptions")
    with pytest.raises(ValueError, match="no"):
        processor.process(1)
    with pytest.raises(TimeoutError, match="slow"):
        processor.process(1)
    assert processor.process(1) == IdempotencyRecord("done", False, processor.process(1).key)


def test_ten_threads_and_five_keys_are_five_runs_side_by_side(store: IdempotencyStore) -> None:
    together = threading.Barrier(5, timeout=10)
    runs: list[int] = []

    def work(key: int) -> int:
        runs.append(key)
        together.wait()  # passes only if all five are at work at once
        return key

    processor = IdempotentProcessor(store, work, scope="parallel")
    with ThreadPoolExecutor(10) as pool:
        records = list(pool.map(processor.process, [number % 5 for number in range(10)]))
    assert sorted(runs) == [0, 1, 2, 3, 4]
    assert [record.result for record in records] == [number % 5 for number in range(10)]
    assert sum(record.was_replay for record in records) == 5


def test_callers_are_refused_at_once_if_they_are_not_to_wait(store: IdempotencyStore) -> None:
    inside, leave = threading.Event(), threading.Event()

    def work(_: object) -> str:
        inside.set()
        assert leave.wait(10)
        return "done"

    holder = IdempotentProcessor(store, work, scope="refuse")
    here = IdempotentProcessor(store, work, scope="refuse", wait_seconds=0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(holder.process, 1)
        assert inside.wait(10)
        with pytest.raises(InProgress) as refused:
            here.process(1)
        assert refused.value.retry_after >= 1
        leave.set()
        assert running.result(10).result == "done"
    assert here.process(1).was_replay


def test_results_that_are_not_kept_are_made_again(store: IdempotencyStore) -> None:
    work = Work(429, 200)
    processor = IdempotentProcessor(store, work, scope="keep", keep=lambda status: bool(status == 200))
    assert [processor.process(1).result for _ in range(3)] == [429, 200, 200]
    assert work.runs == 2


@pytest.mark.parametrize("result", [(1, 2), {1: 2}, {1, 2}, float("nan"), object(), "\ud800"])
def test_a_result_that_would_not_come_back_is_refused_and_the_work_is_not_run_again(result: object) -> None:
    work = Work(result)
    processor = IdempotentProcessor(InMemoryStore(), work, scope="unkeepable")
    with pytest.raises(NotRecorded) as refused:
        processor.process(1)
    assert refused.value.result is result
    with pytest.raises(UnknownOutcome, match="could not be kept"):
        processor.process(1)
    assert work.runs == 1
    processor.settle(refused.value.key, "by hand")
    assert processor.process(1).result == "by hand"


def test_a_result_that_a_store_cannot_take_is_unknown_at_once_and_the_work_is_not_run_again(
    store: IdempotencyStore, url: str
) -> None:
    large = "x" * 500_000
    work = Work(large)
    processor = IdempotentProcessor(store, work, scope="large")
    if not url.startswith("dynamodb"):  # the one with a limit, 400 KB
        assert [processor.process(1).result == large for _ in range(2)] == [True, True]
        return
    with pytest.raises(NotRecorded) as refused:
        processor.process(1)
    assert refused.value.result == large
    with pytest.raises(UnknownOutcome, match="was not recorded"):
        processor.process(1)
    assert work.runs == 1


def test_a_result_type_brings_other_results_back() -> None:
    processor = IdempotentProcessor(InMemoryStore(), Work((1, 2)), scope="typed", result_type=tuple[int, int])
    assert [processor.process(1).result for _ in range(2)] == [(1, 2), (1, 2)]


def test_work_may_say_that_it_does_not_know(store: IdempotencyStore) -> None:
    work = Work(UnknownOutcome("the bank did not answer"), "done")
    processor = IdempotentProcessor(store, work, scope="unsure")
    for _ in range(2):
        with pytest.raises(UnknownOutcome, match="the bank did not answer") as raised:
            processor.process(1, key="k")
        assert raised.value.key == "k"
    assert work.runs == 1
    assert processor.forget("k")
    assert processor.process(1, key="k").result == "done"


def _asks_the_bank(answers: list[Resolved[str] | NotDone | None]) -> Callable[[object, Unresolved], Any]:
    return lambda payload, unresolved: answers.pop(0)


def test_resolve_finds_out(store: IdempotencyStore) -> None:
    unsure = UnknownOutcome("no answer")
    done = IdempotentProcessor(store, Work(unsure), scope="r1", resolve=_asks_the_bank([None, Resolved("paid")]))
    with pytest.raises(UnknownOutcome):
        done.process(1)
    with pytest.raises(UnknownOutcome, match="no answer"):
        done.process(1)
    record = done.process(1)
    assert (record.result, record.was_replay) == ("paid", True)
    assert done.process(1).result == "paid"

    work = Work(unsure, "second")
    again = IdempotentProcessor(store, work, scope="r2", resolve=_asks_the_bank([NotDone()]))
    with pytest.raises(UnknownOutcome):
        again.process(1)
    assert (again.process(1).result, work.runs) == ("second", 2)


def test_a_resolve_that_fails_leaves_the_outcome_unknown() -> None:
    def fails(payload: object, unresolved: Unresolved) -> None:
        raise ValueError(unresolved.reason)

    work = Work(UnknownOutcome("no answer"))
    processor = IdempotentProcessor(InMemoryStore(), work, scope="failing", resolve=fails)
    with pytest.raises(UnknownOutcome):
        processor.process(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            processor.process(1)
    assert work.runs == 1


def test_work_that_is_safe_to_repeat_is_repeated() -> None:
    work = Work(UnknownOutcome("no answer"), "done")
    processor = IdempotentProcessor(InMemoryStore(), work, scope="safe", safe_to_repeat=True)
    with pytest.raises(UnknownOutcome):
        processor.process(1)
    assert processor.process(1).result == "done"


async def test_cancelled_work_is_unknown() -> None:
    async def forever(_: object) -> None:
        await asyncio.sleep(60)

    processor = AsyncIdempotentProcessor(InMemoryStore(), forever, scope="cancelled")
    task = asyncio.create_task(processor.process(1))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(UnknownOutcome, match="interrupted by CancelledError"):
        await processor.process(1)
    assert processor.waiting_keys == 0


def test_settle_and_forget_refuse_what_they_cannot_mean(store: IdempotencyStore) -> None:
    processor = IdempotentProcessor(store, Work("done"), scope="by hand")
    key = processor.process(1).key
    with pytest.raises(InvalidInput, match="is done: only one"):
        processor.settle(key, "other")
    with pytest.raises(InvalidInput, match="unused"):
        processor.settle("never", "other")
    assert not processor.forget("never")
    assert processor.forget(key)
    assert not processor.forget(key)


def test_outcomes_expire(store: IdempotencyStore) -> None:
    work = Work("a", "b")
    processor = IdempotentProcessor(store, work, scope="expiry", ttl_seconds=1)
    assert processor.process(1).result == "a"
    assert processor.process(1).result == "a"
    time.sleep(1.1)
    assert processor.process(1).result == "b"


def test_work_may_take_longer_than_its_lease(store: IdempotencyStore) -> None:
    work = Work("done")

    def slow(payload: object) -> object:
        time.sleep(1.2)
        return work(payload)

    one = IdempotentProcessor(store, slow, scope="long", lease_seconds=0.8)
    other = IdempotentProcessor(store, slow, scope="long", lease_seconds=0.8)
    with ThreadPoolExecutor(2) as pool:
        records = list(pool.map(lambda processor: processor.process(1), [one, other]))
    assert [record.result for record in records] == ["done", "done"]
    assert work.runs == 1


def test_a_store_that_hangs_costs_no_claim_on_another() -> None:
    hangs, may_go = threading.Event(), threading.Event()

    class Hanging(InMemoryStore):
        async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
            hangs.set()
            assert may_go.wait(10)
            return await super().replace(address, value, expect=expect, now=now, expires_at=expires_at)

    work = Work("done")

    def slow(payload: object) -> object:
        time.sleep(1.2)
        return work(payload)

    hanging = IdempotentProcessor(Hanging(), lambda _: hangs.wait(10), scope="hanging", lease_seconds=0.3)
    store = InMemoryStore()
    others = [IdempotentProcessor(store, slow, scope="other", lease_seconds=0.8) for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        pool.submit(hanging.process, 1)
        assert hangs.wait(10)
        records = list(pool.map(lambda processor: processor.process(1), others))
        may_go.set()
    assert [record.result for record in records] == ["done", "done"]
    assert work.runs == 1


async def test_waiting_work_may_take_longer_than_its_lease(waiting_store: IdempotencyStore) -> None:
    work = Work("done")

    async def slow(payload: object) -> object:
        await asyncio.sleep(1.2)
        return work(payload)

    processors = [AsyncIdempotentProcessor(waiting_store, slow, scope="long", lease_seconds=0.8) for _ in range(2)]
    records = await asyncio.gather(*(processor.process(1) for processor in processors))
    assert [record.result for record in records] == ["done", "done"]
    assert work.runs == 1


@pytest.mark.slow
def test_nothing_is_left_behind_after_a_hundred_thousand_keys() -> None:
    store = InMemoryStore()
    processor = IdempotentProcessor(store, lambda number: number, scope="many", ttl_seconds=1)
    for number in range(100_000):
        processor.process(number)
    assert processor.waiting_keys == 0
    assert len(heart_of(store)) == 0


def test_memory_lets_go_of_what_has_expired() -> None:
    store = InMemoryStore()
    processor = IdempotentProcessor(store, lambda number: number, scope="sweep", ttl_seconds=1)
    for number in range(500):
        processor.process(number)
    time.sleep(1.1)
    for number in range(500):
        processor.process(-1 - number)
    assert len(store) <= 501


def test_a_scope_is_needed_where_a_name_would_not_do() -> None:
    with pytest.raises(ConfigError, match="scope="):
        IdempotentProcessor(InMemoryStore(), lambda payload: payload)
    processor = IdempotentProcessor(InMemoryStore(), _named)
    assert processor.scope == f"{__name__}._named"


def test_coroutine_functions_need_the_waiting_form() -> None:
    with pytest.raises(ConfigError, match="AsyncIdempotentProcessor"):
        IdempotentProcessor(InMemoryStore(), Work().later, scope="coroutine")


def test_the_parameters_have_the_names_that_are_published() -> None:
    processor = IdempotentProcessor(store=InMemoryStore(), fn=_named, exclude_fields=["seen_at"])
    assert not processor.process({"id": 1, "seen_at": 1}).was_replay
    assert processor.process({"id": 1, "seen_at": 2}).was_replay


def test_the_key_of_a_record_may_be_given_back_with_its_payload() -> None:
    processor = IdempotentProcessor(InMemoryStore(), _named)
    key = processor.process({"id": 1}).key
    assert processor.process({"id": 1}, key=key).was_replay
    with pytest.raises(InvalidInput, match="the one of this payload"):
        processor.process({"id": 2}, key=key)


@pytest.mark.parametrize("store", ["sqlite:///app.db", InMemoryStore, None, {}, _Client()])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(ConfigError, match=r"Expected a store, such as InMemoryStore\(\)"):
        IdempotentProcessor(store, _named)
    with pytest.raises(ConfigError, match=r"Expected a store, such as InMemoryStore\(\)"):
        AsyncIdempotentProcessor(store, Work().later, scope="store")
    with pytest.raises(ConfigError, match="Expected a store"):
        idempotent(store)(_named)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="Expected a function as the work, got 'charge'"):
        IdempotentProcessor(InMemoryStore(), "charge", scope="function")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "sqlite:///app.db", 17, None])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ConfigError, match="Expected the path of a file"):
        SQLiteStore(path)


def test_a_file_is_made_with_its_directory(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "not" / "yet" / "app.db")
    assert IdempotentProcessor(store, _named).process(1).result == 1
    store.close()
    (tmp_path / "file").touch()
    nowhere = SQLiteStore(tmp_path / "file" / "app.db")
    with pytest.raises(StoreUnavailable, match=r"app\.db"):
        IdempotentProcessor(nowhere, _named).process(1)
    nowhere.close()


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"ttl_seconds": 0}, {"lease_seconds": 0}, {"wait_seconds": -1}, {"exclude_fields": ["a..b"]}):
        with pytest.raises(ConfigError):
            IdempotentProcessor(InMemoryStore(), _named, **wrong)


def _named(payload: object) -> object:
    return payload
