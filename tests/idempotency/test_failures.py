"""Work that raises: nothing is kept, those who waited for it share its exception, and who comes later runs anew."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mainspring.errors import InvalidInput
from mainspring.idempotency import AsyncIdempotentProcessor, IdempotentProcessor, InMemoryStore
from mainspring.idempotency.stores import IdempotencyStore

CALLERS = 20


class Failing:
    """Begins, waits until it may go on, and raises; counts how often, and how many did at once."""

    def __init__(self) -> None:
        self.runs = self.at_once = self.most = 0
        self.may_end = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, payload: object) -> None:
        with self._lock:
            self.runs += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        assert self.may_end.wait(10)
        with self._lock:
            self.at_once -= 1
        raise ValueError(f"no {payload}")


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end, "Expected it within 10 seconds"
        time.sleep(0.005)


def _callers(processor: IdempotentProcessor[object, None]) -> int:
    return sum(line.callers for line in processor._model.lines._lines.values())


def test_all_who_wait_for_a_run_that_raises_get_its_exception() -> None:
    work = Failing()
    processor = IdempotentProcessor(InMemoryStore(), work, scope="shared")

    def ask(_: int) -> BaseException:
        with pytest.raises(ValueError, match="no 1") as raised:
            processor.process(1)
        return raised.value

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [pool.submit(ask, number) for number in range(CALLERS)]
        _until(lambda: _callers(processor) == CALLERS)
        work.may_end.set()
        assert len({id(answer.result(10)) for answer in answers}) == 1
    assert (work.runs, processor.waiting_keys) == (1, 0)
    ask(0)
    assert work.runs == 2  # who comes later runs anew


async def test_all_tasks_that_wait_for_a_run_that_raises_get_its_exception() -> None:
    may_end = asyncio.Event()
    runs = 0

    async def work(_: object) -> None:
        nonlocal runs
        runs += 1
        await may_end.wait()
        raise ValueError("no")

    processor = AsyncIdempotentProcessor(InMemoryStore(), work, scope="shared")
    tasks = [asyncio.create_task(processor.process(1)) for _ in range(CALLERS)]
    await asyncio.sleep(0)
    may_end.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert len(set(map(id, errors))) == 1
    assert (runs, processor.waiting_keys) == (1, 0)
    with pytest.raises(ValueError, match="no"):
        await processor.process(1)
    assert runs == 2


def test_a_waiter_with_another_payload_does_not_get_an_exception_that_is_not_its_own() -> None:
    work = Failing()
    processor = IdempotentProcessor(InMemoryStore(), work, scope="other")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(processor.process, 1, "key")
        _until(lambda: work.runs == 1)
        second = pool.submit(processor.process, 2, "key")
        _until(lambda: _callers(processor) == 2)
        work.may_end.set()
        assert str(first.exception(10)) == "no 1"
        assert str(second.exception(10)) == "no 2"


def test_programs_that_wait_for_one_another_run_failing_work_once_each_and_one_at_a_time(
    store: IdempotencyStore,
) -> None:
    work = Failing()
    programs = [IdempotentProcessor(store, work, scope="programs") for _ in range(3)]

    def ask(number: int) -> None:
        with pytest.raises(ValueError, match="no 1"):
            programs[number % 3].process(1)

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [pool.submit(ask, number) for number in range(CALLERS)]
        _until(lambda: sum(map(_callers, programs)) == CALLERS)
        work.may_end.set()
        for answer in answers:
            answer.result(20)
    assert (work.runs, work.most) == (3, 1)


def test_a_shared_exception_is_let_go_of_when_all_have_it() -> None:
    class Refusal(Exception):
        pass

    def fails(_: object) -> None:
        raise Refusal

    processor = IdempotentProcessor(InMemoryStore(), fails, scope="let go")
    gc.disable()
    try:
        with pytest.raises(Refusal) as raised:
            processor.process(1)
        trace = weakref.ref(raised.value)
        del raised
        assert trace() is None
    finally:
        gc.enable()


def test_work_that_asks_for_its_own_key_is_told_so_at_once(store: IdempotencyStore) -> None:
    def work(payload: object) -> object:
        return processor.process(payload).result

    processor: IdempotentProcessor[object, object] = IdempotentProcessor(store, work, scope="circular")
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="from within that work"):
        processor.process(1)
    assert time.monotonic() - began < 5
    assert processor.waiting_keys == 0


async def test_a_task_that_the_work_waits_for_is_told_so_too() -> None:
    async def work(number: int) -> int:
        return number and (await asyncio.create_task(processor.process(number % 2))).result

    processor: AsyncIdempotentProcessor[int, int] = AsyncIdempotentProcessor(InMemoryStore(), work, scope="circular")
    with pytest.raises(InvalidInput, match="from within that work"):
        await processor.process(1)
    assert (await processor.process(2)).result == 0  # another key is no circle
    assert processor.waiting_keys == 0


async def test_what_work_leaves_running_may_ask_for_the_key_when_the_work_is_over() -> None:
    later: list[asyncio.Task[object]] = []
    is_over = asyncio.Event()

    async def again() -> object:
        await is_over.wait()
        return await processor.process(1)

    async def work(_: object) -> str:
        if not later:
            later.append(asyncio.create_task(again()))
            raise ValueError("not yet")
        return "done"

    processor = AsyncIdempotentProcessor(InMemoryStore(), work, scope="later")
    with pytest.raises(ValueError, match="not yet"):
        await processor.process(1)
    is_over.set()
    assert (await later[0]).result == "done"  # type: ignore[attr-defined]
