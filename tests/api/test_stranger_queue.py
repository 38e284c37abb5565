"""Peers that never stop asking: the loop goes round, and they get their turns, one after the other."""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from mainspring.api.app import build_app
from mainspring.api.flow_control import READ_BYTES
from mainspring.api.limits import Limits
from mainspring.api.listener import Listener, listening
from mainspring.api.protocol import PIECE_BYTES, PIECES, SKIPPED_BYTES, GuardedProtocol
from mainspring.api.stranger_queue import AT_ONCE, StrangerQueue
from tests.api.edge import HEALTH, LAST, chunked, connections_are, request, status
from tests.support.exchanges import exchange
from tests.support.service_doubles import Edge

ONE_BYTE = b"1\r\n \r\n"
PLACES = 4


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    app = build_app(Edge().api)
    async with listening(app, host="127.0.0.1", port=0, limits=Limits(request_seconds=1), drain_seconds=1) as listener:
        yield listener


class Rounds:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.number = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._count)

    def _count(self) -> None:
        self.number += 1
        self._next = self._loop.call_soon(self._count)

    def stop(self) -> int:
        self._next.cancel()
        return self.number


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def asking_for_ever(listener: Listener, number: int) -> AsyncIterator[list[asyncio.Task[bytes]]]:
    """Strangers that send one request after another and read the answers; each returns the end of what it read."""

    async def one() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        last = b""

        async def ask() -> None:
            while True:
                writer.write(HEALTH * 100)
                await writer.drain()

        asking = asyncio.create_task(ask())
        try:
            with suppress(ConnectionResetError):
                while heard := await reader.read(65_536):
                    last = (last + heard)[-2000:]
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            writer.close()
        return last

    tasks = [asyncio.create_task(one()) for _ in range(number)]
    try:
        await connections_are(listener, number)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("path", [b"POST /v1/timers/list", b"GET /health"], ids=["refused", "answered"])
async def test_a_chunked_request_that_is_answered_before_it_ends_ends_its_connection(
    listener: Listener, path: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(path + b" HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    sent = 0

    async def pour() -> None:
        nonlocal sent
        while True:
            writer.write(ONE_BYTE * 1000)
            await writer.drain()
            sent += 6000

    async with asyncio.timeout(10):
        pouring = asyncio.create_task(pour())
        answer = await reader.readuntil(b"\r\n\r\n")
        await connections_are(listener, 0)
        await asyncio.wait((pouring,))
    assert isinstance(pouring.exception(), ConnectionError)
    writer.close()
    assert status(answer) in (200, 401)
    assert b"connection: close" in answer
    assert sent < SKIPPED_BYTES + 8_000_000  # and what the system holds


async def test_a_large_body_that_is_refused_does_not_take_the_answer_from_its_sender(listener: Listener) -> None:
    body = b" " * 10_000
    chunks = b"%x\r\n%b\r\n" % (len(body), body) * 60 + b"0\r\n\r\n"
    answer = await exchange(listener.port, chunked(chunks, token="wrong").replace(b"connection: close\r\n", b""))
    assert status(answer) == 401


async def test_the_loop_goes_round_while_a_body_in_small_chunks_is_read(listener: Listener) -> None:
    body = ONE_BYTE * 20_000 + b"2\r\n{}\r\n0\r\n\r\n"
    rounds = Rounds()
    assert status(await exchange(listener.port, chunked(body), seconds=20)) == 200
    assert rounds.stop() >= len(body) / (PIECES * PIECE_BYTES)


async def test_strangers_that_ask_and_ask_are_answered_a_few_in_a_turn() -> None:
    strangers, each = 40, 20
    rounds = Rounds()
    answered: dict[int, int] = {}
    first: set[Any] = set()

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        if scope["client"] in first:  # a first request is answered at once
            answered[rounds.number] = answered.get(rounds.number, 0) + 1
        first.add(scope["client"])
        await answer_ok(scope, receive, send)

    async with listening(counting, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=1) as listener:
        pipeline = HEALTH * (each - 1) + LAST
        answers = await asyncio.gather(*(exchange(listener.port, pipeline, seconds=20) for _ in range(strangers)))
    rounds.stop()
    assert [answer.count(b"HTTP/1.1 200 OK") for answer in answers] == [each] * strangers
    assert max(answered.values()) <= AT_ONCE


class Rests(selectors.DefaultSelector):
    """Counts how often the loop had nothing to do, and how often it went round."""

    number = 0
    rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.number += timeout is None or timeout > 0
        self.rounds += 1
        return super().select(timeout)


@pytest.mark.parametrize("strangers", [1, 40])
def test_the_loop_rests_after_a_few_turns_of_strangers(strangers: int) -> None:
    rests = Rests()
    went_on: dict[int, int] = {}
    in_round: dict[int, int] = {}

    async def main() -> None:
        turns = StrangerQueue()
        left = 10 * AT_ONCE * strangers

        def go_on() -> None:
            nonlocal left
            went_on[rests.number] = went_on.get(rests.number, 0) + 1
            in_round[rests.rounds] = in_round.get(rests.rounds, 0) + 1
            left -= 1
            if left >= strangers:
                turns.wait(go_on)
            elif not left:
                done.set()

        done = asyncio.Event()
        for _ in range(strangers):
            turns.wait(go_on)
        async with asyncio.timeout(10):
            await done.wait()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(rests)) as runner:
        runner.run(main())
    assert sum(went_on.values()) == 10 * AT_ONCE * strangers
    assert max(in_round.values()) <= AT_ONCE
    # Where the machine is slow a rest is over before it has begun, now and then.
    assert len(went_on) >= 0.9 * 10 * strangers


async def test_no_more_is_held_of_a_connection_than_one_small_read() -> None:
    held = 0
    serving: list[Listener] = []

    async def looking(scope: Any, receive: Any, send: Any) -> None:
        nonlocal held
        await asyncio.sleep(0)
        for connection in serving[0].state.connections:
            assert isinstance(connection, GuardedProtocol)
            held = max(held, sum(map(len, connection._unparsed)))
        await answer_ok(scope, receive, send)

    async with listening(looking, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=1) as listening_at:
        serving.append(listening_at)
        answer = await exchange(listening_at.port, HEALTH * 2000 + LAST, seconds=20)
    assert answer.count(b"HTTP/1.1 200 OK") == 2001
    assert 0 < held <= READ_BYTES


async def test_busy_strangers_above_the_bound_of_their_address_leave_with_an_answer() -> None:
    limits = Limits(request_seconds=1, tokenless_connections=3)
    async with (
        asyncio.timeout(20),
        listening(answer_ok, host="127.0.0.1", port=0, limits=limits, drain_seconds=1) as listener,
        asking_for_ever(listener, 7) as strangers,
    ):
        await connections_are(listener, 3)
        left = [await stranger for stranger in strangers if stranger.done()]
    assert len(left) <= 4  # those that read to the end
    assert all(b"connection: close" in last for last in left if last)


async def test_who_shows_a_token_gets_the_place_of_a_busy_stranger() -> None:
    limits = Limits(connections=PLACES)
    async with (
        asyncio.timeout(20),
        listening(build_app(Edge().api), host="127.0.0.1", port=0, limits=limits, drain_seconds=1) as listener,
        asking_for_ever(listener, PLACES + 20),
    ):
        for _ in range(3):
            assert status(await exchange(listener.port, request())) == 200


def test_an_answer_to_who_was_just_dismissed_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    serving: list[Listener] = []

    async def dismissed(scope: Any, receive: Any, send: Any) -> None:
        for connection in tuple(serving[0].state.connections):
            assert isinstance(connection, GuardedProtocol)
            connection.dismiss()
        await asyncio.sleep(0.05)  # until the connection is lost
        await answer_ok(scope, receive, send)

    async def main() -> None:
        async with listening(dismissed, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=1) as listening_at:
            serving.append(listening_at)
            assert await exchange(listening_at.port, HEALTH * 3) == b""

    with caplog.at_level(logging.WARNING):
        uvloop.run(main())
    assert caplog.records == []
