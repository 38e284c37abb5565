"""Names whose servers are silent hold up nobody else."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time

import pytest

from mainspring.delivery import lookup
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.lookup import FOR_NEW_NAMES, FOR_SLOW_NAMES, THREADS, Lookups
from mainspring.delivery.sender import Sender
from mainspring.testing.target import TargetServer
from tests.delivery.resolver import Resolver

LATE_SECONDS = 0.5


async def ask_dead(lookups: Lookups, count: int) -> list[asyncio.Task[list[str]]]:
    """Lookups of so many dead names, which have begun as far as they can."""
    tasks = [asyncio.create_task(lookups.find(f"{n}.dead.example")) for n in range(count)]
    await asyncio.sleep(0.1)
    return tasks


async def are_blocked(resolver: Resolver, count: int) -> None:
    """Wait until so many names block a thread, and have done so for a while."""
    async with asyncio.timeout(10):
        while len(resolver.blocked) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(resolver.blocked) == count


async def drain(tasks: list[asyncio.Task[list[str]]]) -> list[type[object]]:
    return [type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)]


async def seconds_to_find(lookups: Lookups, name: str) -> float:
    started = time.monotonic()
    await lookups.find(name)
    return time.monotonic() - started


def threads() -> int:
    return sum(thread.name == "mainspring-lookup" for thread in threading.enumerate())


async def test_thirty_dead_names_do_not_delay_a_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = Lookups()
    with Resolver(monkeypatch, ["8.8.8.8"]) as resolver:
        dead = await ask_dead(lookups, 30)
        assert len(resolver.blocked) == 30
        assert await seconds_to_find(lookups, "good.example") < LATE_SECONDS
        assert not any(task.done() for task in dead)
    assert await drain(dead) == [socket.gaierror] * 30
    assert not lookups._asked
    assert not lookups._running


async def test_a_name_of_the_hosts_file_stays_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard(allow_loopback=True)
    with Resolver(monkeypatch):
        dead = await ask_dead(guard._lookups, 30)
        started = time.monotonic()
        found = await guard.resolve(guard.check_url("http://localhost/"))
        assert {str(address) for address in found} <= {"127.0.0.1", "::1"}
        assert time.monotonic() - started < LATE_SECONDS
    await drain(dead)


@pytest.mark.slow
async def test_calls_to_thirty_dead_names_do_not_delay_a_call_to_a_good_one(
    sender: Sender, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(host: str) -> asyncio.Task[Reply]:
        return asyncio.create_task(sender.send(Call("POST", f"http://{host}:{target.port}/", (), b"", 2000)))

    with Resolver(monkeypatch, ["127.0.0.1"]) as resolver:
        dead = [call(f"{n % 30}.dead.example") for n in range(300)]
        await asyncio.sleep(0.05)
        reply = await call("good.example")
        assert (reply.status, reply.duration_ms < LATE_SECONDS * 1000) == (200, True)
        assert len(resolver.blocked) == 30
        for reply in await asyncio.gather(*dead):
            assert (reply.problem, reply.sent) == ("timeout", False)


async def test_when_dead_names_have_taken_what_they_may_known_names_go_on_and_new_ones_fail_at_once(
    sender: Sender, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "SLOW_SECONDS", 0.3)
    lookups = sender._guard._lookups
    with Resolver(monkeypatch, ["127.0.0.1"]) as resolver:
        await lookups.find("good.example")
        dead = await ask_dead(lookups, 100)
        await are_blocked(resolver, FOR_NEW_NAMES)
        assert await seconds_to_find(lookups, "good.example") < LATE_SECONDS
        await asyncio.sleep(0.6)
        assert sum(task.done() for task in dead) == 100 - FOR_NEW_NAMES  # those that waited for a thread
        reply = await sender.send(Call("POST", f"http://new.example:{target.port}/", (), b"", 5000))
        assert (reply.problem, reply.sent) == ("network", False)
        assert "no lookup: 48 other names are being looked up and have no answer yet" in reply.detail
        assert reply.duration_ms < LATE_SECONDS * 1000
        assert await seconds_to_find(lookups, "good.example") < LATE_SECONDS
    await drain(dead)
    assert await lookups.find("new.example") == ["127.0.0.1"]


async def test_names_that_were_slow_lately_cannot_take_what_new_names_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SLOW_SECONDS", 0.05)
    lookups = Lookups()
    with Resolver(monkeypatch, ["8.8.8.8"]) as resolver:
        dead = await ask_dead(lookups, FOR_NEW_NAMES)
        await are_blocked(resolver, FOR_NEW_NAMES)
        resolver.release()
        assert await drain(dead) == [socket.gaierror] * FOR_NEW_NAMES
        dead = await ask_dead(lookups, FOR_NEW_NAMES)
        await are_blocked(resolver, FOR_SLOW_NAMES)
        assert await seconds_to_find(lookups, "good.example") < LATE_SECONDS
        assert await drain(dead[FOR_SLOW_NAMES:]) == [OSError] * (FOR_NEW_NAMES - FOR_SLOW_NAMES)
        monkeypatch.setattr(lookup, "SLOW_FOR_SECONDS", 0.0)  # later, the slow ones are as good as new
        dead += await ask_dead(lookups, FOR_NEW_NAMES)
        await are_blocked(resolver, FOR_NEW_NAMES)
    await drain(dead)


async def test_a_slow_name_that_answers_quickly_is_a_good_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = Lookups()
    with Resolver(monkeypatch, ["8.8.8.8"]):
        lookups._known["good.example"] = (True, time.monotonic())
        assert lookups._limit("good.example") == FOR_SLOW_NAMES
        await lookups.find("good.example")
        assert lookups._limit("good.example") == THREADS


async def test_more_good_names_than_threads_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0

    def slowly(host: str, *_: object, **__: object) -> list[object]:
        nonlocal most
        most = max(most, threads())
        time.sleep(0.005)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 0))]

    before = threads()
    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    lookups = Lookups()
    found = await asyncio.gather(*(lookups.find(f"{n}.example") for n in range(1000)))
    assert found == [["8.8.8.8"]] * 1000
    assert most - before <= FOR_NEW_NAMES
    assert not any(lookups._waiting.values())


async def test_nobody_waits_for_a_thread_longer_than_callers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "WAIT_SECONDS", 0.1)
    lookups = Lookups()
    with Resolver(monkeypatch, ["8.8.8.8"]):
        dead = await ask_dead(lookups, FOR_NEW_NAMES)
        with pytest.raises(OSError, match="no lookup"):
            await lookups.find("good.example")
        assert not any(lookups._waiting.values())
    await drain(dead)


async def test_what_is_remembered_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_KNOWN_LIMIT", 3)
    Resolver(monkeypatch, ["8.8.8.8"])
    lookups = Lookups()
    for name in "abcabd":
        await lookups.find(name)
    assert list(lookups._known) == ["a", "b", "d"]


async def test_threads_that_have_nothing_to_do_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_IDLE_SECONDS", 0.05)
    Resolver(monkeypatch, ["8.8.8.8"])
    lookups = Lookups()
    for n in range(5):
        await lookups.find(f"{n}.example")
    assert len(lookups._idle) == 1  # one after the other needs one thread
    await asyncio.sleep(0.3)
    assert not lookups._idle
    assert await lookups.find("again.example") == ["8.8.8.8"]


async def test_a_system_without_threads_is_an_error_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = Lookups()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            await lookups.find("good.example")
    Resolver(monkeypatch, ["8.8.8.8"])
    assert await lookups.find("good.example") == ["8.8.8.8"]


def test_a_lookup_that_outlives_its_loop_does_not_disturb_the_next() -> None:
    lookups = Lookups()

    async def leave(monkeypatch: pytest.MonkeyPatch, resolver: list[Resolver]) -> None:
        resolver.append(Resolver(monkeypatch, ["8.8.8.8"]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lookups.find("dead.example"), 0.05)

    async def come_back(monkeypatch: pytest.MonkeyPatch) -> None:
        with Resolver(monkeypatch, ["8.8.8.8"]):
            task = asyncio.create_task(lookups.find("dead.example"))
            assert await lookups.find("good.example") == ["8.8.8.8"]
        with pytest.raises(socket.gaierror):
            await task
        assert not lookups._asked
        assert not lookups._running

    with pytest.MonkeyPatch.context() as monkeypatch:
        resolver: list[Resolver] = []
        asyncio.run(leave(monkeypatch, resolver))
        resolver[0].release()
        asyncio.run(come_back(monkeypatch))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_stuck_threads_do_not_keep_the_process(loop: str) -> None:
    program = f"""
import asyncio, socket, time, {loop}
from mainspring.delivery.lookup import Lookups
socket.getaddrinfo = lambda *_, **__: time.sleep(60)
async def main():
    lookups = Lookups()
    dead = [asyncio.wait_for(lookups.find(f"{{n}}.example"), 0.2) for n in range(30)]
    print({{type(result).__name__ for result in await asyncio.gather(*dead, return_exceptions=True)}})
{loop}.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True, env={}
    )
    assert (ended.stdout, ended.stderr) == ("{'TimeoutError'}\n", "")
