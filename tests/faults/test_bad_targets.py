"""Targets that are dead, slow or mad delay nobody else, and each ends as the decision table says."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from mainspring.client import AsyncClient, CreateTimer, Delivery, Result, RetryPolicy, State
from mainspring.errors import NotFound
from mainspring.testing.target import Answer, Behaviour, TargetServer
from mainspring.testing.torture.process import serving
from mainspring.timers.messages import AttemptView
from tests.support.patience import until

pytestmark = pytest.mark.slow  # real processes take their time

LATE_MS = 500
GOOD = 100


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with serving(tmp_path) as server, server.client(timeout=30) as client:
        yield client


@contextmanager
def black_hole(host: str) -> Iterator[str]:
    """A port that answers no connection at all: its backlog is full and nobody accepts."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        try:
            yield f"http://{host}:{address[1]}/"
        finally:
            for filler in fillers:
                filler.close()


def refused_port() -> str:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.9", 0))
        return f"http://127.0.0.9:{probe.getsockname()[1]}/"


async def create_many(client: AsyncClient, prefix: str, url: str, count: int, *, over_seconds: float = 0.0) -> None:
    timers = [
        CreateTimer(timer_id=f"{prefix}{n}", callback_url=url, delay_seconds=over_seconds * n / count)
        for n in range(count)
    ]
    for start in range(0, count, 500):
        view = await client.timers.create_batch(timers[start : start + 500])
        assert view.failed == 0


async def worst_lateness(client: AsyncClient, target: TargetServer, *, host: str = "127.0.0.1") -> float:
    """Milliseconds by which the latest of the good timers was late, created now and due over three seconds."""
    wall_offset = time.time() - time.monotonic()
    await create_many(client, "good", f"http://{host}:{target.port}/good", GOOD, over_seconds=3.0)
    await asyncio.sleep(3.0)

    async def look() -> bool | None:
        return True if sum(request.path == "/good" for request in target.requests) >= GOOD else None

    await until(look, seconds=30, what=f"{GOOD} good calls")
    return max(
        (request.arrived_at + wall_offset) * 1000 - int(request.headers["mainspring-scheduled-at"])
        for request in target.requests
        if request.path == "/good"
    )


async def test_dead_targets_with_thousands_of_due_timers_do_not_delay_a_good_one(
    ask: AsyncClient, target: TargetServer
) -> None:
    async with TargetServer(host="127.0.0.2") as hanging:
        with black_hole("127.0.0.3") as hole:
            await create_many(ask, "hole", hole, 2000)
            await create_many(ask, "refused", refused_port(), 2000)
            await create_many(ask, "hanging", f"{hanging.url}/hang", 2000)
            assert await worst_lateness(ask, target) < LATE_MS
            assert hanging.open_connections <= 128


async def test_many_dead_targets_that_could_take_all_slots_do_not_delay_a_good_one(
    ask: AsyncClient, target: TargetServer
) -> None:
    """Twelve hanging hosts of 128 calls each would be more than the 1024 calls that are allowed in all."""
    async with AsyncExitStack() as stack:
        for n in range(12):
            hanging = await stack.enter_async_context(TargetServer(host=f"127.0.1.{n + 1}"))
            await create_many(ask, f"hanging{n}-", f"{hanging.url}/hang", 300)
        assert await worst_lateness(ask, target) < LATE_MS


RESOLVER = """
import socket, time
system = socket.getaddrinfo
def getaddrinfo(host, *arguments, **options):
    if str(host).endswith(".dead.example"):
        time.sleep(15)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return system("127.0.0.1" if host == "good.example" else host, *arguments, **options)
socket.getaddrinfo = getaddrinfo
"""
"""The network's DNS of a server: silent about some names, as long as a system usually asks."""


async def test_names_whose_dns_is_silent_do_not_delay_a_good_one(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(RESOLVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with serving(tmp_path / "data") as server, server.client(timeout=30) as ask:
        for n in range(30):
            await create_many(ask, f"dead{n}-", f"http://{n}.dead.example/", 20)
        assert await worst_lateness(ask, target, host="good.example") < LATE_MS


TABLE = [
    # path, answer, how an at-most-once call ends: outcome, state (None: done), part of the reason
    ("/drip", Answer(behaviour="drip", drip_seconds=0.02), Result.SUCCEEDED, None, ""),
    ("/drip-for-ever", Answer(behaviour="drip", drip_seconds=0.5), Result.UNKNOWN, State.PARKED, "within 1.5 s"),
    ("/hang", Answer(behaviour="hang"), Result.UNKNOWN, State.PARKED, "within 1.5 s"),
    ("/reset", Answer(behaviour="reset"), Result.UNKNOWN, State.PARKED, "may have acted"),
    ("/close", Answer(behaviour="close"), Result.UNKNOWN, State.PARKED, "may have acted"),
    ("/cut", Answer(behaviour="close-after-headers"), Result.UNKNOWN, State.PARKED, "may have acted"),
    ("/garbage", Answer(behaviour="garbage"), Result.UNKNOWN, State.PARKED, "may have acted"),
    ("/endless", Answer(behaviour="endless-headers"), Result.UNKNOWN, State.PARKED, "may have acted"),
    ("/huge", Answer(behaviour="huge"), Result.SUCCEEDED, None, ""),
    ("/bomb", Answer(behaviour="gzip-bomb", size=100_000_000), Result.SUCCEEDED, None, ""),
    ("/moved", Answer(status=302, headers=(("location", "/good"),)), Result.FAILED, State.PARKED, "302"),
    ("/broken", Answer(status=500), Result.FAILED, State.PARKED, "500"),
    ("/wrong", Answer(status=404), Result.FAILED, State.PARKED, "404"),
    ("/no", Answer(body=b'{"ok":false}'), Result.FAILED, State.PARKED, "ok: false"),
]


async def test_mad_answers_end_as_the_decision_table_says(ask: AsyncClient, target: TargetServer) -> None:
    for path, answer, *_ in TABLE:
        target.script(path, answer)
        await ask.timers.create(
            path[1:],
            callback_url=f"{target.url}{path}",
            delay_seconds=0,
            delivery=Delivery.AT_MOST_ONCE,
            callback_timeout_seconds=1.5,
        )
    for path, _, outcome, state, reason in TABLE:
        [attempt] = await until(partial(_attempts, ask, path[1:]), seconds=10, what=f"an end of {path}")
        assert (path, attempt.outcome) == (path, outcome)
        assert reason in attempt.detail
        assert len(attempt.answer_head) <= 500
        assert await _state(ask, path[1:]) is state, path
    assert set(target.deliveries.values()) == {1}
    assert target.bytes_written < 50_000_000  # of the gigabyte that was offered


async def test_unknown_outcomes_are_repeated_for_those_who_chose_so(ask: AsyncClient, target: TargetServer) -> None:
    policy = RetryPolicy(initial_interval_seconds=0.1, jitter=0)
    behaviours: tuple[Behaviour, ...] = ("reset", "close", "garbage")
    for behaviour in behaviours:
        target.script(f"/{behaviour}", Answer(behaviour=behaviour), Answer(behaviour=behaviour), Answer())
        await ask.timers.create(
            behaviour, callback_url=f"{target.url}/{behaviour}", delay_seconds=0, retry_policy=policy
        )
    await target.wait_for(9)
    assert list(target.deliveries.values()) == [3, 3, 3]


async def test_a_refused_connection_is_tried_again_even_at_most_once_because_nothing_left(ask: AsyncClient) -> None:
    policy = RetryPolicy(max_attempts=3, initial_interval_seconds=0.05, jitter=0)
    await ask.timers.create(
        "t", callback_url=refused_port(), delay_seconds=0, delivery=Delivery.AT_MOST_ONCE, retry_policy=policy
    )

    async def look() -> bool | None:
        return True if await _state(ask, "t") is State.PARKED else None

    await until(look, seconds=5, what="an exhausted timer")
    attempts = (await ask.timers.history("t")).attempts
    assert [(a.attempt, a.outcome) for a in attempts] == [(n, Result.FAILED) for n in (3, 2, 1)]


async def _attempts(client: AsyncClient, timer_id: str) -> tuple[AttemptView, ...] | None:
    return (await client.timers.history(timer_id)).attempts or None


async def _state(client: AsyncClient, timer_id: str) -> State | None:
    try:
        return (await client.timers.get(timer_id)).state
    except NotFound:
        return None
