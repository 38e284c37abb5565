"""Mainspring inside a program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from mainspring import DueTimer, Mainspring
from mainspring.errors import InvalidInput, NotFound, Unavailable
from mainspring.idempotency import AsyncIdempotentProcessor
from mainspring.model import Result, RetryPolicy, State
from mainspring.origins import Origin
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from mainspring.timers.messages import AttemptView


async def test_a_handler_gets_its_timer_and_the_timer_is_then_done(tmp_path: Path) -> None:
    got: asyncio.Queue[DueTimer] = asyncio.Queue()
    async with Mainspring(f"sqlite:///{tmp_path / 'app.db'}") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None:
            got.put_nowait(timer)

        await ms.timers.create("app", "t1", in_seconds=0.05, handler="remind", payload={"to": "ann"})
        timer = await asyncio.wait_for(got.get(), 5)
        assert (timer.namespace, timer.timer_id, timer.payload, timer.attempt) == ("app", "t1", {"to": "ann"}, 1)
    async with Mainspring(f"sqlite:///{tmp_path / 'app.db'}") as ms:
        with pytest.raises(NotFound):
            await ms.timers.get("app", "t1")
        [attempt] = await ms.timers.history("app", "t1")
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
        await ms.timers.create("app", "t", in_seconds=0, handler="work", retry_policy=policy)
        await asyncio.wait_for(done.wait(), 5)
    assert attempts == [1, 2, 1]


async def test_a_handler_that_awaits_something_cancelled_has_failed() -> None:
    async with Mainspring("memory://") as ms:

        @ms.handler("work")
        async def work(_: DueTimer) -> None:
            other = asyncio.create_task(asyncio.sleep(10))
            other.cancel()
            await other

        await ms.timers.create("app", "t", in_seconds=0, handler="work", retry_policy=RetryPolicy(max_attempts=1))
        async with asyncio.timeout(5):
            while (view := await ms.timers.get("app", "t")).state is not State.PARKED:  # noqa: ASYNC110 - nobody tells
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

        await ms.timers.create("app", "t", in_seconds=0, handler="plain")
        [attempt] = await first_attempts(ms, "t")
    assert attempt.outcome is Result.SUCCEEDED
    assert len(ran_in) == 1
    assert ran_in != [threading.current_thread().name]


async def test_what_a_plain_function_returns_is_awaited_if_it_can_be() -> None:
    done: list[str] = []

    async def work(what: str) -> None:
        done.append(what)

    async with Mainspring("memory://") as ms:
        ms.handler("wrapped")(lambda timer: work(timer.timer_id))
        ms.job("@yearly", name="wrapped")(lambda job: work(job.name))
        await ms.timers.create("app", "t", in_seconds=0, handler="wrapped")
        run = await ms.jobs.trigger("wrapped")
        await first_attempts(ms, "t")
        async with asyncio.timeout(10):
            while (await anext(ms.jobs.runs("wrapped"))).state != "succeeded":  # noqa: ASYNC110
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
        while not (attempts := await ms.timers.history("app", timer_id)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return attempts


async def test_targets_are_checked() -> None:
    async with Mainspring("memory://") as ms:
        with pytest.raises(InvalidInput, match="registered handler"):
            await ms.timers.create("app", "t", in_seconds=1, handler="nobody")
        with pytest.raises(InvalidInput, match="one of handler and url"):
            await ms.timers.create("app", "t", in_seconds=1)
        with pytest.raises(InvalidInput):
            await ms.timers.create("app", "t", in_seconds=1, url="http://10.0.0.1/")


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
        await ms.timers.create("app", "t1", in_seconds=0, handler="remind")
        await ms.timers.create("app", "t2", in_seconds=0, handler="remind")
        await ms.timers.delete("app", "t2")
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
        await tool.timers.create("app", "t1", in_seconds=0, handler="remind")
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
        lambda: ms.create_namespace("app"),
        lambda: ms.timers.create("app", "t1", in_seconds=5, url="http://example.com/"),
        lambda: ms.timers.get("app", "t1"),
        lambda: listed(ms.timers.list("app")),
        lambda: ms.jobs.create("tea", "@daily", url="http://example.com/"),
        lambda: listed(ms.jobs.list()),
        lambda: ms.fetch("http://example.com/"),
        lambda: ms.fetches.get("f1"),
        lambda: listed(ms.fetches.list()),
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
        with pytest.raises(InvalidInput, match=r"^Expected one of at and in_seconds, got neither$"):
            await ms.timers.create("app", "t1", url="http://example.com/")
        with pytest.raises(InvalidInput, match=r"^Expected only one of at and in_seconds, got both$"):
            await ms.timers.create("app", "t1", at=ms.now(), in_seconds=1, url="http://example.com/")
        with pytest.raises(InvalidInput, match=r"^at: Expected a datetime with a time zone, got 2030-01-01T00:00:00$"):
            await ms.timers.create("app", "t1", at=datetime(2030, 1, 1), url="http://example.com/")  # noqa: DTZ001
        await ms.timers.create("app", "t1", in_seconds=100, url="http://example.com/")
        with pytest.raises(InvalidInput, match=r"^Expected only one of at and in_seconds, got both$"):
            await ms.timers.reschedule("app", "t1", at=ms.now(), in_seconds=1)
        with pytest.raises(InvalidInput, match=r"^at: Expected a datetime with a time zone, got 2030-01-01T00:00:00$"):
            await ms.timers.reschedule("app", "t1", at=datetime(2030, 1, 1))  # noqa: DTZ001
