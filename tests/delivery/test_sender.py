"""Calls that reach a target: what is sent, how answers are read, and how connections are used again."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import time

import pytest

from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.testing.target import Answer, TargetServer
from tests.support.raw_server import raw_server


def post(url: str, body: bytes = b"{}", *, timeout_ms: int = 10_000, fresh: bool = False) -> Call:
    return Call("POST", url, (("content-type", "application/json"),), body, timeout_ms, fresh)


def ok(reply: Reply) -> bool:
    return reply.status == 200 and reply.problem == "" and reply.sent


async def test_a_request_arrives_as_it_was_asked_for(sender: Sender, target: TargetServer) -> None:
    headers = (
        ("content-type", "text/plain"),
        ("X-Cafe", "caf\u00e9"),
        ("webhook-id", "m1"),
    )
    reply = await sender.send(Call("PUT", target.url + "/a/b?c=%20d", headers, b"body", 10_000))
    assert ok(reply)
    assert reply.body == b'{"ok":true}'
    assert reply.headers["content-type"] == "application/json"
    request = target.requests[0]
    assert (request.method, request.path, request.body) == ("PUT", "/a/b?c=%20d", b"body")
    assert request.headers == {
        "host": f"127.0.0.1:{target.port}",
        "accept-encoding": "identity",
        "content-length": "4",
        "content-type": "text/plain",
        "x-cafe": "caf\u00e9",
        "webhook-id": "m1",
    }
    assert target.deliveries == {"m1": 1}


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"])
async def test_every_method_works_with_and_without_a_body(sender: Sender, target: TargetServer, method: str) -> None:
    for body in (b"", b"x"):
        reply = await sender.send(Call(method, target.url, (), body, 10_000))
        assert ok(reply)
        assert reply.body == (b"" if method == "HEAD" else b'{"ok":true}')
        assert target.requests[-1].body == body
    bodiless = method in ("GET", "HEAD", "DELETE", "OPTIONS")
    assert ("content-length" in target.requests[0].headers) is not bodiless


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "post", "GET / HTTP/1.1\r\nx: y\r\n\r\nGET", ""])
async def test_other_methods_are_refused(sender: Sender, target: TargetServer, method: str) -> None:
    reply = await sender.send(Call(method, target.url, (), b"", 10_000))
    assert (reply.problem, reply.sent, reply.status) == ("refused", False, None)
    assert not target.connections


@pytest.mark.parametrize(
    "header", [("x", "a\r\nhost: evil"), ("x", "a\nb"), ("x\r\ny", "a"), ("x", "\r"), ("x", "a\0"), ("x", "日本")]
)
async def test_a_header_that_would_break_out_is_never_written(
    sender: Sender, target: TargetServer, header: tuple[str, str]
) -> None:
    reply = await sender.send(Call("POST", target.url, (header,), b"", 10_000))
    assert (reply.problem, reply.sent) == ("refused", False)
    assert not target.connections


@pytest.mark.parametrize("status", [201, 301, 302, 307, 400, 404, 410, 429, 500, 503])
async def test_every_status_is_an_answer(sender: Sender, target: TargetServer, status: int) -> None:
    reply = await sender.send(post(f"{target.url}/status/{status}"))
    assert (reply.status, reply.problem, reply.sent) == (status, "", True)


async def test_a_redirect_is_not_followed(sender: Sender, target: TargetServer) -> None:
    reply = await sender.send(post(target.url + "/redirect"))
    assert (reply.status, reply.headers["location"]) == (302, "/redirect")
    assert len(target.requests) == 1


@pytest.mark.parametrize("behaviour", ["plain", "chunked", "until-close"])
@pytest.mark.parametrize("size", [0, 1, 5000])
async def test_every_framing_of_an_answer_is_read(
    sender: Sender, target: TargetServer, behaviour: str, size: int
) -> None:
    target.script("/", Answer(behaviour=behaviour, body=b"y" * size))  # type: ignore[arg-type]
    reply = await sender.send(post(target.url))
    assert ok(reply)
    assert reply.body == b"y" * size
    assert not reply.truncated


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_body_leaves_the_connection_usable(
    sender: Sender, target: TargetServer, status: int
) -> None:
    target.script("/", Answer(status=status, body=b""), Answer())
    assert (await sender.send(post(target.url))).status == status
    assert ok(await sender.send(post(target.url)))
    assert target.connections == 1


async def test_a_compressed_answer_is_unpacked_although_none_was_asked_for(
    sender: Sender, target: TargetServer
) -> None:
    target.script("/", Answer(body=gzip.compress(b"hello"), headers=(("content-encoding", "gzip"),)))
    assert (await sender.send(post(target.url))).body == b"hello"


async def test_connections_are_used_again(sender: Sender, target: TargetServer) -> None:
    for _ in range(20):
        assert ok(await sender.send(post(target.url)))
    assert target.connections == 1
    replies = await asyncio.gather(*(sender.send(post(target.url)) for _ in range(10)))
    assert all(map(ok, replies))
    assert target.connections == 10


async def test_a_fresh_call_uses_no_connection_that_was_idle(sender: Sender, target: TargetServer) -> None:
    for count in range(1, 4):
        assert ok(await sender.send(post(target.url, fresh=True)))
        assert target.connections == count
    assert ok(await sender.send(post(target.url)))
    assert target.connections == 3


@pytest.mark.parametrize("answer", [Answer(headers=(("connection", "close"),)), Answer(behaviour="until-close")])
async def test_a_connection_that_the_target_ends_is_not_used_again(
    sender: Sender, target: TargetServer, answer: Answer
) -> None:
    target.script("/", answer)
    for _ in range(3):
        assert ok(await sender.send(post(target.url)))
    assert target.connections == 3


async def test_a_target_that_closes_idle_connections_costs_nothing(sender: Sender, target: TargetServer) -> None:
    for _ in range(10):
        assert ok(await sender.send(post(target.url)))
        await target.drop_connections()
        await asyncio.sleep(0.01)
    assert target.connections == 10


async def test_a_farewell_that_the_loop_has_not_seen_yet_is_found_before_writing(target: TargetServer) -> None:
    """Only the operating system knows that the connection is closed: the loop was busy when it happened."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with Sender(guard=Guard(allow_loopback=True)) as sender:

            def answer_once() -> socket.socket:
                peer, _ = listener.accept()
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                return peer

            serving = asyncio.get_running_loop().run_in_executor(None, answer_once)
            assert ok(await sender.send(post(url)))
            peer = await serving
            peer.close()
            time.sleep(0.15)  # noqa: ASYNC251 - the point: nothing else runs meanwhile
            listener.close()
            reply = await sender.send(post(url))
            assert (reply.problem, reply.sent) == ("network", False)


async def test_a_connection_that_was_idle_for_a_while_is_still_used(sender: Sender, target: TargetServer) -> None:
    assert ok(await sender.send(post(target.url)))
    await asyncio.sleep(0.15)
    assert ok(await sender.send(post(target.url)))
    assert target.connections == 1


async def test_idle_connections_are_closed_in_time(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), idle_seconds=0.05) as sender:
        await asyncio.gather(*(sender.send(post(target.url)) for _ in range(5)))
        assert target.open_connections == 5
        await target.wait_for_open(0)
        assert ok(await sender.send(post(target.url)))


async def test_idle_connections_are_bounded(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), max_idle_per_host=3) as sender:
        await asyncio.gather(*(sender.send(post(target.url)) for _ in range(10)))
        await target.wait_for_open(3)


async def test_leaving_the_sender_closes_everything(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True)) as sender:
        await asyncio.gather(*(sender.send(post(target.url)) for _ in range(10)))
        waiting = asyncio.create_task(sender.send(post(target.url + "/hang")))
        await target.wait_for(11)
    reply = await waiting
    assert (reply.problem, reply.sent) == ("network", True)
    await target.wait_for_open(0)


async def test_cancelling_a_call_closes_its_connection(sender: Sender, target: TargetServer) -> None:
    waiting = asyncio.create_task(sender.send(post(target.url + "/hang")))
    await target.wait_for(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    target_closed = asyncio.create_task(sender.send(post(target.url)))
    assert ok(await target_closed)
    assert target.connections == 2


async def test_answers_never_meet_the_wrong_call_however_calls_are_cancelled(sender: Sender) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            name = head.split(b" ", 2)[1]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(name), name))

    chance = random.Random(7)

    async def one(number: int, address: str) -> bool:
        task = asyncio.create_task(sender.send(Call("GET", f"http://{address}/{number}", (), b"", 10_000)))
        if chance.random() < 0.5:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
        (reply,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(reply, asyncio.CancelledError):
            return False
        assert isinstance(reply, Reply)
        assert ok(reply), reply
        assert reply.body == b"/%d" % number
        return True

    async with raw_server(echo) as address:
        answered = 0
        for round_start in range(0, 1000, 20):
            numbers = range(round_start, round_start + 20)
            answered += sum(await asyncio.gather(*(one(number, address) for number in numbers)))
    assert 400 < answered < 1000


async def test_unexpected_bytes_on_an_idle_connection_end_it(sender: Sender) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
    connections = 0
    poison, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(answer + str(number).encode())
        if number == 1:
            await poison.wait()
            writer.write(answer + b"!")
        await reader.read()
        closed.set()

    async with raw_server(serve) as address:
        assert (await sender.send(post(f"http://{address}"))).body == b"1"
        poison.set()
        async with asyncio.timeout(5):
            await closed.wait()
        assert (await sender.send(post(f"http://{address}"))).body == b"2"


async def test_a_second_answer_in_one_breath_never_answers_the_next_call(sender: Sender) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        one = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
        writer.write(one + b"1" + one + b"2")
        await reader.read()

    async with raw_server(serve) as address:
        for _ in range(3):
            assert (await sender.send(post(f"http://{address}"))).body == b"1"


async def test_an_early_answer_to_a_large_request_is_accepted_and_the_rest_not_sent(sender: Sender) -> None:
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await answered.wait()
        try:
            while data := await reader.read(1 << 20):
                received += len(data)
        finally:
            over.set()

    answered, over = asyncio.Event(), asyncio.Event()
    async with raw_server(serve) as address:
        reply = await sender.send(post(f"http://{address}", b"x" * 50_000_000))
        assert (reply.status, reply.problem) == (413, "")
        answered.set()
        async with asyncio.timeout(5):
            await over.wait()
    assert received < 50_000_000


async def test_large_requests_and_answers_pass(target: TargetServer) -> None:
    target.script("/", Answer(body=b"z" * 2_000_000))
    async with Sender(guard=Guard(allow_loopback=True), answer_bytes=3_000_000) as sender:
        reply = await sender.send(post(target.url, b"x" * 5_000_000))
    assert reply.body == b"z" * 2_000_000
    assert target.requests[0].body == b"x" * 5_000_000


async def test_ipv6_works() -> None:
    async with TargetServer(host="::1") as target, Sender(guard=Guard(allow_loopback=True)) as sender:
        assert ok(await sender.send(post(target.url)))
        assert target.requests[0].headers["host"] == f"[::1]:{target.port}"


async def test_the_environments_proxy_is_ignored(
    sender: Sender, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ok(await sender.send(post(target.url)))


async def test_a_pool_forgets_origins_without_connections(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), idle_seconds=0.02) as sender:
        assert ok(await sender.send(post(target.url)))
        assert len(sender._pool._idle) == 1
        await target.wait_for_open(0)
        await asyncio.sleep(0)
        assert not sender._pool._open
        assert not sender._pool._idle
        assert sender._pool._idle_count == 0


async def test_senders_of_several_threads_never_read_each_others_answers() -> None:
    def call_often(letter: str) -> set[bytes]:
        async def main() -> set[bytes]:
            async with TargetServer() as target, Sender(guard=Guard(allow_loopback=True)) as sender:
                body = letter.encode() * 60_000
                target.script("/", *(Answer(body=body) for _ in range(300)))
                return {(await sender.send(post(target.url + "/"))).body for _ in range(300)}

        return asyncio.run(main())

    found = await asyncio.gather(*(asyncio.to_thread(call_often, letter) for letter in "abcd"))
    assert [{body[:1] + body[-1:] for body in bodies} for bodies in found] == [{b"aa"}, {b"bb"}, {b"cc"}, {b"dd"}]
    assert [len(bodies) for bodies in found] == [1, 1, 1, 1]
