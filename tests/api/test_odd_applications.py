"""Applications of others that break their contract, and peers that leave or go wrong: everybody else gets an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from mainspring.api.app import build_app
from mainspring.listening import Listener, listening
from tests.api.edge import CLOSE, asked, connections_are, request, status
from tests.support.exchanges import exchange, reset
from tests.support.service_doubles import Edge

LAST = asked("", head=CLOSE)


def answering(*messages: dict[str, Any]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


def start(status: int = 200, **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def body(text: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, ValueError])
async def test_an_application_that_ends_in_whatever_way_is_a_500_and_its_connection_ends(
    error: type[BaseException],
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    async with asyncio.timeout(10), listening(app, drain_seconds=1) as listener:
        assert status(await exchange(listener.port, asked("") + asked(""))) == 500
        await connections_are(listener, 0)


async def test_what_fails_after_its_answer_takes_none_from_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    begun, failed = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/second":
            begun.set()
            await failed.wait()
        await answering(start(content_length="2"), body(b"ok"))(scope, receive, send)
        if scope["path"] == "/first":
            await begun.wait()
            asyncio.get_running_loop().call_later(0.05, failed.set)
            raise ValueError("after the answer")

    async with asyncio.timeout(10), listening(app, drain_seconds=1) as listener:
        answer = await exchange(listener.port, asked("first"), asked("second"), LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert "the application failed" in caplog.text


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_answer_without_a_length_that_breaks_off_does_not_look_whole(run: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answering(start(), body(b"abc", more=True))(scope, receive, send)
        await asyncio.sleep(0.05)
        raise ValueError("in the middle")

    async def scenario() -> None:
        async with asyncio.timeout(10), listening(app, drain_seconds=1) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(asked("", version="1.0"))
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()

    run(scenario())


async def test_who_has_left_is_still_recognised_so_that_its_work_goes_on() -> None:
    recognised: asyncio.Queue[bool] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        recognised.put_nowait(scope["state"]["recognise"]())

    async with asyncio.timeout(10), listening(app, drain_seconds=1) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(asked(""))
        await asyncio.sleep(0.05)
        reset(writer)
        assert await recognised.get()


async def test_of_a_body_that_nobody_reads_only_a_little_is_held() -> None:
    held = 0
    release = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        await answering(start(), body(b"%d" % size))(scope, receive, send)

    async with asyncio.timeout(30), listening(app, drain_seconds=1) as listener:
        large = b"x" * 8_000_000
        asking = asyncio.create_task(
            exchange(listener.port, asked("", method="POST", body=large, head=CLOSE), seconds=20)
        )
        for _ in range(30):
            await asyncio.sleep(0.01)
            for connection in listener.state.connections:
                received: Any = getattr(connection, "_received", None)
                held = max(held, len(received._body) if received else 0)
        release.set()
        assert b"8000000" in await asking
    assert 0 < held < 200_000


async def test_pipelined_requests_are_answered_although_the_listener_stops() -> None:
    begun = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.sleep(0.1)
        await answering(start(content_length="0"), body())(scope, receive, send)

    async with asyncio.timeout(10):
        async with listening(app, drain_seconds=5) as listener:
            asking = asyncio.create_task(exchange(listener.port, asked("") * 3))
            await begun.wait()
        assert (await asking).count(b"HTTP/1.1 200") == 3


async def test_a_request_that_is_cut_short_by_the_stop_is_told_so() -> None:
    begun = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.sleep(60)

    async with asyncio.timeout(10):
        async with listening(app, drain_seconds=0.1) as listener:
            asking = asyncio.create_task(exchange(listener.port, asked("")))
            await begun.wait()
        assert status(await asking) == 503


async def test_what_is_wrong_with_a_later_body_takes_no_answer_from_an_earlier_request() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.1)
        await answering(start(content_length="0"), body())(scope, receive, send)

    bad = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n"
    async with asyncio.timeout(10), listening(slow, drain_seconds=1) as listener:
        answer = await exchange(listener.port, asked("") + bad)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 400 ") == 1


@pytest.mark.parametrize(("sent", "told"), [(299, 299), (509, 509), (600, 500), (103, 500), (42, 500)])
async def test_a_status_need_not_be_known_but_must_be_one(sent: int, told: int) -> None:
    async with listening(answering(start(sent, content_length="2"), body(b"ok")), drain_seconds=1) as listener:
        assert status(await exchange(listener.port, LAST)) == told


@pytest.mark.parametrize(
    "messages",
    [
        (start(content_length="2"), body(b"123")),
        (start(content_length="2"), body(b"1")),
        ({**start(), "headers": [(b"content-length", b"1"), (b"content-length", b"2")]}, body(b"1")),
        (body(b"1"),),
        (start(), start()),
    ],
    ids=["too long", "too short", "two lengths", "no start", "two starts"],
)
async def test_what_is_wrong_before_anything_was_sent_is_a_500(messages: tuple[dict[str, Any], ...]) -> None:
    async with listening(answering(*messages), drain_seconds=1) as listener:
        assert status(await exchange(listener.port, LAST)) == 500


async def test_an_error_told_to_head_has_no_body() -> None:
    async with listening(answering(body()), drain_seconds=1) as listener:
        answer = await exchange(listener.port, asked("", method="HEAD"))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"\r\n\r\n")


async def test_two_parts_that_are_sent_at_once_have_one_head() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await asyncio.gather(send(body(b"a" * 3, more=True)), send(body(b"b" * 3, more=True)))
        await send(body())

    async with listening(app, drain_seconds=1) as listener:
        answer = await exchange(listener.port, LAST)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.endswith(b"3\r\naaa\r\n3\r\nbbb\r\n0\r\n\r\n")


async def test_http_1_0_gets_no_chunks() -> None:
    async with listening(answering(start(), body(b"abc")), drain_seconds=1) as listener:
        answer = await exchange(listener.port, asked("", version="1.0"))
    assert b"chunked" not in answer
    assert answer.endswith(b"\r\n\r\nabc")


@pytest.fixture
async def server() -> Any:
    async with listening(build_app(Edge().api), drain_seconds=1, allow_hosts=("x",)) as listener:
        yield listener


async def test_a_peer_that_waits_to_go_ahead_and_is_refused_may_leave_its_body_out(server: Listener) -> None:
    refused = (
        b"POST /v1/timers/get HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        b"content-type: application/json\r\ncontent-length: 20\r\n\r\n"
    )
    answer = await exchange(server.port, refused)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close\r\n" in answer


async def test_a_length_may_have_spaces_behind_it(server: Listener) -> None:
    head, _, text = request().partition(b"\r\n\r\n")
    spaced = head.replace(b"content-length: %d" % len(text), b"content-length: %d  " % len(text))
    assert spaced != head
    assert status(await exchange(server.port, spaced + b"\r\n\r\n" + text)) == 200
