"""Heads that could be read in two ways, and requests that are meant for somebody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from mainspring.api.app import build_app
from mainspring.api.head_checks import names_of, objection
from mainspring.api.limits import Limits
from mainspring.api.listener import Listener, listening
from tests.api.edge import status
from tests.support.exchanges import exchange
from tests.support.service_doubles import TOKEN, Edge


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    hosts = names_of(["127.0.0.1", "https://timers.example.com:8443/", "Box.Local"])
    app = build_app(Edge().api)
    async with listening(app, host="127.0.0.1", port=0, limits=Limits(), hosts=hosts, drain_seconds=1) as listener:
        yield listener


AUTHORIZATION = f"authorization: Bearer {TOKEN}\r\n"
LIST = f"POST /v1/timers/list HTTP/1.1\r\nhost: localhost\r\n{AUTHORIZATION}"
ELSEWHERE = (421, "allow_hosts")
REFUSED = {
    "no host": ("GET /health HTTP/1.1\r\n", 400, "host"),
    "two hosts": ("GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n", 400, "host"),
    "a host that is none": ("GET /health HTTP/1.1\r\nhost: a b\r\n", 400, "host"),
    "two tokens": (
        LIST + AUTHORIZATION,
        400,
        "authorization",
    ),
    "two types": (
        LIST + "content-type: application/json\r\ncontent-type: text/plain\r\n",
        400,
        "content-type",
    ),
    "two keys": (
        LIST.replace("list", "create") + "idempotency-key: a\r\nidempotency-key: b\r\n",
        400,
        "idempotency-key",
    ),
    "an encoded body": (
        LIST + "content-encoding: gzip\r\ncontent-length: 2\r\n",
        415,
        "content-encoding",
    ),
    "another name": ("GET /health HTTP/1.1\r\nhost: evil.example\r\n", *ELSEWHERE),
    "another name in the target": (
        "GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\n",
        421,
        "allow_hosts",
    ),
    "a name that only begins like ours": (
        "GET /health HTTP/1.1\r\nhost: 127.0.0.1.evil.example\r\n",
        421,
        "allow_hosts",
    ),
    "http 1.0 with chunks": (
        LIST.replace("1.1", "1.0") + "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
        400,
        "transfer-encoding",
    ),
    "http 0.9 with an upgrade": (
        "GET /health HTTP/0.9\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n",
        400,
        "HTTP",
    ),
    "http 0.9": ("GET /health\r\n", 400, "HTTP"),
    "http 0.9 with a version": ("GET /health HTTP/0.9\r\nhost: localhost\r\n", 400, "HTTP"),
}


@pytest.mark.parametrize(("head", "expected", "word"), REFUSED.values(), ids=REFUSED)
async def test_a_head_with_two_meanings_or_for_another_server_is_refused_in_clear_words(
    listener: Listener, head: str, expected: int, word: str
) -> None:
    answer = await exchange(listener.port, head.encode() + b"\r\n{}")
    assert status(answer) == expected
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"content-type: application/problem+json" in answer
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert word in told["detail"]


OURS = ["localhost", "LOCALHOST:8700", "127.0.0.1:1", "127.1.2.3", "[::1]:8700", "a.localhost", "localhost."]


@pytest.mark.parametrize("host", [*OURS, "timers.example.com", "timers.example.com:80", "box.local:8700"])
async def test_a_loopback_server_answers_to_its_own_names(listener: Listener, host: str) -> None:
    head = f"GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    assert status(await exchange(listener.port, head.encode())) == 200


async def test_a_whole_url_as_the_target_is_read(listener: Listener) -> None:
    head = b"GET http://localhost/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert status(await exchange(listener.port, head)) == 200


async def test_http_1_0_needs_no_host(listener: Listener) -> None:
    assert status(await exchange(listener.port, b"GET /health HTTP/1.0\r\n\r\n")) == 200


OLD_LIST = LIST.replace("HTTP/1.1", "HTTP/1.0") + "content-length: 2\r\n"
ASIDE = {
    "an upgrade": "connection: upgrade\r\nupgrade: websocket\r\n",
    "an upgrade of a kept connection": "connection: keep-alive, upgrade\r\nupgrade: h2c\r\n",
    "to be kept": "connection: keep-alive\r\n",
    "to be told to go on": "expect: 100-continue\r\n",
}


@pytest.mark.parametrize("asked", ASIDE.values(), ids=ASIDE)
async def test_http_1_0_gets_one_answer_and_the_end_whatever_it_asks_for_besides(
    listener: Listener, asked: str
) -> None:
    answer = await exchange(listener.port, (OLD_LIST + asked + "\r\n{}").encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in answer


async def test_http_1_0_with_an_upgrade_needs_no_host_either(listener: Listener) -> None:
    head = b"GET /health HTTP/1.0\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert status(await exchange(listener.port, head)) == 200


def test_a_server_that_listens_elsewhere_answers_to_every_name() -> None:
    headers = [(b"host", b"anything.example")]
    assert objection("1.1", headers, dict(headers), authority=None, hosts=None) is None
