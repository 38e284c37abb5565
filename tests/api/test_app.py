"""The HTTP edge over services in memory: every route of the table, every kind of refusal."""

from __future__ import annotations

import dataclasses
import logging
import re

import msgspec
import pytest

from mainspring.api.app import all_routes, build_app
from mainspring.api.asgi import AsgiApp
from mainspring.api.routes import Route
from mainspring.api.tokens import token_digest
from mainspring.cluster.wakeups import PATH, Wake
from mainspring.errors import (
    ConfigError,
    FieldError,
    InvalidInput,
    MainspringError,
    RateLimited,
    StoreUnavailable,
    UnsafeTarget,
)
from mainspring.fetches.errors import FetchError
from mainspring.wire.problems import STATUSES
from tests.support.exchanges import Body, call
from tests.support.json_bodies import NOT_STRICT, payload
from tests.support.service_doubles import TOKEN, Edge

ROUTES = all_routes(Edge().api)
POSTS = [route for route in ROUTES if route.method == "POST"]
CLOSED = [route for route in ROUTES if not route.is_open]


def example(route: Route) -> bytes:
    return msgspec.json.encode(route.example) if route.example is not None else b""


@pytest.fixture
def edge() -> Edge:
    return Edge()


@pytest.fixture
def app(edge: Edge) -> AsgiApp:
    return build_app(edge.api)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_every_route_answers_its_own_example(app: AsgiApp, route: Route) -> None:
    answer = await call(app, route.path, example(route), method=route.method)
    assert answer.status == 200
    assert answer.headers["content-type"] == route.content_type
    assert answer.headers["content-length"] == str(len(answer.body))


BAD_TOKENS = {
    "none": None,
    "wrong": "Bearer wrong",
    "empty": "Bearer ",
    "nothing": "",
    "scheme": f"Basic {TOKEN}",
    "no space": f"Bearer{TOKEN}",
    "twice": f"Bearer Bearer {TOKEN}",
    "prefix": f"Bearer {TOKEN[:-1]}",
    "longer": f"Bearer {TOKEN}x",
    "not ascii": "Bearer \xff\xfe",
}


@pytest.mark.parametrize("header", BAD_TOKENS.values(), ids=BAD_TOKENS)
@pytest.mark.parametrize("route", CLOSED, ids=lambda route: route.path)
async def test_without_the_token_nothing_is_read(app: AsgiApp, edge: Edge, route: Route, header: str | None) -> None:
    body = Body(b"not even JSON")
    headers = {} if header is None else {"authorization": header}
    answer = await call(app, route.path, body, method=route.method, token=None, headers=headers)
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert not body.was_read
    assert edge.timers.calls == 0


async def test_only_health_and_the_reference_are_open() -> None:
    assert {route.path for route in ROUTES if route.is_open} == {"/health", "/openapi.json", "/docs", "/"}


@pytest.mark.parametrize("token", [TOKEN, "an-older-token"])
async def test_each_of_several_tokens_is_let_in(app: AsgiApp, token: str) -> None:
    assert (await call(app, "/ready", method="GET", headers={"authorization": f"bearer {token}"})).status == 200


@pytest.mark.parametrize("digest", [b"", token_digest("")])
async def test_nobody_is_let_in_without_a_secret_whatever_the_secret_is(digest: bytes) -> None:
    woken: list[Wake] = []
    api = dataclasses.replace(Edge().api, wake=woken.append, cluster_digest=digest, token_digests=(digest,))
    app = build_app(api)
    for shown in ("Bearer ", "Bearer  ", "bearer \t", "Bearer", ""):
        for path in (PATH, "/v1/timers/get"):
            assert (await call(app, path, b"{}", headers={"authorization": shown})).status == 401
    assert woken == []


@pytest.mark.parametrize("route", POSTS, ids=lambda route: route.path)
async def test_bad_json_is_refused_on_every_route(app: AsgiApp, edge: Edge, route: Route) -> None:
    for name, body in NOT_STRICT.items():
        answer = await call(app, route.path, body)
        assert (answer.status, answer.code) == (400, "invalid_input"), name
    assert edge.timers.calls == 0


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_another_method_is_refused_and_told_which_is_right(app: AsgiApp, route: Route) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD", "BREW"):
        if method == route.method or (route.method == "GET" and method == "HEAD"):
            continue
        answer = await call(app, route.path, method=method)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert route.method in answer.headers["allow"]


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/timers", "/v1/timers/create/", "//docs", "/V1/timers/create", "/\x00", ""]
)
async def test_an_unknown_path_is_not_found(app: AsgiApp, path: str) -> None:
    answer = await call(app, path)
    assert (answer.status, answer.code) == (404, "not_found")


async def test_a_mistyped_path_is_answered_with_the_one_that_was_meant_if_the_token_is_right(app: AsgiApp) -> None:
    meant = "Expected one of the paths in /openapi.json; did you mean /v1/timers/create?"
    assert meant in (await call(app, "/v1/timers/creat")).body.decode()
    assert "did you mean" not in (await call(app, "/v1/timers/creat", token=None)).body.decode()


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ('application/json;charset="utf-8"', 200),
        ("application/json; charset=latin1", 415),
        ("application/json, text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("", 415),
    ],
)
async def test_only_json_in_utf_8_is_read(app: AsgiApp, content_type: str, status: int) -> None:
    answer = await call(app, "/v1/timers/create", payload(b"1"), headers={"content-type": content_type})
    assert answer.status == status


async def test_a_body_without_a_content_type_is_read_as_json(app: AsgiApp) -> None:
    sent: list[int] = []

    async def send(message: object) -> None:
        if isinstance(message, dict) and "status" in message:
            sent.append(message["status"])

    headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/timers/create", "headers": headers}
    await app(scope, Body(payload(b"1")).receive, send)
    assert sent == [200]


async def test_a_body_over_the_limit_is_refused_by_its_length_before_it_is_read(app: AsgiApp) -> None:
    body = Body(b"")
    answer = await call(app, "/v1/timers/create", body, headers={"content-length": "1000001"})
    assert (answer.status, answer.code) == (413, "too_large")
    assert not body.was_read


@pytest.mark.parametrize("chunks", [(b" " * 1_000_001,), (b" " * 600_000, b" " * 600_000, b"{}")])
async def test_a_body_over_the_limit_is_refused_while_it_is_read(app: AsgiApp, chunks: tuple[bytes, ...]) -> None:
    assert (await call(app, "/v1/timers/create", Body(*chunks))).status == 413


async def test_a_body_at_the_limit_is_read(app: AsgiApp) -> None:
    body = payload(b"1")
    answer = await call(app, "/v1/timers/create", Body(b" " * (1_000_000 - len(body)), body))
    assert answer.status == 200


async def test_a_client_that_leaves_in_the_middle_gets_no_answer_and_changes_nothing(app: AsgiApp, edge: Edge) -> None:
    assert (await call(app, "/v1/timers/create", Body(b'{"timerId":', cut=True))).status == 0
    assert edge.timers.calls == 0


async def test_wrong_fields_are_named_by_pointer(app: AsgiApp) -> None:
    answer = await call(app, "/v1/timers/create", b'{"timerId":1,"colour":"red"}', headers={"x-request-id": "r-1"})
    told = answer.json()
    assert {item["pointer"] for item in told["errors"]} == {"/timerId", "/colour", "/callbackUrl"}
    assert told["type"] == "urn:mainspring:problem:invalid-input"
    assert told["status"] == 400
    assert told["retryable"] is False
    assert told["requestId"] == "r-1" == answer.headers["x-request-id"]


def every_error(root: type[MainspringError] = MainspringError) -> list[type[MainspringError]]:
    """Those that leave a module of errors, whatever else was imported before."""
    found = [error for child in root.__subclasses__() for error in (child, *every_error(child))]
    return [error for error in found if error.__module__.endswith(".errors")]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.code)
async def test_every_error_has_a_status(app: AsgiApp, edge: Edge, error: type[MainspringError]) -> None:
    edge.timers.failure = error()
    answer = await call(app, "/v1/timers/list", b"{}")
    # Of the start; of the guard, which callers meet as a wrong field; and of a fetch, which they meet as its result.
    if issubclass(error, (ConfigError, UnsafeTarget, FetchError)):
        assert answer.code == "internal"
        return
    assert answer.status == STATUSES[error.code][0]
    assert answer.code == error.code
    assert answer.json()["retryable"] is error.retryable


@pytest.mark.parametrize("error", [RateLimited(), StoreUnavailable()], ids=["429", "503"])
async def test_who_should_come_back_is_told_when(app: AsgiApp, edge: Edge, error: MainspringError) -> None:
    edge.timers.failure = error
    answer = await call(app, "/v1/timers/list", b"{}")
    assert int(answer.headers["retry-after"]) >= 1


async def test_the_errors_of_a_service_keep_their_pointers(app: AsgiApp, edge: Edge) -> None:
    edge.timers.failure = InvalidInput("Expected one time", errors=(FieldError("/executeAt", "one of two"),))
    answer = await call(app, "/v1/timers/list", b"{}")
    assert answer.json()["errors"] == [{"pointer": "/executeAt", "detail": "one of two"}]


async def test_an_unforeseen_error_tells_nothing_but_is_logged(
    app: AsgiApp, edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    edge.timers.failure = RuntimeError("password=hunter2")
    with caplog.at_level(logging.ERROR, "mainspring.api"):
        answer = await call(app, "/v1/timers/list", b"{}")
    assert (answer.status, answer.code) == (500, "internal")
    assert b"hunter2" not in answer.body
    assert "hunter2" in caplog.text


async def test_not_ready_says_why(app: AsgiApp, edge: Edge) -> None:
    edge.not_ready = StoreUnavailable("the disk is full")
    answer = await call(app, "/ready", method="GET")
    assert (answer.status, answer.json()["detail"]) == (503, "the disk is full")


async def test_health_answers_without_a_token(app: AsgiApp) -> None:
    answer = await call(app, "/health", method="GET", token=None)
    assert answer.json() == {"status": "ok", "version": "0.0.0"}


@pytest.mark.parametrize("name", ["x-request-id", "x-correlation-id"])
async def test_a_request_id_is_taken_over(app: AsgiApp, name: str) -> None:
    answer = await call(app, "/health", method="GET", headers={name: "a-b_c.1"})
    assert answer.headers["x-request-id"] == "a-b_c.1"


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, "\xe9", "a\tb"])
async def test_a_request_id_of_another_form_is_replaced(app: AsgiApp, given: str) -> None:
    answer = await call(app, "/health", method="GET", headers={"x-request-id": given})
    assert re.fullmatch(r"[0-9a-f]+-\d+", answer.headers["x-request-id"])


@pytest.mark.parametrize("path", ["/health", "/docs", "/v1/timers/get", "/nowhere", "/ready"])
async def test_every_answer_has_the_secure_headers(app: AsgiApp, path: str) -> None:
    answer = await call(app, path, method="GET", token=None)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-request-id"]


async def test_the_payload_comes_back_byte_for_byte(app: AsgiApp) -> None:
    answer = await call(app, "/v1/timers/create", payload(b'{"a" :  [1.0,"\\u00e9"]}'))
    assert b'"payload":{"a" :  [1.0,"\\u00e9"]}' in answer.body
