"""Mainspring inside a program without an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from mainspring import DueJob, DueTimer, Mainspring, SyncMainspring
from mainspring.errors import Conflict, InvalidInput, NotFound, Unavailable
from mainspring.model import Result, State
from mainspring.testing.target import Answer, TargetServer


def at(path: Path) -> str:
    return f"sqlite:///{path / 'app.db'}"


def test_a_plain_function_gets_its_timer_in_a_thread_and_may_ask_for_more(tmp_path: Path) -> None:
    ms = SyncMainspring(at(tmp_path))
    got: SimpleQueue[DueTimer] = SimpleQueue()

    @ms.handler("remind")
    def remind(timer: DueTimer) -> None:
        assert threading.current_thread() is not threading.main_thread()
        if timer.timer_id == "first":
            ms.timers.create("second", delay_seconds=0, handler="remind")
        got.put(timer)

    with ms:
        ms.timers.create("first", delay_seconds=0.05, handler="remind", payload={"to": "Ann"})
        assert [got.get(timeout=10).timer_id for _ in range(2)] == ["first", "second"]
    with ms.at_rest():
        [attempt] = ms.timers.iterate_history("first")
        assert attempt.outcome is Result.SUCCEEDED
        with pytest.raises(NotFound):
            ms.timers.get("first")


def test_what_is_asked_is_answered_by_every_service(tmp_path: Path) -> None:
    with SyncMainspring(at(tmp_path)).at_rest() as ms:
        ms.namespaces.create("app")
        for n in range(5):
            ms.timers.create(f"t{n}", namespace="app", delay_seconds=60 + n, handler="h", labels={"n": str(n)})
        assert [timer.timer_id for timer in ms.timers.iterate(namespace="app", page_size=2)] == [
            f"t{n}" for n in range(5)
        ]
        assert ms.timers.bulk_park(namespace="app", id_prefix="t", states=[State.SCHEDULED]).changed == 5
        assert ms.timers.update("t1", namespace="app", payload=[1]).payload == [1]
        assert ms.jobs.create("j", "@daily", url="https://example.com/").name == "j"
        assert [job.name for job in ms.jobs.iterate()] == ["j"]
        assert ms.fetches.stats().pending == 0
        baskets = ms.records("baskets", dict)
        first = baskets.put("ann", {"n": 1})
        with pytest.raises(Conflict):
            baskets.put("ann", {"n": 2}, expect=first.version + 1)
        assert [found.value for found in baskets.scan()] == [{"n": 1}]
        assert abs(ms.now().timestamp() - time.time()) < 60


async def test_a_fetch_returns_its_result(target: TargetServer) -> None:
    target.script("/pay", Answer(body=b'{"paid": true}'))

    def program() -> None:
        with SyncMainspring("memory://", allow_loopback=True) as ms:
            pay = f"{target.url}/pay"
            result = ms.fetch(pay, method="POST", json={"amount": 12}, req_id="payment-42", context=[7])
            assert (result.raise_for_error().json(), result.context) == ({"paid": True}, [7])
            assert ms.fetch(pay, method="POST", json={"amount": 12}, req_id="payment-42") == result

    await asyncio.to_thread(program)
    assert len(target.requests) == 1


def test_a_function_on_a_calendar_runs_when_it_is_triggered() -> None:
    ms = SyncMainspring("memory://")
    ran: SimpleQueue[object] = SimpleQueue()

    @ms.job("0 9 * * *", timezone="Europe/Berlin")
    def report(job: DueJob) -> None:
        ran.put(job.body)

    with ms:
        ms.jobs.trigger("report", body={"day": 1})
        assert ran.get(timeout=10) == {"day": 1}

        @ms.job("@daily")
        def late(job: DueJob) -> None:
            ran.put("late")

        ms.jobs.trigger("late")
        assert ran.get(timeout=10) == "late"


def test_a_mistake_in_a_registration_is_told_where_it_is_made() -> None:
    ms: Any = SyncMainspring("memory://")
    ms.handler("remind")(print)
    with pytest.raises(InvalidInput, match="already has a function"):
        ms.handler("remind")(print)
    ms.handler("remind", replace=True)(print)
    with pytest.raises(InvalidInput, match="name of the handler"):
        ms.handler(print)
    with pytest.raises(InvalidInput, match="Expected five fields"):
        ms.job("every now and then")(print)


def test_nothing_can_be_asked_while_it_is_not_running() -> None:
    ms = SyncMainspring("memory://")
    for _ in range(2):
        for ask in (
            lambda: ms.timers.create("t", delay_seconds=5, callback_url="https://example.com/"),
            ms.timers.iterate,
            lambda: ms.jobs.get("j"),
            lambda: ms.fetch("https://example.com/"),
            lambda: ms.namespaces.get("default"),
            lambda: ms.records("c", dict).get("k"),
            ms.now,
        ):
            with pytest.raises(Unavailable, match=r"not running: use `with SyncMainspring\(...\) as ms`"):
                ask()
        with ms:
            assert ms.is_running
            with pytest.raises(Conflict, match="already running"):
                ms.start()
        ms.stop()
        assert not ms.is_running


def test_what_keeps_it_from_starting_is_raised_and_it_can_be_started_later(tmp_path: Path) -> None:
    (tmp_path / "app.db").mkdir()
    before = threading.active_count()
    ms = SyncMainspring(at(tmp_path))
    with pytest.raises(Exception, match=r"app\.db"):
        ms.start()
    assert threading.active_count() == before
    (tmp_path / "app.db").rmdir()
    with ms:
        assert ms.namespaces.get("default").name == "default"


def test_a_coroutine_on_the_loop_of_the_engine_is_told_that_it_would_wait_for_itself() -> None:
    ms = SyncMainspring("memory://")
    told: SimpleQueue[str] = SimpleQueue()

    @ms.handler("waits")
    async def waits(timer: DueTimer) -> None:
        for ask in (ms.now, ms.stop):
            try:
                ask()
            except Unavailable as error:
                told.put(error.detail)

    with ms:
        ms.timers.create("t", delay_seconds=0, handler="waits")
        assert "make the handler a plain function" in told.get(timeout=10)
        assert "cannot stop the engine that runs it" in told.get(timeout=10)
        assert ms.is_running


def test_a_forked_child_uses_nothing_of_its_parent_and_may_start_its_own(tmp_path: Path) -> None:
    """In a program of its own: pytest has threads that a child would miss."""
    program = f"""
import os, sys
from mainspring import SyncMainspring
from mainspring.errors import ConfigError, Unavailable

ms = SyncMainspring({at(tmp_path)!r})
ms.handler("remind")(print)
ms.start()
ms.timers.create("of the parent", delay_seconds=60, handler="remind")
child = os.fork()
if child == 0:
    try:
        ms.timers.get("of the parent")
    except Unavailable as error:
        assert "before this process was forked" in error.detail, error
    ms.stop()
    assert not ms.is_running
    try:
        ms.start()
    except ConfigError as error:
        assert "start Mainspring after the fork, in each process" in error.detail, error
    own = SyncMainspring("memory://")
    own.start()
    assert own.namespaces.get("default").name == "default"
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7
assert [timer.timer_id for timer in ms.timers.iterate()] == ["of the parent"]
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_program_that_ends_lets_its_handlers_end_first(tmp_path: Path) -> None:
    program = f"""
import threading, time
from mainspring import DueTimer, SyncMainspring

ms = SyncMainspring({at(tmp_path)!r})
begun = threading.Event()

@ms.handler("slow")
def slow(timer: DueTimer) -> None:
    begun.set()
    time.sleep(0.3)
    print("ended", flush=True)

ms.start()
ms.timers.create("t", delay_seconds=0, handler="slow")
begun.wait(10)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
    with SyncMainspring(at(tmp_path)).at_rest() as ms:
        assert [attempt.outcome for attempt in ms.timers.iterate_history("t")] == [Result.SUCCEEDED]
        assert not [*ms.timers.iterate()]


@pytest.mark.slow
def test_a_stop_waits_for_a_handler_no_longer_than_it_may_drain() -> None:
    ms = SyncMainspring("memory://", drain_seconds=0.1)
    begun, go_on, told = threading.Event(), threading.Event(), SimpleQueue[str]()

    @ms.handler("stuck")
    def stuck(timer: DueTimer) -> None:
        begun.set()
        go_on.wait(30)
        try:
            ms.now()
        except Unavailable as error:
            told.put(error.detail)

    try:
        with ms:
            ms.timers.create("t", delay_seconds=0, handler="stuck")
            assert begun.wait(10)
            since = time.monotonic()
        assert time.monotonic() - since < 5
    finally:
        go_on.set()
    assert "not running" in told.get(timeout=10)


def test_whoever_waits_for_an_answer_when_the_engine_stops_waits_no_longer() -> None:
    ms = SyncMainspring("memory://", drain_seconds=0.1)
    ended: SimpleQueue[BaseException] = SimpleQueue()
    ms.start()

    def wait_for_ever() -> None:
        async def never(_: Mainspring) -> None:
            begun.set()
            await asyncio.Event().wait()

        try:
            ms._current().run(never)
        except CancelledError as error:
            ended.put(error)

    begun = threading.Event()
    threading.Thread(target=wait_for_ever, daemon=True).start()
    assert begun.wait(10)
    ms.stop()
    assert isinstance(ended.get(timeout=10), CancelledError)


def test_it_has_the_methods_of_the_library_that_a_blocking_program_can_use() -> None:
    """What it leaves out is for programs with a loop, and the guide says what to use instead."""
    of_the_library = {name for name in dir(Mainspring("memory://")) if not name.startswith("_")}
    own = {name for name in dir(SyncMainspring("memory://")) if not name.startswith("_")}
    assert of_the_library - own == {"idempotency_store", "lock", "origin"}
    assert own - of_the_library == {"is_running", "start", "stop"}


def test_processes_that_are_forked_before_the_start_share_a_file_and_the_functions(tmp_path: Path) -> None:
    program = f"""
import os, sys
from mainspring import SyncMainspring

ms = SyncMainspring({at(tmp_path)!r})
ms.handler("remind")(print)
children = [os.fork()]
if children[0]:
    children.append(os.fork())
if 0 in children:
    with ms:
        ms.timers.create(f"of child {{len(children)}}", delay_seconds=60, handler="remind")
    sys.exit(7)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [7, 7]
with ms.at_rest():
    assert {{timer.timer_id for timer in ms.timers.iterate()}} == {{"of child 1", "of child 2"}}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_failure_of_the_engine_is_told_to_those_who_ask_and_raised_by_the_stop() -> None:
    ms = SyncMainspring("memory://")
    ms.start()

    async def fail(running: Mainspring) -> None:
        tasks = running._instance._tasks
        assert tasks is not None

        async def broken() -> None:
            raise OSError("the engine is broken")

        tasks.create_task(broken())

    engine = ms._current()
    engine.run(fail)
    assert engine._life is not None
    wait((engine._life,), timeout=10)
    with pytest.raises(Unavailable, match=r"ended with an error: .*the engine is broken.* Stop it, and start it again"):
        ms.now()
    with pytest.raises(BaseExceptionGroup):
        ms.stop()
    with ms:
        assert ms.namespaces.get("default").name == "default"
