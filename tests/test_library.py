"""Mainspring inside a program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

import pytest

from mainspring import DueTimer, Mainspring
from mainspring.errors import Conflict, InvalidInput, NotFound, Unavailable
from mainspring.idempotency import AsyncIdempotentProcessor
from mainspring.model import Result, RetryPolicy, State
from mainspring.origins import Origin
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from mainspring.timers.messages import AttemptView, CreateTimer


async def test_a_handler_gets_its_timer_and_the_timer_is_then_done(tmp_path: Path) -> None:
    got: asyncio.Queue[DueTimer] = asyncio.Queue()
    async with Mainspring(f"sqlite:///{tmp_path / 'app.db'}") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None:
            got.put_nowait(timer)

        await ms.timers.create("t1", namespace="app", delay_seconds=0.05, handler="remind", payload={"to": "ann"})
        timer = await asyncio.wait_for(got.get(), 5)
        assert (timer.namespace, timer.timer_id, timer.payload, timer.attempt) == ("app", "t1", {"to": "ann"}, 1)
    async with Mainspring(f"sqlite:///{tmp_path / 'app.db'}") as ms:
        with pytest.raises(NotFound):
            await ms.timers.get("t1", namespace="app")
        [attempt] = (await ms.timers.history("t1", namespace="app")).attempts
        assert attempt.outcome is Result.SUCCEEDED


async def test_idempotent_work_keeps_its_claims_beside_the_timers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    runs: list[str] = []

    async def charge(order: str) -> str:
        runs.append(order)
        return f"charged {order}"

    for _ in range(2):
        async with Mainspring(url) as ms:
            processor = AsyncIdempotentProcessor(ms.idempotency_store, charge, scope="charge")
            records = await asyncio.gather(*(processor.process("o1") for _ in range(5)))
            assert {record.result for record in records} == {"charged o1"}
            assert abs((ms.now() - datetime.now(UTC)).total_seconds()) < 60
    assert runs == ["o1"]


async def test_a_handler_that_raises_is_retried_and_its_answer_may_reschedule() -> None:
    attempts: list[int] = []
    done = asyncio.Event()
    async with Mainspring("memory://") as ms:

        @ms.handler("work")
        async def work(timer: DueTimer) -> dict[str, object] | None:
            attempts.append(timer.attempt)
            if len(attempts) == 1:
                raise ValueError("not yet")
            if len(attempts) == 2:
                return {"ok": True, "nextExecuteAt": timer.execute_at, "payload": 2}
            assert timer.payload == 2
            done.set()
            return None

        policy = RetryPolicy(initial_interval_seconds=0.01, jitter=0)
        await ms.timers.create("t", namespace="app", delay_seconds=0, handler="work", retry_policy=policy)
        await asyncio.wait_for(done.wait(), 5)
    assert attempts == [1, 2, 1]


async def test_a_handler_that_awaits_something_cancelled_has_failed() -> None:
    async with Mainspring("memory://") as ms:

        @ms.handler("work")
        async def work(_: DueTimer) -> None:
            other = asyncio.create_task(asyncio.sleep(10))
            other.cancel()
            await other

        await ms.timers.create(
            "t", namespace="app", delay_seconds=0, handler="work", retry_policy=RetryPolicy(max_attempts=1)
        )
        async with asyncio.timeout(5):
            while (view := await ms.timers.get("t", namespace="app")).state is not State.PARKED:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert view.last_outcome is not None
        assert view.last_outcome.outcome is Result.FAILED


async def test_a_plain_function_as_a_handler_runs_once_in_a_thread() -> None:
    ran_in: list[str] = []
    async with Mainspring("memory://") as ms:

        @ms.handler("plain")
        def plain(timer: DueTimer) -> dict[str, bool]:
            ran_in.append(threading.current_thread().name)
            return {"ok": True}

        await ms.timers.create("t", namespace="app", delay_seconds=0, handler="plain")
        [attempt] = await first_attempts(ms, "t")
    assert attempt.outcome is Result.SUCCEEDED
    assert len(ran_in) == 1
    assert ran_in != [threading.current_thread().name]


def test_a_generator_is_refused_as_a_handler_or_a_job_because_nobody_would_run_it() -> None:
    ms = Mainspring("memory://")

    def plain(_: object) -> Iterator[int]:
        yield 1

    async def waiting(_: object) -> AsyncIterator[int]:
        yield 1

    class Work:
        def __call__(self, _: object) -> Iterator[int]:
            yield 1

    functions: list[Callable[[object], object]] = [plain, waiting, partial(plain), Work()]
    for function in functions:
        with pytest.raises(InvalidInput, match="got a generator"):
            ms.handler("h")(function)
        with pytest.raises(InvalidInput, match="got a generator"):
            ms.job("@daily", name="j")(function)


async def test_a_function_that_returns_a_generator_has_failed() -> None:
    async with Mainspring("memory://") as ms:
        ms.handler("h")(lambda _: (number for number in range(3)))
        await ms.timers.create("t", delay_seconds=0, handler="h", retry_policy=RetryPolicy(max_attempts=1))
        async with asyncio.timeout(10):
            while not (found := (await ms.timers.history("t")).attempts):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found[0].outcome is Result.FAILED
        assert "generator" in found[0].detail


async def test_what_a_plain_function_returns_is_awaited_if_it_can_be() -> None:
    done: list[str] = []

    async def work(what: str) -> None:
        done.append(what)

    async with Mainspring("memory://") as ms:
        ms.handler("wrapped")(lambda timer: work(timer.timer_id))
        ms.job("@yearly", name="wrapped")(lambda job: work(job.name))
        await ms.timers.create("t", namespace="app", delay_seconds=0, handler="wrapped")
        run = await ms.jobs.trigger("wrapped")
        await first_attempts(ms, "t")
        async with asyncio.timeout(10):
            while (await anext(ms.jobs.iterate_runs("wrapped"))).state != "succeeded":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert sorted(done) == ["t", "wrapped"], run


async def test_a_handler_that_could_not_be_called_is_refused_where_it_stands() -> None:
    ms = Mainspring("memory://")

    async def remind(timer: DueTimer) -> None: ...

    ms.handler("remind")(remind)
    with pytest.raises(InvalidInput, match="Handler 'remind' already has a function"):
        ms.handler("remind")(remind)
    ms.handler("remind", replace=True)(remind)
    with pytest.raises(InvalidInput, match=r'name of the handler, as in @ms.handler\("remind"\), got a function'):
        ms.handler(remind)  # type: ignore[arg-type]
    for name in ("", 5, None):
        with pytest.raises(InvalidInput, match="Expected the name of the handler"):
            ms.handler(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="Expected a function, got 5"):
        ms.handler("five")(5)  # type: ignore[type-var]
    with pytest.raises(InvalidInput, match=r'Expected a schedule, as in @ms.job\("0 9 \* \* \*"\), got a function'):
        ms.job(remind)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="Expected a function, got 5"):
        ms.job("@daily", name="five")(5)  # type: ignore[type-var]


async def first_attempts(ms: Mainspring, timer_id: str) -> tuple[AttemptView, ...]:
    async with asyncio.timeout(10):
        while not (attempts := (await ms.timers.history(timer_id, namespace="app")).attempts):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return attempts


async def test_targets_are_checked() -> None:
    async with Mainspring("memory://") as ms:
        with pytest.raises(InvalidInput, match="registered handler"):
            await ms.timers.create("t", namespace="app", delay_seconds=1, handler="nobody")
        with pytest.raises(InvalidInput, match="one of handler and callback_url"):
            await ms.timers.create("t", namespace="app", delay_seconds=1)
        with pytest.raises(InvalidInput):
            await ms.timers.create("t", namespace="app", delay_seconds=1, callback_url="http://10.0.0.1/")


async def test_what_the_program_raises_in_the_block_comes_out_as_itself() -> None:
    with pytest.raises(ValueError, match="its own"):
        async with Mainspring("memory://"):
            raise ValueError("its own")
    with pytest.raises(ExceptionGroup, match="of its own"):
        async with Mainspring("memory://"):
            raise ExceptionGroup("of its own", [ValueError()])


async def test_a_failure_of_the_engine_surfaces_also_beside_one_of_the_program() -> None:
    async def fail() -> None:
        raise RuntimeError("the engine")

    async def run(own: Exception | None) -> None:
        async with Mainspring("memory://") as ms:
            assert ms._instance._tasks is not None
            ms._instance._tasks.create_task(fail())
            if own is not None:
                raise own
            await asyncio.sleep(10)

    for own in (None, ValueError("its own")):
        with pytest.raises(BaseExceptionGroup) as raised:
            await run(own)
        assert "the engine" in str([*raised.value.exceptions])


async def test_at_rest_documents_and_timers_can_be_changed_and_nothing_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    ran: list[str] = []

    def program() -> Mainspring:
        ms = Mainspring(url)

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None:
            ran.append(timer.timer_id)

        return ms

    ms = program()
    async with ms.at_rest():
        await ms.timers.create("t1", namespace="app", delay_seconds=0, handler="remind")
        await ms.timers.create("t2", namespace="app", delay_seconds=0, handler="remind")
        await ms.timers.delete("t2", namespace="app")
        await ms.records("notes", str).put("a", "b")
        await asyncio.sleep(0.3)
        assert ran == []
    async with program() as ms:
        found = await ms.records("notes", str).get("a")
        assert found is not None
        async with asyncio.timeout(5):
            while not ran:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert (found.value, ran) == ("b", ["t1"])


async def test_at_rest_a_timer_may_name_a_handler_of_the_programs_that_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    woken = asyncio.Event()
    ms, tool = Mainspring(url), Mainspring(url)

    @ms.handler("remind")
    async def remind(_: DueTimer) -> None:
        woken.set()

    async with ms, tool.at_rest():
        await tool.timers.create("t1", namespace="app", delay_seconds=0, handler="remind")
        async with asyncio.timeout(10):
            await woken.wait()


def test_the_same_chance_and_the_same_clock_give_the_same_ids() -> None:
    async def run(loop: SimulatedLoop) -> int:
        async with Mainspring("memory://", clock=SimulatedClock(loop), randomness=Random(7)) as ms:
            return (await ms.records("notes", str).put("a", "b")).version

    assert run_simulated(run) == run_simulated(run)


class Kettle(Origin):
    pass


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/app.db"])
@pytest.mark.parametrize("when", ["before its block", "after its block"])
async def test_nothing_can_be_asked_of_a_mainspring_that_is_not_running(store: str, when: str, tmp_path: Path) -> None:
    ms = Mainspring(store.format(tmp_path))
    if when == "after its block":
        async with ms:
            pass

    async def locked() -> None:
        async with ms.lock("a").hold():
            pass

    async def listed(found: AsyncIterator[object]) -> None:
        async for _ in found:
            pass

    async def charge(order: str) -> str:
        return order

    processor = AsyncIdempotentProcessor(ms.idempotency_store, charge, scope="charge")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: ms.namespaces.create("app"),
        lambda: ms.namespaces.delete("app"),
        lambda: ms.namespaces.reshard("app"),
        lambda: ms.timers.create("t1", namespace="app", delay_seconds=5, callback_url="http://example.com/"),
        lambda: ms.timers.create("t1", delay_seconds=5, callback_url="http://example.com/", connection=object()),
        lambda: ms.timers.create_batch([CreateTimer(timer_id="t1", callback_url="http://example.com/")]),
        lambda: ms.timers.get("t1", namespace="app"),
        lambda: listed(ms.timers.iterate(namespace="app")),
        lambda: ms.jobs.create("tea", "@daily", url="http://example.com/"),
        lambda: listed(ms.jobs.iterate()),
        lambda: ms.fetch("http://example.com/"),
        lambda: ms.fetches.get("f1"),
        lambda: listed(ms.fetches.iterate()),
        lambda: ms.records("baskets", dict).get("a"),
        lambda: processor.process("o1"),
        lambda: ms.origin(Kettle, "a").snapshot(),
        locked,
    ]
    for call in calls:
        with pytest.raises(Unavailable, match=r"Mainspring is not running: use `async with"):
            await call()


async def test_a_time_that_is_missing_or_without_a_zone_is_named_like_the_arguments() -> None:
    async with Mainspring("memory://") as ms:
        with pytest.raises(InvalidInput, match=r"^Expected exactly one of execute_at and delay_seconds, got neither$"):
            await ms.timers.create("t1", namespace="app", callback_url="http://example.com/")
        with pytest.raises(InvalidInput, match=r"^Expected exactly one of execute_at and delay_seconds, got both$"):
            await ms.timers.create(
                "t1", namespace="app", execute_at=ms.now(), delay_seconds=1, callback_url="http://example.com/"
            )
        with pytest.raises(
            InvalidInput, match=r"^execute_at: Expected a datetime with a time zone, got 2030-01-01T00:00:00$"
        ):
            await ms.timers.create("t1", execute_at=datetime(2030, 1, 1), callback_url="http://example.com/")  # noqa: DTZ001
        await ms.timers.create("t1", namespace="app", delay_seconds=100, callback_url="http://example.com/")
        with pytest.raises(InvalidInput, match=r"^Expected only one of execute_at and delay_seconds, got both$"):
            await ms.timers.update("t1", namespace="app", execute_at=ms.now(), delay_seconds=1)
        with pytest.raises(
            InvalidInput, match=r"^execute_at: Expected a datetime with a time zone, got 2030-01-01T00:00:00$"
        ):
            await ms.timers.update("t1", namespace="app", execute_at=datetime(2030, 1, 1))  # noqa: DTZ001


def test_a_namespace_gets_more_shards() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with Mainspring("memory://", clock=SimulatedClock(loop), randomness=Random(1)) as ms:
            ms.handler("h")(lambda timer: None)
            await ms.timers.create("t1", namespace="app", delay_seconds=3600, handler="h")
            with pytest.raises(InvalidInput, match="more shards than the 16"):
                await ms.namespaces.reshard("app", shard_count=8, dry_run=True)
            assert (await ms.namespaces.reshard("app", shard_count=64, dry_run=True)).shard_count == 16
            view = await ms.namespaces.reshard("app", shard_count=64)
            assert (view.active, view.shard_count, view.earlier[0].timers) == (True, 64, 1)

    run_simulated(main)


def test_a_namespace_is_deleted_with_its_timers_if_that_is_forced() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with Mainspring("memory://", clock=SimulatedClock(loop), randomness=Random(1)) as ms:
            ms.handler("h")(lambda timer: None)
            await ms.timers.create("t1", namespace="app", delay_seconds=3600, handler="h")
            found = await ms.namespaces.delete("app", dry_run=True)
            assert (found.timers, found.deleted) == (1, False)
            with pytest.raises(Conflict):
                await ms.namespaces.delete("app")
            assert (await ms.namespaces.delete("app", cancel=True)).cancelled
            assert (await ms.namespaces.delete("app", force=True)).deleted
            with pytest.raises(NotFound):
                await ms.timers.get("t1", namespace="app")

    run_simulated(main)
