"""How adapters speak HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from telecom_cart.provider import Unreachable
from telecom_cart.providers.calling import MOST_BYTES, Direct, Method, Patience, Request


class Platform:
    """Answers every request, each a moment later, and counts."""

    def __init__(self) -> None:
        self.connections = 0
        self.is_over = False
        """Connections are closed after the next answer."""
        self.heads: list[bytes] = []
        self.answer = b"HTTP/1.1 200 OK\r\nset-cookie: customer=ann\r\ncontent-length: 2\r\n\r\n{}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await asyncio.sleep(0.01)
                writer.write(self.answer)
                if self.is_over:
                    writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@pytest.fixture
async def platform() -> AsyncIterator[tuple[Platform, str]]:
    platform = Platform()
    async with await asyncio.start_server(platform.serve, "127.0.0.1", 0) as server:
        yield platform, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def direct() -> AsyncIterator[Direct]:
    direct = Direct(Patience(timeout_seconds=5, tries=1))
    yield direct
    await direct.close()


async def test_connections_are_used_again_however_many_there_are(
    platform: tuple[Platform, str], direct: Direct
) -> None:
    served, address = platform

    async def customer() -> None:
        for _ in range(3):
            await direct(Request("GET", f"{address}/"))

    await asyncio.gather(*(customer() for _ in range(40)))
    assert len(served.heads) == 120
    assert served.connections == 40


async def test_what_one_customer_is_told_to_remember_is_not_said_for_another(
    platform: tuple[Platform, str], direct: Direct
) -> None:
    served, address = platform
    for _ in range(2):
        await direct(Request("GET", f"{address}/"))
    assert not any(b"cookie" in head.lower() for head in served.heads)


async def test_a_path_is_sent_as_it_was_written(platform: tuple[Platform, str], direct: Direct) -> None:
    served, address = platform
    await direct(Request("GET", f"{address}/a%2Fb/..%2f%7E?x=%20+%2B"))
    assert served.heads[0].startswith(b"GET /a%2Fb/..%2f%7E?x=%20+%2B HTTP/1.1\r\n")


async def test_a_redirect_is_an_answer(platform: tuple[Platform, str], direct: Direct) -> None:
    served, address = platform
    served.answer = b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    assert (await direct(Request("GET", f"{address}/"))).status == 302
    assert len(served.heads) == 1


async def test_a_platform_that_is_not_there_is_unreachable(direct: Direct) -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreachable, match="No connection"):
        await direct(Request("POST", f"http://127.0.0.1:{port}/", body=b"{}"), may_repeat=False)


async def test_the_whole_exchange_has_one_deadline(platform: tuple[Platform, str]) -> None:
    served, address = platform
    served.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"
    direct = Direct(Patience(timeout_seconds=0.2, tries=1))
    with pytest.raises(Unreachable, match="No answer"):
        await direct(Request("GET", f"{address}/"))
    await direct.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_may_not_be_repeated_is_sent_once_by_every_layer(
    platform: tuple[Platform, str], direct: Direct, method: Method
) -> None:
    served, address = platform
    await direct(Request("GET", f"{address}/"))  # the connection is used again
    served.answer = b""
    served.is_over = True
    with pytest.raises(Unreachable):
        await direct(Request(method, f"{address}/"), may_repeat=False, tries=3)
    assert len(served.heads) == 2


async def test_an_answer_that_does_not_end_is_unreachable_after_a_bound(
    platform: tuple[Platform, str], direct: Direct
) -> None:
    served, address = platform
    served.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n" + b"x" * (MOST_BYTES + 1)
    with pytest.raises(Unreachable, match="more than"):
        await direct(Request("GET", f"{address}/"))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x"])
async def test_an_answer_is_not_unpacked_and_none_that_is_packed_was_asked_for(
    platform: tuple[Platform, str], direct: Direct, encoding: str
) -> None:
    served, address = platform
    body = gzip.compress(b" " * 40_000_000)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"
    served.answer = head.encode() + body
    with pytest.raises(Unreachable, match="compressed"):
        await direct(Request("GET", f"{address}/"))
    assert b"\r\naccept-encoding: identity\r\n" in served.heads[0].lower()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000,
        b"HTTP/1.1 200 " + b"y" * 1_000_000,
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"x" * 1_000_000,
        b"\x00\xff" * 1000,
    ],
    ids=lambda head: head[:40].decode("latin-1").encode("unicode_escape").decode(),
)
async def test_a_head_that_is_none_is_unreachable(platform: tuple[Platform, str], head: bytes) -> None:
    served, address = platform
    served.answer, served.is_over = head, True
    direct = Direct(Patience(timeout_seconds=2, tries=1))
    with pytest.raises(Unreachable):
        await direct(Request("GET", f"{address}/"))
    await direct.close()
