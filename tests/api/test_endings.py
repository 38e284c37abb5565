"""How a connection ends: who has asked gets the whole answer, and who holds on is let go."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from mainspring.api.app import build_app
from mainspring.api.limits import Limits, ListenerState
from mainspring.api.listener import Listener, listening
from mainspring.api.protocol import LINGER_TICKS, GuardedProtocol
from tests.api.edge import LIMITS, connections_are, request
from tests.support.exchanges import exchange, reset
from tests.support.service_doubles import Edge

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
DOCS = b"GET /docs HTTP/1.1\r\nhost: x\r\n\r\n"

Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def served(app: Any = None, limits: Limits = LIMITS, drain_seconds: float = 1.0) -> Any:
    return listening(app or build_app(Edge().api), host="127.0.0.1", port=0, limits=limits, drain_seconds=drain_seconds)


async def half_closed(port: int, sent: bytes) -> bytes:
    """What comes back for bytes after which the peer says that there will be no more."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    return answer


async def slow(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(0.1)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@LOOPS
def test_who_sends_no_more_gets_the_answers_to_what_it_has_sent(run: Run) -> None:
    async def scenario() -> None:
        async with served(slow) as listener:
            assert (await half_closed(listener.port, HEALTH)).count(b"HTTP/1.1 200 ") == 1
            assert (await half_closed(listener.port, HEALTH * 20)).count(b"HTTP/1.1 200 ") == 20
            await connections_are(listener, 0)

    run(scenario())


async def test_who_sends_no_more_gets_a_large_pipeline_answered(listener: Listener) -> None:
    assert (await half_closed(listener.port, DOCS * 100)).count(b"HTTP/1.1 200 ") == 100
    assert (await half_closed(listener.port, request(close=False) * 50)).count(b"HTTP/1.1 200 ") == 50


PARTS = {
    "nothing": b"",
    "part of a head": b"GET /health HTTP/1.1\r\nhost",
    "part of a body": request(b"{}", close=False)[:-1],
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_who_stops_within_a_request_gets_the_answers_to_those_before(part: bytes) -> None:
    limits = Limits(request_seconds=60)
    async with served(slow, limits) as listener:
        await half_closed(listener.port, part)
        answers = await half_closed(listener.port, HEALTH * 3 + part)
        assert answers.count(b"HTTP/1.1 200 ") == 3
        await connections_are(listener, 0)


@LOOPS
def test_an_application_hears_that_its_peer_is_gone_and_not_that_it_sends_no_more(run: Run) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        heard.append(scope["path"])

    async def scenario() -> None:
        async with asyncio.timeout(10), served(app) as listener:
            _, half = await asyncio.open_connection("127.0.0.1", listener.port)
            half.write(HEALTH)
            half.write_eof()
            _, gone = await asyncio.open_connection("127.0.0.1", listener.port)
            gone.write(DOCS)
            await connections_are(listener, 2)
            await asyncio.sleep(0.05)
            reset(gone)
            await connections_are(listener, 1)
            await asyncio.sleep(0.05)
            assert heard == ["/docs"]
            half.close()

    run(scenario())


def pushed(port: int, first: bytes, more: bytes) -> bytes:
    """What is read by a peer that sends all it has before it reads."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as asker:
        try:
            asker.sendall(first)
            for _ in range(20):
                asker.sendall(more)
        except OSError:
            pass
        try:
            while part := asker.recv(65536):
                received += part
        except OSError:
            return b"cut off after " + received
    return received


@LOOPS
@pytest.mark.parametrize(
    ("first", "told"),
    [
        (DOCS, b"200"),
        (DOCS.replace(b"host: x", b"host: x\r\nconnection: close"), b"200"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx: ", b"431"),
        (b"", b"400"),
        (request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked") + b"zz\r\n", b"400"),
    ],
    ids=["an answer", "a last answer", "a large head", "no request", "a bad chunk"],
)
def test_who_goes_on_sending_gets_to_read_what_it_was_told(run: Run, first: bytes, told: bytes) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30), served(limits=Limits()) as listener:
            for _ in range(10):
                answer = await asyncio.to_thread(pushed, listener.port, first, b"x" * 72_000)
                assert answer.startswith(b"HTTP/1.1 " + told)
                head, _, body = answer.partition(b"\r\n\r\n")
                assert len(body) >= int(head.split(b"content-length: ")[1].split(b"\r\n")[0])

    run(scenario())


async def test_who_was_refused_and_never_stops_sending_is_cut_off(listener: Listener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)

    async def push() -> None:
        while True:
            writer.write(b"GARBAGE\r\n" * 2000)
            await writer.drain()

    async with asyncio.timeout(10):
        pushing = asyncio.create_task(push())
        assert b" 400 " in await reader.readline()
        await connections_are(listener, 0)
        await asyncio.gather(pushing, return_exceptions=True)
    writer.close()


async def test_who_was_refused_and_stays_is_cut_off(listener: Listener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(10):
        writer.write(b"GARBAGE\r\n")
        assert b" 400 " in await reader.read()
        await connections_are(listener, 0)
    writer.close()


@LOOPS
def test_who_is_refused_within_a_body_that_was_asked_for_is_told_only_that(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked\r\nexpect: 100-continue")

    async def scenario() -> None:
        async with asyncio.timeout(10), served(limits=Limits()) as listener:
            assert (await exchange(listener.port, waiting + b"zz\r\n")).startswith(b"HTTP/1.1 400 ")

    run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@LOOPS
def test_who_leaves_while_it_is_answered_is_no_error(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    chunked = b"POST /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n30000\r\n" + b"x" * 0x20000

    def leave(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as asker:
            asker.sendall(chunked)

    async def scenario() -> None:
        async with asyncio.timeout(10), served(slow) as listener:
            for _ in range(10):
                await asyncio.to_thread(leave, listener.port)
            await connections_are(listener, 0)

    run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_an_empty_line_behind_a_request_begins_no_other(edge: Edge) -> None:
    limits = Limits(request_seconds=0.2, idle_seconds=1.0)
    async with served(build_app(edge.api), limits) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(request(close=False))
        await reader.readuntil(b'"nextCursor":null}')
        writer.write(b"\r\n")
        assert await reader.read() == b""
        writer.close()


async def test_a_stop_waits_only_a_moment_for_strangers_that_do_not_read() -> None:
    large = b"x" * 30_000_000
    entered, all_entered = 0, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal entered
        entered += 1
        if entered == 4:
            all_entered.set()
        if scope["path"] == "/known":
            scope["state"]["recognise"]()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": large})

    limits = Limits(request_seconds=60)
    async with asyncio.timeout(30):
        async with served(app, limits, drain_seconds=600) as listener:
            strangers = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
            for stranger in strangers:
                stranger.sendall(HEALTH)
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
            writer.write(b"GET /known HTTP/1.1\r\nhost: x\r\n\r\n")
            await all_entered.wait()

            async def read_late() -> bytes:
                await asyncio.sleep(2)
                return await reader.read()

            reading = asyncio.create_task(read_late())
        assert len(await reading) > len(large)
    writer.close()
    for stranger in strangers:
        stranger.close()


class Untaken(asyncio.Transport):
    """A transport whose peer takes nothing of the end of its answer until it is told to."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.left = 1_000
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.left

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write_eof(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


async def test_the_moment_in_which_a_peer_is_listened_to_begins_when_all_is_sent() -> None:
    state = ListenerState(Limits(request_seconds=10))
    connection = GuardedProtocol(build_app(Edge().api), state)
    transport = Untaken()
    connection.connection_made(transport)
    connection._leave(linger=True)

    def sweep(ticks: int) -> None:
        for _ in range(ticks):
            state.tick += 1
            connection.check_deadlines()

    sweep(state.request_ticks)
    assert not transport.is_aborted
    transport.left = 0
    sweep(LINGER_TICKS)
    assert not transport.is_aborted
    sweep(1)
    assert transport.is_aborted
    connection.connection_lost(None)


async def test_who_never_takes_the_end_of_a_long_answer_is_let_go_after_the_time_for_a_request() -> None:
    state = ListenerState(Limits(request_seconds=10))
    connection = GuardedProtocol(build_app(Edge().api), state)
    transport = Untaken()
    connection.connection_made(transport)
    connection._leave(linger=True)
    for _ in range(state.request_ticks + 2):
        state.tick += 1
        connection.check_deadlines()
    assert transport.is_aborted
    connection.connection_lost(None)
