"""An application of somebody else behind our listener: all of ASGI's answers, and all of our bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mainspring.listening import Limits, Listener, listening
from tests.api.edge import CLOSE, asked
from tests.support.exchanges import exchange


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers as its path says, with the size of the body that it has read."""
    path = scope["path"].strip("/")
    size, more = 0, path != "unread"
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    told = str(size).encode()
    headers = {
        "measured": [(b"content-length", str(len(told)).encode())],
        "broken": [(b"x", b"a\r\nset-cookie: b")],
    }.get(path, [])
    if path == "raises":
        raise ValueError("an application that nobody knows")
    await send({"type": "http.response.start", "status": 204 if path == "nothing" else 200, "headers": headers})
    if path == "pieces":
        for piece in (b"a" * 10, b"", b"b" * 5):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"" if path == "nothing" else told})


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    limits = Limits(request_seconds=0.5, idle_seconds=0.5, connections=20)
    async with listening(app, limits=limits, drain_seconds=1) as listener:
        yield listener


async def test_an_answer_comes_whole_or_in_pieces_with_a_length_or_without(listener: Listener) -> None:
    whole = await exchange(listener.port, asked("measured", method="POST", body=b"abc", head=CLOSE))
    assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.endswith(b"\r\n\r\n3")
    assert (await exchange(listener.port, asked("", head=CLOSE))).endswith(b"\r\n\r\n1\r\n0\r\n0\r\n\r\n")
    pieces = await exchange(listener.port, asked("pieces", head=CLOSE))
    assert pieces.endswith(b"\r\n\r\na\r\naaaaaaaaaa\r\n5\r\nbbbbb\r\n1\r\n0\r\n0\r\n\r\n")
    nothing = await exchange(listener.port, asked("nothing", head=CLOSE))
    assert nothing.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert nothing.endswith(b"\r\n\r\n")


async def test_a_connection_is_used_again_after_every_kind_of_answer(listener: Listener) -> None:
    paths = ("measured", "pieces", "", "nothing", "measured")
    answers = await exchange(listener.port, *(asked(path) for path in paths), asked("measured", head=CLOSE))
    assert answers.count(b"HTTP/1.1 20") == 6


async def test_an_application_that_fails_is_a_500_and_no_header_of_it_becomes_two(listener: Listener) -> None:
    assert (await exchange(listener.port, asked("raises"))).startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in await exchange(listener.port, asked("broken"))
    assert (await exchange(listener.port, asked("measured", head=CLOSE))).startswith(b"HTTP/1.1 200 ")


async def test_who_is_still_sending_gets_the_answer_that_came_early(listener: Listener) -> None:
    chunked = b"POST /unread HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    assert (await exchange(listener.port, chunked, *[piece] * 20)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 120, b"431"),
        (b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"408"),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx", b"408"),
        (b"", b"408"),
    ],
    ids=["endless url", "endless header", "many headers", "another host", "half a head", "half a body", "silence"],
)
async def test_what_a_peer_may_take_is_bounded(listener: Listener, sent: bytes, status: bytes) -> None:
    assert (await exchange(listener.port, sent)).startswith(b"HTTP/1.1 " + status)


async def test_silent_connections_give_way_to_those_who_ask(listener: Listener) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(100)]
    await asyncio.sleep(0.1)
    assert (await exchange(listener.port, asked("measured", head=CLOSE))).startswith(b"HTTP/1.1 200 ")
    assert listener.connections < 60
    for _, writer in silent:
        writer.close()


async def test_a_peer_can_be_cut_off_by_its_address(listener: Listener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    other, other_writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await asyncio.sleep(0.05)
    listener.cut_off(writer.get_extra_info("sockname"))
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    assert listener.connections == 1
    assert not other.at_eof()
    for one in (writer, other_writer):
        one.close()


@pytest.mark.parametrize("path", ["long", "short", "twice", "without a start"])
async def test_an_application_that_breaks_its_contract_is_cut_off_and_holds_up_nobody(
    caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        if path != "without a start":
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        if path == "twice":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1" if path == "short" else b"123"})

    async with listening(wrong, drain_seconds=1) as listener:
        answer = await exchange(listener.port, asked("") + asked(""))
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b"connection: close" in answer or not answer
    assert "the application failed" in caplog.text
