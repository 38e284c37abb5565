from __future__ import annotations

import asyncio
import os
import ssl

import pytest
import trustme

from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.testing.target import Answer, TargetServer
from tests.delivery.resolver import Resolver
from tests.support.raw_server import raw_server

AUTHORITY = trustme.CA()


def server_context(*names: str, authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


async def call(url: str, *, times: int = 1, body: bytes = b"{}") -> list[Reply]:
    async with Sender(guard=Guard(allow_loopback=True), ssl_context=client_context()) as sender:
        return [await sender.send(Call("POST", url, (), body, 10_000)) for _ in range(times)]


async def test_a_trusted_certificate_for_the_name_is_accepted_and_the_connection_reused() -> None:
    async with TargetServer(tls=server_context("localhost")) as target:
        replies = await call(f"https://localhost:{target.port}/", times=3)
        assert [reply.status for reply in replies] == [200, 200, 200]
        assert target.connections == 1


async def test_the_name_of_the_url_is_sent_and_checked_although_an_address_is_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = server_context("api.example")
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with TargetServer(tls=context) as target:
        Resolver(monkeypatch, ["127.0.0.1"])
        (reply,) = await call(f"https://api.example:{target.port}/")
        assert reply.status == 200
        assert names == ["api.example"]
        assert target.requests[0].headers["host"] == f"api.example:{target.port}"


async def test_a_certificate_for_an_address_is_accepted() -> None:
    async with TargetServer(tls=server_context("127.0.0.1")) as target:
        (reply,) = await call(target.url)
        assert reply.status == 200


@pytest.mark.parametrize(
    "context",
    [server_context("other.example"), server_context("localhost", authority=trustme.CA())],
    ids=["wrong-host", "untrusted"],
)
async def test_a_certificate_that_does_not_fit_sends_nothing(context: ssl.SSLContext) -> None:
    async with TargetServer(tls=context) as target:
        (reply,) = await call(f"https://localhost:{target.port}/")
        assert (reply.problem, reply.sent, reply.status) == ("network", False, None)
        assert "certificate verify failed" in reply.detail.lower().replace("_", " ")
        assert not target.requests


async def test_a_target_that_does_not_speak_tls_gets_nothing() -> None:
    received = b""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        received = await reader.read(65_536)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(plain) as address:
        (reply,) = await call(f"https://{address}/")
    assert (reply.problem, reply.sent) == ("network", False)
    assert b"POST" not in received


async def test_a_handshake_that_never_ends_is_cut_at_the_connect_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    guard = Guard(allow_loopback=True)
    async with (
        raw_server(silent) as address,
        Sender(guard=guard, connect_seconds=0.2, ssl_context=client_context()) as sender,
    ):
        reply = await sender.send(Call("POST", f"https://{address}/", (), b"", 10_000))
        assert (reply.problem, reply.sent) == ("timeout", False)


@pytest.mark.parametrize("behaviour", ["close", "close-after-headers"])
async def test_a_connection_lost_after_the_request_is_reported(behaviour: str) -> None:
    async with TargetServer(tls=server_context("127.0.0.1")) as target:
        (reply,) = await call(f"{target.url}/{behaviour}")
        assert (reply.problem, reply.sent) == ("network", True)


async def test_large_bodies_pass() -> None:
    async with TargetServer(tls=server_context("127.0.0.1")) as target:
        target.script("/", Answer(body=b"y" * 60_000))
        replies = await call(target.url, times=2, body=b"x" * 2_000_000)
        assert [(reply.status, len(reply.body)) for reply in replies] == [(200, 60_000)] * 2
        assert len(target.requests[1].body) == 2_000_000
        assert target.connections == 1


async def test_a_target_that_closes_idle_connections_costs_nothing() -> None:
    async with TargetServer(tls=server_context("127.0.0.1")) as target:
        async with Sender(guard=Guard(allow_loopback=True), ssl_context=client_context()) as sender:
            for _ in range(3):
                assert (await sender.send(Call("POST", target.url, (), b"", 10_000))).status == 200
                await target.drop_connections()
                await asyncio.sleep(0.02)
        assert target.connections == 3


async def test_a_connection_that_was_idle_for_a_while_is_still_used() -> None:
    async with TargetServer(tls=server_context("127.0.0.1")) as target:
        async with Sender(guard=Guard(allow_loopback=True), ssl_context=client_context()) as sender:
            for _ in range(2):
                assert (await sender.send(Call("POST", target.url, (), b"", 10_000))).status == 200
                await asyncio.sleep(0.15)
        assert target.connections == 1


async def test_failed_handshakes_leak_no_descriptor() -> None:
    async with TargetServer(tls=server_context("other.example")) as target:
        url = f"https://localhost:{target.port}/"
        await call(url)
        await target.wait_for_open(0)
        before = len(os.listdir("/proc/self/fd"))
        await call(url, times=50)
        await target.wait_for_open(0)
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_the_systems_certificates_are_used_by_default() -> None:
    async with TargetServer(tls=server_context("127.0.0.1")) as target:
        async with Sender(guard=Guard(allow_loopback=True)) as sender:
            reply = await sender.send(Call("POST", target.url, (), b"", 10_000))
        assert (reply.problem, reply.sent) == ("network", False)
