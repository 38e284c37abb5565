"""Calls that go wrong: every failure is a reply that says what happened, and whether anything can have happened."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from mainspring.delivery.call import DETAIL_LIMIT, Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.testing.target import Answer, TargetServer
from tests.delivery.resolver import Resolver
from tests.support.raw_server import raw_server


def post(url: str, *, timeout_ms: int = 10_000) -> Call:
    return Call("POST", url, (("content-type", "application/json"),), b"{}", timeout_ms)


def ending(reply: Reply) -> tuple[str, bool]:
    assert reply.status is None
    assert reply.detail.startswith("Expected ")
    assert ", got" in reply.detail
    return reply.problem, reply.sent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that never accepts: the queue of its listener is full, so the system drops what comes."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def hasty() -> AsyncIterator[Sender]:
    async with Sender(guard=Guard(allow_loopback=True), connect_seconds=0.2) as sender:
        yield sender


async def test_a_refused_connection_sent_nothing(sender: Sender) -> None:
    reply = await sender.send(post(f"http://127.0.0.1:{free_port()}/"))
    assert ending(reply) == ("network", False)
    assert "Connection refused" in reply.detail


async def test_a_black_hole_ends_at_the_connect_deadline(hasty: Sender) -> None:
    with black_hole() as url:
        reply = await hasty.send(post(url))
    assert ending(reply) == ("timeout", False)
    assert 150 < reply.duration_ms < 2000
    assert "within 0.2 s" in reply.detail


async def test_the_call_deadline_also_bounds_connecting(sender: Sender) -> None:
    with black_hole() as url:
        reply = await sender.send(post(url, timeout_ms=100))
    assert ending(reply) == ("timeout", False)
    assert reply.duration_ms < 2000


async def test_a_name_without_address_sent_nothing(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    reply = await sender.send(post("http://missing.example/"))
    assert ending(reply) == ("network", False)
    assert reply.detail.endswith("got: Name or service not known")


async def test_a_resolver_that_hangs_ends_at_the_connect_deadline(
    hasty: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Resolver(monkeypatch):
        assert ending(await hasty.send(post("http://dead.example/"))) == ("timeout", False)


async def test_a_forbidden_target_is_refused(target: TargetServer) -> None:
    async with Sender(guard=Guard()) as sender:
        for url in (target.url, "http://169.254.169.254/latest", f"http://localhost:{target.port}", "nonsense:"):
            assert ending(await sender.send(post(url))) == ("refused", False)
    assert not target.connections


async def test_an_answer_of_the_resolver_that_changes_is_checked_again(
    target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public when it is looked at, and then points inside: no connection is made."""
    async with Sender(guard=Guard(allow=["127.0.0.2/32"])) as sender:
        resolver = Resolver(monkeypatch, ["127.0.0.1"])
        reply = await sender.send(post(f"http://rebind.example:{target.port}/"))
        assert ending(reply) == ("refused", False)
        assert resolver.lookups == 1
    assert not target.connections


async def test_the_checked_address_is_dialled_without_asking_again(
    sender: Sender, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
    assert (await sender.send(post(f"http://rebind.example:{target.port}/"))).status == 200
    assert resolver.lookups == 1
    assert target.requests[0].headers["host"] == f"rebind.example:{target.port}"


async def test_the_next_address_is_tried_when_one_does_not_answer(
    sender: Sender, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Resolver(monkeypatch, ["127.0.0.99", "::1", "127.0.0.1"])
    assert (await sender.send(post(f"http://many.example:{target.port}/"))).status == 200


@pytest.mark.parametrize("behaviour", ["reset", "close", "close-after-headers"])
async def test_a_connection_lost_after_the_request_is_reported_and_not_repeated(
    sender: Sender, target: TargetServer, behaviour: str
) -> None:
    assert ending(await sender.send(post(f"{target.url}/{behaviour}"))) == ("network", True)
    assert len(target.requests) == 1


@pytest.mark.parametrize("behaviour", ["reset", "close"])
async def test_a_reused_connection_that_is_lost_is_not_repeated_either(
    sender: Sender, target: TargetServer, behaviour: str
) -> None:
    assert (await sender.send(post(target.url))).status == 200
    assert ending(await sender.send(post(f"{target.url}/{behaviour}"))) == ("network", True)
    assert len(target.requests) == 2
    assert target.connections == 1


@pytest.mark.parametrize("behaviour", ["garbage", "continue-spam", "endless-headers"])
async def test_what_is_no_answer_is_unreadable(sender: Sender, target: TargetServer, behaviour: str) -> None:
    assert ending(await sender.send(post(f"{target.url}/{behaviour}"))) == ("unreadable", True)
    await target.wait_for_open(0)


async def test_no_answer_ends_at_the_deadline(sender: Sender, target: TargetServer) -> None:
    reply = await sender.send(post(target.url + "/hang", timeout_ms=100))
    assert ending(reply) == ("timeout", True)
    assert reply.detail == "Expected a whole answer within 0.1 s, got none"
    assert 95 <= reply.duration_ms < 1000
    await target.wait_for_open(0)


async def test_a_dripping_answer_ends_at_the_deadline(sender: Sender, target: TargetServer) -> None:
    target.script("/", Answer(behaviour="drip", body=b"x" * 1000, drip_seconds=0.01))
    reply = await sender.send(post(target.url, timeout_ms=150))
    assert ending(reply) == ("timeout", True)
    assert 145 <= reply.duration_ms < 1000
    await target.wait_for_open(0)


async def test_deadlines_are_kept_apart(sender: Sender, target: TargetServer) -> None:
    waits = (60, 300, 120, 180, 60)
    replies = await asyncio.gather(*(sender.send(post(target.url + "/hang", timeout_ms=wait)) for wait in waits))
    for wait, reply in zip(waits, replies, strict=True):
        assert ending(reply) == ("timeout", True)
        assert wait - 5 <= reply.duration_ms < wait + 100


async def test_a_slow_answer_within_the_deadline_counts(sender: Sender, target: TargetServer) -> None:
    assert (await sender.send(post(target.url + "/delay/0.1", timeout_ms=5000))).status == 200


async def test_a_gigabyte_is_not_read(sender: Sender, target: TargetServer) -> None:
    reply = await sender.send(post(target.url + "/huge"))
    assert (reply.status, reply.truncated, len(reply.body)) == (200, True, 65_536)
    await target.wait_for_open(0)
    assert target.bytes_written < 50_000_000


async def test_a_gzip_bomb_is_harmless(sender: Sender, target: TargetServer) -> None:
    target.script("/", Answer(behaviour="gzip-bomb", size=30_000_000))
    reply = await sender.send(post(target.url))
    assert (reply.status, reply.truncated, reply.body) == (200, True, bytes(65_536))


@pytest.mark.parametrize("path", ["/members", "/half", "/whole"])
async def test_an_answer_is_not_kept_until_the_garbage_is_collected(path: str, target: TargetServer) -> None:
    """A server collects rarely, and many answers of 1 MB that nobody wants add up meanwhile."""
    packed = (("content-encoding", "gzip"),)
    target.script("/members", Answer(body=gzip.compress(b"") * 40_000, headers=packed))
    target.script("/half", Answer(behaviour="huge", size=2_000_000))
    target.script("/whole", Answer(body=b"x" * 900_000, close=True))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        async with Sender(guard=Guard(allow_loopback=True), answer_bytes=1_000_000) as sender:
            await sender.send(post(target.url + path))
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(20):
                await sender.send(post(target.url + path))
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert after - before < 5_000_000


async def test_a_thousand_failures_leak_no_descriptor(hasty: Sender, target: TargetServer) -> None:
    closed = f"http://127.0.0.1:{free_port()}/"
    target.script("/part", Answer(behaviour="close-after-headers"))
    urls = [closed, target.url + "/reset", target.url + "/garbage", target.url + "/part", "http://10.0.0.1/"]
    await asyncio.gather(*(hasty.send(post(url)) for url in urls))
    await target.wait_for_open(0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        replies = await asyncio.gather(*(hasty.send(post(url)) for url in urls * 10))
        assert all(reply.problem for reply in replies)
    await target.wait_for_open(0)
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert not hasty._pool._open


async def test_cancelling_while_connecting_leaks_no_descriptor(sender: Sender) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with black_hole() as url:
        waiting = [asyncio.create_task(sender.send(post(url))) for _ in range(20)]
        await asyncio.sleep(0.02)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(task.cancelled() for task in waiting)
    await asyncio.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_what_a_receiver_sends_never_makes_a_long_or_unprintable_detail(sender: Sender) -> None:
    said = b"\x9b2J\xad" + b"x" * 60_000
    heads = (b"content-encoding: " + said, b"transfer-encoding: " + said, said + b": x", b"content-length: " + said)
    for head in heads:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes = head) -> None:
            await reader.readuntil(b"{}")
            writer.write(b"HTTP/1.1 200 OK\r\n%b\r\nconnection: close\r\n\r\nbody" % head)

        async with raw_server(answer) as url:
            reply = await sender.send(post(f"http://{url}/"))
        assert reply.problem in ("unreadable", "network")
        assert len(reply.detail) <= DETAIL_LIMIT
        assert reply.detail.isprintable()


async def test_a_url_from_a_receiver_is_repeated_in_few_words(sender: Sender) -> None:
    reply = await sender.send(post(f"http://{'x' * 8000}:1:2/"))
    assert reply.problem == "refused"
    assert len(reply.detail) <= DETAIL_LIMIT
