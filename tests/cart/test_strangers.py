"""What comes from elsewhere: pages of other sites, names that are not ours, peers that take and take."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from telecom_cart.loglines import formatter
from telecom_cart.simulators.server import serving as simulating
from tests.cart.processes import running
from tests.cart.served_cart import Served, served
from tests.servers.process import free_port
from tests.support.exchanges import exchange


@pytest.fixture
async def cart() -> AsyncIterator[Served]:
    async with served() as cart:
        yield cart


FOREIGN = (
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "http://cart"},
    {"origin": "https://evil.example"},
    {"origin": "http://cart.evil.example"},
    {"origin": "http://cart:81"},
    {"origin": "null"},
    {"origin": "cart"},
    {"origin": ""},
)
OURS: tuple[dict[str, str], ...] = (
    {},
    {"origin": "http://cart"},
    {"origin": "https://cart"},
    {"origin": "http://CART"},
    {"sec-fetch-site": "same-origin", "origin": "https://shop.example"},
    {"sec-fetch-site": "none"},
)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_page_of_another_site_changes_nothing_and_orders_nothing(cart: Served, headers: dict[str, str]) -> None:
    await cart.add()
    before = (await cart.cart())["version"]
    for method, path in (("POST", "/checkout"), ("DELETE", ""), ("POST", "/items"), ("PUT", "/province")):
        got = await cart.client.request(method, f"/v1/carts/ann{path}", headers=headers, content=b"")
        assert (got.status_code, got.json()["code"]) == (403, "CROSS_SITE")
    assert (await cart.cart())["version"] == before
    assert cart.platform.orders == []


@pytest.mark.parametrize("headers", OURS, ids=str)
async def test_a_page_of_this_site_and_a_program_may_order(cart: Served, headers: dict[str, str]) -> None:
    await cart.add()
    got = await cart.client.post("/v1/carts/ann/checkout", headers=headers)
    assert got.status_code == 200


async def test_reading_is_not_changing(cart: Served) -> None:
    assert (await cart.client.get("/health", headers={"sec-fetch-site": "cross-site"})).status_code == 200


@pytest.mark.parametrize("slash", ["%2F", "%2f", "%5C", "%5c"])
async def test_an_encoded_slash_is_no_slash(cart: Served, slash: str) -> None:
    await cart.add()
    got = await cart.client.post(f"/v1/carts/ann{slash}checkout")
    assert got.status_code == 404
    assert cart.platform.orders == []


async def test_a_small_request_gets_no_large_answer(cart: Served) -> None:
    fields = {str(n): 0 for n in range(1500)}
    got = await cart.client.post("/v1/carts/ann/items", json=fields)
    assert got.status_code == 400
    assert len(got.content) < 8_000
    assert "more" in got.json()["errors"][-1]["detail"]
    got = await cart.client.post("/v1/carts/ann/items", json={"é" * 2_500: 0})
    assert len(got.content) < 8_000


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    command = ["serve", "--store", "memory://", "--provider", "double", "--port", str(port)]
    with running(command, tmp_path_factory.mktemp("cart"), until="The cart is at"):
        yield port


HEAD = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * 20_000, b"431"),
        (HEAD + b"x: " + b"y" * 20_000, b"431"),
        (HEAD + b"x: y\r\n" * 200, b"431"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 4_000, b""),
        (b"GET /health HTTP/1.1\r\nhost: evil.example\r\n\r\n", b"421"),
        (HEAD, b"408"),
        (HEAD + b"content-length: 5\r\n\r\n{", b""),
        (b"", b"408"),
    ],
    ids=["url", "header", "headers", "trailers", "another host", "half a head", "half a body", "silence"],
)
async def test_a_peer_is_bounded_in_what_it_sends_and_in_time(port: int, sent: bytes, status: bytes) -> None:
    answer = await exchange(port, sent, seconds=30)
    assert answer.startswith(b"HTTP/1.1 " + status if status else b"")


@pytest.mark.slow
async def test_silent_connections_do_not_keep_others_out(port: int) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(900)]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            for _ in range(5):
                assert (await client.get("/health")).status_code == 200
    finally:
        for _, writer in silent:
            writer.close()


def test_a_log_line_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "a\n2026 INFO forged\x1b[31m\u202e", None, None)
    record.correlation_id = "-"
    line = formatter().format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\u202e" not in line


@pytest.mark.parametrize("platform", ["salesforce", "shopify"])
async def test_a_page_of_another_site_does_not_steer_a_simulator(platform: str) -> None:
    async with simulating(platform) as (simulation, address), httpx.AsyncClient(base_url=address) as client:
        body = json.dumps({"verb": "*", "kind": "down"})
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert (await client.post("/_sim/faults", content=body, headers=headers)).status_code == 403
        assert (await client.post("/_sim/faults", content=body, headers={"host": "evil.example"})).status_code == 421
        assert simulation.faults.by_verb == {}
        assert (await client.post("/_sim/faults", content=body)).status_code == 200
