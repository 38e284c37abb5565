"""The edge behind a real socket: slow, greedy, broken and pipelining peers."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import time
import tracemalloc

import pytest
import uvloop

from mainspring.api.app import build_app
from mainspring.api.asgi import AsgiApp, Receive, Scope, Send
from mainspring.api.limits import Limits
from mainspring.api.listener import Listener, listening
from mainspring.errors import ConfigError
from tests.api.edge import LIMITS, connections_are, request, status
from tests.support.exchanges import exchange
from tests.support.json_bodies import payload
from tests.support.service_doubles import TOKEN, Edge


async def test_a_request_is_answered(listener: Listener) -> None:
    answer = await exchange(listener.port, request(payload(b"1"), path="/v1/timers/create"))
    assert status(answer) == 200
    assert b"server:" not in answer
    assert b"date:" not in answer
    assert b'"timerId":"t"' in answer


async def test_a_request_may_come_in_small_pieces(listener: Listener) -> None:
    whole = request(payload(b"1"), path="/v1/timers/create")
    assert status(await exchange(listener.port, *(whole[at : at + 7] for at in range(0, len(whole), 7)))) == 200


async def test_a_chunked_body_is_read(listener: Listener) -> None:
    head = f"POST /v1/timers/list HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n"
    chunked = head.encode() + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    assert status(await exchange(listener.port, chunked)) == 200


async def test_pipelined_requests_are_answered_in_order(listener: Listener) -> None:
    ids = [f"r-{n}" for n in range(20)]
    sent = [request(headers=f"x-request-id: {name}\r\n", close=name == ids[-1]) for name in ids]
    answer = await exchange(listener.port, b"".join(sent))
    positions = [answer.index(f"x-request-id: {name}\r\n".encode()) for name in ids]
    assert positions == sorted(positions)
    assert answer.count(b"HTTP/1.1 200 OK") == 20


async def test_head_has_the_length_but_not_the_body(listener: Listener) -> None:
    answer = await exchange(listener.port, b"HEAD /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert status(answer) == 200
    assert answer.endswith(b"\r\n\r\n")


SLOW = {
    "nothing": b"",
    "empty lines": b"\r\n",
    "part of a method": b"PO",
    "part of a head": b"POST /v1/timers/list HTTP/1.1\r\nhost: x\r\nx-a: b",
    "part of a body": request(b"{}")[:-1],
    "part of a chunk": request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked") + b"5\r\n{",
    "body of an open route": b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab",
}


@pytest.mark.parametrize("start", SLOW.values(), ids=SLOW)
async def test_a_request_that_does_not_arrive_in_time_is_let_go(listener: Listener, start: bytes) -> None:
    answer = await exchange(listener.port, start)
    if b"/health" in start:
        assert status(answer) == 200
        assert answer.count(b"HTTP/1.1") == 1
    else:
        assert status(answer) == 408
        assert b"request_timeout" in answer


async def test_dripping_does_not_move_the_deadline(listener: Listener) -> None:
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"POST /v1/timers/list HTTP/1.1\r\n")

    async def drip() -> None:
        while not writer.is_closing():
            writer.write(b"x-a: b\r\n")
            await asyncio.sleep(0.05)

    async with asyncio.timeout(5):
        dripping = asyncio.create_task(drip())
        answer = await reader.readline()
        writer.close()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert b"408" in answer
    assert time.monotonic() - started < 2


async def test_an_idle_connection_is_closed_without_a_word(listener: Listener) -> None:
    answer = await exchange(listener.port, request(close=False))
    assert answer.count(b"HTTP/1.1") == 1
    assert status(answer) == 200


async def test_a_kept_connection_serves_many_requests(listener: Listener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(5):
        for _ in range(5):
            writer.write(request(close=False))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            await asyncio.sleep(0.15)  # together longer than the deadline of one request
    writer.close()


HEADS = {
    "one large header in one piece": (b"x-a: " + b"a" * 20_000 + b"\r\n\r\n",),
    "one large header that never ends": (b"x-a: ", *[b"a" * 1000] * 1000),
    "headers that never end": tuple(b"x-%d: %b\r\n" % (n, b"a" * 1000) for n in range(1000)),
    "many small headers": (b"a:\r\n" * 101 + b"\r\n",),
}


@pytest.mark.parametrize("pieces", HEADS.values(), ids=HEADS)
async def test_a_head_over_16_kb_or_100_headers_is_refused(listener: Listener, pieces: tuple[bytes, ...]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(5):
        answer = asyncio.create_task(reader.readline())
        writer.write(b"GET /health HTTP/1.1\r\n")
        for piece in pieces:
            if answer.done():
                break
            writer.write(piece)
            await asyncio.sleep(0.002)
        assert b"431" in await answer
    writer.close()


async def test_a_long_url_is_refused(listener: Listener) -> None:
    assert status(await exchange(listener.port, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")) == 431


async def test_a_head_just_below_16_kb_is_served_beside_a_large_body(listener: Listener) -> None:
    large = request(b" " * 200_000 + b"{}", headers="x-a: " + "a" * 16_000 + "\r\n")
    assert status(await exchange(listener.port, large)) == 200


async def test_a_body_over_the_limit_is_answered_and_the_connection_still_used(listener: Listener) -> None:
    answer = await exchange(listener.port, request(b" " * 1_000_001, close=False) + request())
    assert status(answer) == 413
    assert answer.count(b"HTTP/1.1 200 OK") == 1


GARBAGE = {
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
    "words": b"hello there\r\n\r\n",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "space in a name": b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n",
    "nul in a value": b"GET /health HTTP/1.1\r\nx-a: a\x00b\r\n\r\n",
    "two lengths": b"POST /v1/timers/list HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    "length and chunked": request(headers="transfer-encoding: chunked\r\n"),
    "negative length": b"POST /v1/timers/list HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    "huge length": b"POST /v1/timers/list HTTP/1.1\r\ncontent-length: " + b"9" * 40 + b"\r\n\r\n",
    "bad chunk": request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked") + b"zz\r\n",
    "star": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "connect": b"CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "no path": b"GET //example.com HTTP/1.1\r\nhost: x\r\n\r\n",
    "not ascii": b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("start", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_refused_and_the_server_goes_on(listener: Listener, start: bytes) -> None:
    assert 400 <= status(await exchange(listener.port, start)) < 500
    assert status(await exchange(listener.port, request())) == 200


async def test_garbage_behind_a_request_does_not_take_its_answer(listener: Listener, edge: Edge) -> None:
    answer = await exchange(listener.port, request(payload(b"1"), path="/v1/timers/create", close=False) + b"\x00junk")
    assert status(answer) == 200
    assert answer.count(b"HTTP/1.1") == 1
    assert edge.timers.calls == 1


async def test_an_offered_upgrade_is_ignored(listener: Listener) -> None:
    upgrade = request(b"{}", headers="connection: upgrade, http2-settings\r\nupgrade: h2c\r\n", close=False)
    assert status(await exchange(listener.port, upgrade)) == 200


async def test_many_offered_upgrades_in_one_chunk_are_ignored(listener: Listener) -> None:
    upgrade = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    answer = await exchange(listener.port, upgrade * 3000 + request(), seconds=10)
    assert answer.count(b"HTTP/1.1 200 OK") == 3001


async def test_an_encoded_path_is_compared_decoded_and_never_fails(listener: Listener) -> None:
    for path, expected in ((b"/healt%68", 200), (b"/%ff%00", 404), (b"/%", 404), (b"/health?a=b", 200)):
        answer = await exchange(listener.port, b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert status(answer) == expected


def told_id(answer: bytes) -> str:
    """The request id of a problem, which is in its header and its body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    found = re.search(rb"x-request-id: (\S+)", head)
    assert found is not None
    told = str(json.loads(body)["requestId"])
    assert told == found[1].decode()
    return told


async def test_a_refusal_of_the_protocol_has_a_request_id_of_its_own(listener: Listener) -> None:
    refused = [b"POST /", b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", GARBAGE["words"]]
    answers = [await exchange(listener.port, start) for start in refused]
    assert [status(answer) for answer in answers] == [408, 431, 400]
    ids = {told_id(answer) for answer in answers}
    assert len(ids) == 3
    assert "" not in ids


async def test_a_refusal_of_the_protocol_keeps_the_id_of_the_request_and_of_no_other(listener: Listener) -> None:
    own = "x-request-id: mine\r\n"
    assert told_id(await exchange(listener.port, request(b"{}", headers=own)[:-1])) == "mine"
    large = request(headers=own + "x-a: " + "a" * 20_000 + "\r\n")
    assert told_id(await exchange(listener.port, large)) == "mine"
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(5):
        writer.write(request(headers=own, close=False))
        await reader.readuntil(b'"nextCursor":null}')
        writer.write(b"junk\r\n\r\n")
        assert told_id(await reader.read()) != "mine"
    writer.close()


async def test_a_peer_that_takes_no_answers_is_dropped(listener: Listener) -> None:
    asker = socket.create_connection(("127.0.0.1", listener.port))
    asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asker.setblocking(False)
    loop = asyncio.get_running_loop()
    asks = b"GET /docs HTTP/1.1\r\nhost: x\r\n\r\n" * 2000
    await connections_are(listener, 1)
    async with asyncio.timeout(5):
        await loop.sock_sendall(asker, asks)
    await connections_are(listener, 0)
    asker.close()


async def test_a_stop_waits_for_the_answer_in_progress_and_refuses_new_work() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: object, receive: object, send: object) -> None:
        entered.set()
        await release.wait()
        await inner(scope, receive, send)  # type: ignore[arg-type]

    inner: AsgiApp = build_app(Edge().api)
    async with asyncio.timeout(10):
        async with listening(slow, host="127.0.0.1", port=0, limits=LIMITS, drain_seconds=5) as listener:
            asking = asyncio.create_task(exchange(listener.port, request(close=False)))
            await entered.wait()
            asyncio.get_running_loop().call_later(0.1, release.set)
        assert status(await asking) == 200
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)


async def test_a_stop_is_bounded() -> None:
    async def never(scope: object, receive: object, send: object) -> None:
        await asyncio.Event().wait()

    started = time.monotonic()
    async with listening(never, host="127.0.0.1", port=0, limits=LIMITS, drain_seconds=0.1) as listener:
        asking = asyncio.create_task(exchange(listener.port, request(close=False)))
        await connections_are(listener, 1)
    assert time.monotonic() - started < 3
    await asking


async def test_a_taken_port_is_a_configuration_error(listener: Listener) -> None:
    with pytest.raises(ConfigError, match=str(listener.port)):
        async with listening(build_app(Edge().api), host="127.0.0.1", port=listener.port, limits=LIMITS):
            pass


async def test_nothing_is_left_behind() -> None:
    before = {task for task in asyncio.all_tasks() if not task.done()}
    async with listening(build_app(Edge().api), host="127.0.0.1", port=0, limits=LIMITS) as listener:
        assert status(await exchange(listener.port, request())) == 200
    assert {task for task in asyncio.all_tasks() if not task.done()} == before
    gc.collect()


def test_a_large_answer_that_waits_for_its_reader_is_there_once() -> None:
    """On the event loop of a server. The application's own reference to it counts as nothing."""
    body = b"x" * 8_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def scenario() -> int:
        async with listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
            tracemalloc.start()
            try:
                writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                await reader.readexactly(1)
                taken, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
                writer.transport.abort()
            return taken

    assert uvloop.run(scenario()) < len(body) / 2
