"""What comes around a body, and requests behind requests: counted, and no more of it than somebody waits for."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from mainspring.api.app import build_app
from mainspring.api.limits import Limits
from mainspring.api.listener import Listener, listening
from mainspring.api.protocol import AHEAD, PIECE_BYTES, GuardedProtocol
from tests.api.edge import HEALTH, LAST, chunked, request, status
from tests.support.exchanges import exchange
from tests.support.service_doubles import TOKEN, Edge


async def test_a_token_in_a_trailer_is_none(listener: Listener) -> None:
    head = b"POST /v1/timers/list HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    trailer = f"2\r\n{{}}\r\n0\r\nauthorization: Bearer {TOKEN}\r\nx-request-id: mine\r\n\r\n".encode()
    answer = await exchange(listener.port, head + trailer)
    assert status(answer) == 401
    assert b"x-request-id: mine" not in answer


async def test_a_small_trailer_does_no_harm(listener: Listener) -> None:
    answer = await exchange(listener.port, chunked(b"2\r\n{}\r\n0\r\nx-checksum: 1\r\n\r\n"))
    assert status(answer) == 200


ENDLESS = {
    "trailer fields": (b"0\r\n", b"a:\r\n" * 1000),
    "one trailer field": (b"0\r\na: ", b"a" * 1000),
    "a chunk extension": (b"1;", b"a" * 1000),
    "a chunk size": (b"", b"0" * 1000),
}


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
@pytest.mark.parametrize(("start", "more"), ENDLESS.values(), ids=ENDLESS)
async def test_what_comes_around_a_body_without_end_is_refused(
    listener: Listener, start: bytes, more: bytes, token: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(chunked(start, token=token).replace(b"connection: close\r\n", b""))
    sent = 0
    async with asyncio.timeout(5):
        answer = asyncio.create_task(reader.read())
        while not answer.done() and sent < 100_000:
            writer.write(more)
            sent += len(more)
            await asyncio.sleep(0.001)
        with suppress(ConnectionResetError):  # closed while we were sending
            assert status(await answer) in (400, 401, 431)
    writer.close()
    assert sent < 60_000


async def test_a_body_in_chunks_of_one_byte_is_read(listener: Listener) -> None:
    body = b"1;x=y\r\n \r\n" * 20_000 + b"2\r\n{}\r\n0\r\n\r\n"
    assert status(await exchange(listener.port, chunked(body))) == 200


@pytest.mark.parametrize("number", [200, 10_000])
async def test_a_pipeline_of_any_length_is_answered_in_full(listener: Listener, number: int) -> None:
    answer = await exchange(listener.port, HEALTH * (number - 1) + LAST, seconds=20)
    assert answer.count(b"HTTP/1.1 200 OK") == number


async def test_a_pipeline_with_bodies_cut_anywhere_is_answered_in_full(listener: Listener) -> None:
    one = request(b" " * 3000 + b"{}", close=False)
    stream = one * 60 + request()
    pieces = [stream[at : at + 1777] for at in range(0, len(stream), 1777)]
    assert (await exchange(listener.port, *pieces, seconds=10)).count(b"HTTP/1.1 200 OK") == 61


@pytest.mark.slow
async def test_only_a_few_requests_are_parsed_ahead_and_then_nothing_is_read() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: object, receive: object, send: object) -> None:
        entered.set()
        await release.wait()
        await inner(scope, receive, send)  # type: ignore[arg-type]

    inner = build_app(Edge().api)
    async with listening(slow, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=1) as listener:
        asking = asyncio.create_task(exchange(listener.port, HEALTH * 40_000, LAST, seconds=60))
        await entered.wait()
        await asyncio.sleep(0.2)
        (connection,) = listener.state.connections
        assert isinstance(connection, GuardedProtocol)
        assert AHEAD <= len(connection.pipeline) <= AHEAD + PIECE_BYTES // len(HEALTH) + 1
        assert connection.flow.read_paused
        release.set()
        assert (await asking).count(b"HTTP/1.1 200 OK") == 40_001


async def test_a_refused_request_behind_others_is_answered_after_them(listener: Listener) -> None:
    answer = await exchange(listener.port, HEALTH * 3 + b"GET /health HTTP/1.1\r\n\r\n" + HEALTH)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"HTTP/1.1 ") == 4
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["code"] == "invalid_input"
