"""Calls that leave through a proxy, and authorities that the system does not know."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from mainspring.config import Config, load_config
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.egress import Egress, Proxy, egress_of
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.errors import ConfigError
from mainspring.testing.target import TargetServer
from tests.delivery.resolver import Resolver
from tests.support.raw_server import raw_server

AUTHORITY = trustme.CA()


def server_context(name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(name).configure_cert(context)
    return context


def ca_file(folder: Path) -> str:
    path = folder / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return str(path)


class TestProxy:
    """Opens tunnels to one port, whatever name is asked for, and answers plain requests itself."""

    __test__ = False

    def __init__(self, port: int, *, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.heads: list[str] = []
        self._port = port
        self._answer = answer

    @asynccontextmanager
    async def open(self, credentials: str = "") -> AsyncIterator[str]:
        async with raw_server(self._serve) as address:
            yield f"http://{credentials}{address}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if not self.heads[-1].startswith("CONNECT "):
            writer.write(b"HTTP/1.1 203 By proxy\r\ncontent-length: 0\r\n\r\n")
            await reader.read()
            return
        writer.write(self._answer)
        there, onward = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(_pipe(reader, onward), _pipe(there, writer))
        finally:
            onward.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def send(url: str, egress: Egress, *, times: int = 1, guard: Guard | None = None) -> list[Reply]:
    async with Sender(guard=guard or Guard(), egress=egress) as sender:
        return [await sender.send(Call("POST", url, (), b"{}", 5_000)) for _ in range(times)]


async def test_https_goes_through_a_tunnel_and_the_certificate_is_that_of_the_target(tmp_path: Path) -> None:
    async with TargetServer(tls=server_context("api.example")) as target:
        proxy = TestProxy(target.port)
        async with proxy.open("user:p%40ss@") as url:
            egress = Egress(ca_file=ca_file(tmp_path), proxy_url=url)
            replies = await send("https://api.example/pay", egress, times=3)
            assert [reply.status for reply in replies] == [200, 200, 200]
            [head] = proxy.heads
            assert head.startswith("CONNECT api.example:443 HTTP/1.1\r\nhost: api.example:443\r\n")
            basic = base64.b64encode(b"user:p@ss").decode()
            assert f"proxy-authorization: Basic {basic}\r\n" in head
            assert "proxy-authorization" not in target.requests[0].headers
            [other] = await send("https://other.example/", egress)
            assert (other.problem, other.sent) == ("network", False)
            assert "certificate verify failed" in other.detail.lower().replace("_", " ")


async def test_http_asks_the_proxy_for_the_whole_url() -> None:
    proxy = TestProxy(0)
    async with proxy.open() as url:
        [reply] = await send("http://api.example:8080/pay?n=1", Egress(proxy_url=url))
    assert reply.status == 203
    assert proxy.heads[0].startswith("POST http://api.example:8080/pay?n=1 HTTP/1.1\r\nhost: api.example:8080\r\n")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the answer 407 from the proxy"),
        (b"nonsense\r\n\r\n", "something other than HTTP from the proxy"),
        (b"x" * 20_000, "more than 16384 bytes"),
    ],
)
async def test_what_a_proxy_refuses_was_never_sent(answer: bytes, detail: str) -> None:
    async with TargetServer() as target, TestProxy(target.port, answer=answer).open() as url:
        [reply] = await send("https://api.example/", Egress(proxy_url=url))
        assert (reply.problem, reply.sent, reply.status) == ("network", False, None)
        assert detail in reply.detail
        assert not target.requests


async def test_a_proxy_that_is_not_there_is_named_as_no_connection() -> None:
    [reply] = await send("https://api.example/", Egress(proxy_url="http://127.0.0.1:9"))
    assert (reply.problem, reply.sent) == ("network", False)


async def test_the_guard_judges_addresses_and_the_proxy_resolves_names(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, ["10.0.0.1"])
    proxy = TestProxy(0)
    async with proxy.open() as url:
        egress = Egress(proxy_url=url)
        for forbidden in ("http://10.0.0.1/", "http://169.254.169.254/", "http://localhost/"):
            [reply] = await send(forbidden, egress)
            assert (reply.problem, reply.sent) == ("refused", False)
        assert not proxy.heads
        [named] = await send("http://inside.example/", egress)
        assert named.status == 203
    assert resolver.lookups == 0


async def test_this_machine_is_called_directly(target: TargetServer) -> None:
    guard = Guard(allow_loopback=True)
    [reply] = await send(target.url + "/", Egress(proxy_url="http://127.0.0.1:9"), guard=guard)
    assert reply.status == 200


async def test_an_authority_of_ones_own_is_trusted_by_setting_only(tmp_path: Path) -> None:
    async with TargetServer(tls=server_context("localhost")) as target:
        url, guard = f"https://localhost:{target.port}/", Guard(allow_loopback=True)
        [trusted] = await send(url, egress_of(Config(ca_file=ca_file(tmp_path))), guard=guard)
        [unknown] = await send(url, egress_of(Config()), guard=guard)
    assert (trusted.status, unknown.problem) == (200, "network")


async def test_proxy_variables_of_the_environment_are_ignored(
    target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    [reply] = await send(target.url + "/", egress_of(Config()), guard=Guard(allow_loopback=True))
    assert reply.status == 200


def test_wrong_settings_are_refused_when_they_are_read_and_no_password_is_shown(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    for name, value, detail in (
        ("ca_file", str(tmp_path / "none.pem"), "Expected a readable file"),
        ("ca_file", str(tmp_path / "no.pem"), "Expected certificates in PEM"),
        ("proxy_url", "https://proxy.example:3128", "Expected http://host:port"),
        ("proxy_url", "http://user:s3cret@proxy.example", "Expected http://host:port"),
    ):
        with pytest.raises(ConfigError, match=detail) as refused:
            load_config({name: value}, {})
        assert "s3cret" not in str(refused.value)
    assert Proxy("http://proxy.example:3128").target.destination == "proxy.example:3128"
