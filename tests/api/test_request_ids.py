"""The ids of a request: in its answer, in every line that is logged on its behalf, and in the access log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mainspring import telemetry
from mainspring.api.app import build_app
from mainspring.api.asgi import AsgiApp, Receive, Scope, Send
from mainspring.api.listener import Listener, listening
from mainspring.timers.messages import CreateTimer, TimerView
from tests.api.edge import LIMITS, request, status
from tests.support.exchanges import call, exchange
from tests.support.json_bodies import payload
from tests.support.service_doubles import TOKEN, Edge, keyed

CANARY = "canary-71c2"
BAD_IDS = ["", "a b", "a" * 129, "\xe9", "a\tb"]
CREATE = "/v1/timers/create"


@pytest.fixture
def edge() -> Edge:
    return Edge()


@pytest.fixture
def app(edge: Edge) -> AsgiApp:
    return build_app(edge.api)


@pytest.fixture
async def logged(edge: Edge) -> AsyncIterator[Listener]:
    """A server with an access log."""
    async with listening(build_app(edge.api), host="127.0.0.1", port=0, limits=LIMITS, access_log=True) as listener:
        yield listener


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "mainspring"):
        yield caplog


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name.startswith("mainspring")]


def header(answer: bytes, name: bytes) -> bytes | None:
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return next((value.strip() for key, _, value in (line.partition(b":") for line in lines) if key == name), None)


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/v1/timers/list"])
async def test_a_correlation_id_comes_back_with_every_answer(app: AsgiApp, listener: Listener, path: str) -> None:
    answer = await call(app, path, method="GET", headers={"x-correlation-id": "order-42", "x-request-id": "r-1"})
    assert (answer.headers["x-correlation-id"], answer.headers["x-request-id"]) == ("order-42", "r-1")
    raw = await exchange(listener.port, request(path=path, headers="x-correlation-id: order-42\r\n"))
    assert header(raw, b"x-correlation-id") == b"order-42"
    assert raw.count(b"x-correlation-id") == 1


async def test_a_refusal_of_the_listener_has_the_correlation_id(listener: Listener) -> None:
    wrong = await exchange(listener.port, request(headers="x-correlation-id: order-42\r\nhost: y\r\n"))
    assert status(wrong) == 400
    assert header(wrong, b"x-correlation-id") == b"order-42"
    broken = (
        b"POST /v1/timers/list HTTP/1.1\r\nhost: x\r\nx-correlation-id: order-42\r\ncontent-length: 2\r\n\x01: \r\n\r\n"
    )
    assert status(await exchange(listener.port, broken)) == 400


@pytest.mark.parametrize("given", BAD_IDS)
async def test_a_correlation_id_of_another_form_is_treated_as_none(app: AsgiApp, given: str) -> None:
    answer = await call(app, "/health", method="GET", headers={"x-correlation-id": given})
    assert "x-correlation-id" not in answer.headers
    assert answer.headers["x-request-id"]


async def test_a_replay_has_the_correlation_id_of_its_own_request(edge: Edge) -> None:
    app = build_app(keyed(edge))

    async def ask(correlation_id: str) -> tuple[str | None, bool]:
        headers = {"idempotency-key": "k", **({"x-correlation-id": correlation_id} if correlation_id else {})}
        answer = await call(app, CREATE, payload(b"1"), headers=headers)
        assert answer.status == 200
        return answer.headers.get("x-correlation-id"), "idempotent-replayed" in answer.headers

    assert await ask("first") == ("first", False)
    assert await ask("second") == ("second", True)
    assert await ask("") == (None, True)


async def test_a_repeat_of_a_request_without_one_gets_its_own(edge: Edge) -> None:
    app = build_app(keyed(edge))
    assert "x-correlation-id" not in (await call(app, CREATE, payload(b"1"), headers={"idempotency-key": "k"})).headers
    again = await call(app, CREATE, payload(b"1"), headers={"idempotency-key": "k", "x-correlation-id": "second"})
    assert (again.headers["idempotent-replayed"], again.headers["x-correlation-id"]) == ("true", "second")


class Talkative:
    """A service that has something to say about each request, now and later."""

    def __init__(self, edge: Edge) -> None:
        self._create = edge.timers.create
        self.later: asyncio.Task[None] | None = None
        self.is_answered = asyncio.Event()

    async def create(self, asked: CreateTimer) -> TimerView:
        telemetry.info("said while it is served", correlation=telemetry.correlation_id())
        self.later = asyncio.create_task(self._say_later())
        return await self._create(asked)

    async def _say_later(self) -> None:
        await self.is_answered.wait()
        telemetry.info("said afterwards", correlation=telemetry.correlation_id())


@pytest.mark.parametrize("key", ["", "k"])
async def test_what_is_logged_on_behalf_of_a_request_has_its_ids_and_what_comes_later_has_not(
    edge: Edge, said: pytest.LogCaptureFixture, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    talkative = Talkative(edge)
    monkeypatch.setattr(edge.timers, "create", talkative.create)
    headers = {"x-correlation-id": "order-42", "x-request-id": "r-1", **({"idempotency-key": key} if key else {})}
    await call(build_app(keyed(edge)), CREATE, payload(b"1"), headers=headers)
    talkative.is_answered.set()
    assert talkative.later is not None
    await talkative.later
    assert fields(said) == [
        {"correlation": "order-42", "request_id": "r-1", "correlation_id": "order-42"},
        {"correlation": ""},
    ]
    assert said.messages[0] == ("said while it is served  correlation=order-42 request_id=r-1 correlation_id=order-42")


async def test_an_unforeseen_error_is_logged_under_the_id_that_the_caller_gets(
    app: AsgiApp, edge: Edge, said: pytest.LogCaptureFixture
) -> None:
    edge.timers.failure = RuntimeError("a bug")
    bare = await call(app, "/v1/timers/list", b"{}")
    await call(app, "/v1/timers/list", b"{}", headers={"x-correlation-id": "order-42"})
    assert fields(said) == [
        {"request_id": bare.headers["x-request-id"], "path": "/v1/timers/list"},
        {"request_id": "order-42", "path": "/v1/timers/list", "correlation_id": "order-42"},
    ]


async def test_an_application_that_fails_is_logged_under_the_id_that_the_caller_gets(
    said: pytest.LogCaptureFixture,
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a bug")

    async with listening(broken, host="127.0.0.1", port=0, limits=LIMITS) as listener:
        answer = await exchange(listener.port, request(headers="x-correlation-id: order-42\r\n"))
        bare = await exchange(listener.port, request())
    assert [status(answer), status(bare)] == [500, 500]
    first, second = fields(said)
    assert (first["request_id"], first["correlation_id"]) == ("order-42", "order-42")
    assert second["request_id"].encode() == header(bare, b"x-request-id")


async def test_the_access_log_has_a_line_for_each_answer_without_what_may_be_secret(
    logged: Listener, said: pytest.LogCaptureFixture
) -> None:
    created = request(
        payload(f'"{CANARY}"'.encode()), path=f"{CREATE}?token={CANARY}", headers="x-correlation-id: o-1\r\n"
    )
    answer = await exchange(logged.port, created)
    await exchange(logged.port, request(path="/nowhere"))
    first, second = (record for record in said.records if record.name == "mainspring.access")
    told = vars(first)["fields"]
    sent = answer.partition(b"\r\n\r\n")[2]
    assert {name: told[name] for name in ("method", "path", "status", "bytes", "client", "request_id")} == {
        "method": "POST",
        "path": CREATE,
        "status": 200,
        "bytes": len(sent),
        "client": "127.0.0.1",
        "request_id": "o-1",
    }
    assert told["correlation_id"] == "o-1"
    assert told["duration_ms"] >= 0
    assert first.getMessage().startswith(f"POST {CREATE} 200  method=POST")
    assert vars(second)["fields"]["status"] == 404
    assert CANARY not in said.text
    assert TOKEN not in said.text


async def test_the_access_log_has_answers_by_key_and_refusals(edge: Edge, said: pytest.LogCaptureFixture) -> None:
    async with listening(build_app(keyed(edge)), host="127.0.0.1", port=0, limits=LIMITS, access_log=True) as listener:
        key = "idempotency-key: k\r\nx-request-id: r-1\r\n"
        await exchange(listener.port, request(payload(b"1"), path=CREATE, headers=key))
        await exchange(listener.port, request(headers="host: y\r\n"))
        await exchange(listener.port, b"nonsense\r\n\r\n")
    by_key, twice, nonsense = fields(said)
    assert (by_key["status"], by_key["request_id"], by_key["bytes"] > 100) == (200, "r-1", True)
    assert (twice["status"], nonsense["code"]) == (400, "invalid_input")


async def test_a_long_path_is_cut_in_the_access_log(logged: Listener, said: pytest.LogCaptureFixture) -> None:
    await exchange(logged.port, request(path="/" + "x" * 5000))
    assert len(said.messages[0]) < 700


async def test_without_the_setting_there_is_no_access_log(listener: Listener, said: pytest.LogCaptureFixture) -> None:
    assert status(await exchange(listener.port, request(path="/nowhere"))) == 404
    assert said.records == []
