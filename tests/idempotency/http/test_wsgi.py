"""`Idempotency-Key` in front of WSGI applications: plain ones, Flask and Django."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

import flask
import msgspec
import pytest

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.idempotency import InMemoryStore, NotDone, Resolved, Unresolved
from mainspring.idempotency.http.middleware import IdempotencyMiddleware
from mainspring.idempotency.http.wsgi import KeyedRequest, WsgiIdempotencyMiddleware, request_key
from tests.support.asgi_requests import Client

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class Answer:
    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = int(status[:3])
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    @property
    def was_replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def code(self) -> str:
        return str(msgspec.json.decode(self.body)["code"])


def call(app: Any, body: bytes = b"{}", *, key: str | None = KEY, method: str = "POST", **environ: Any) -> Answer:
    sent: list[Any] = []
    pushed: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        if exc_info is not None and sent:
            raise exc_info[1]
        sent[:] = [status, headers]
        return pushed.append

    request = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": "/orders",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json",
        **({} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}),
        **environ,
    }
    answer = app(request, start_response)
    parts = list(answer)
    if hasattr(answer, "close"):
        answer.close()
    return Answer(sent[0], sent[1], b"".join([*pushed, *parts]))


class Shop:
    """Counts what it does, and answers as told."""

    def __init__(self) -> None:
        self.runs = 0
        self.status = "201 Created"
        self.parts = [b'{"order":', b"1}"]
        self.failure: Exception | None = None
        self.fails_late = False
        self.got = b""
        self.is_closed = False
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        self.runs += 1
        self.got = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.failure is not None and not self.fails_late:
            raise self.failure
        start_response(self.status, [("Location", "/orders/1"), ("Set-Cookie", "a=1"), ("Date", "yesterday")])
        return _Closing(self)


class _Closing:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def __iter__(self) -> Any:
        for part in self._shop.parts:
            yield part
            if self._shop.failure is not None:
                raise self._shop.failure

    def close(self) -> None:
        self._shop.is_closed = True


@pytest.fixture
def shop() -> Shop:
    return Shop()


def guarded(app: Any, **options: Any) -> WsgiIdempotencyMiddleware:
    return WsgiIdempotencyMiddleware(app, **{"store": InMemoryStore()} | options)


def test_a_repeat_gets_the_same_answer_and_runs_nothing(shop: Shop) -> None:
    app = guarded(shop)
    first, again = call(app, b'{"n":1}'), call(app, b'{"n":1}', HTTP_X_REQUEST_ID="r-2")
    assert (first.status, first.body, first.was_replayed) == (201, b'{"order":1}', False)
    assert (again.status, again.body, again.was_replayed) == (201, b'{"order":1}', True)
    assert first.headers["set-cookie"] == "a=1"
    assert again.headers == {"location": "/orders/1", "idempotent-replayed": "true"}
    assert (shop.runs, shop.got, shop.is_closed) == (1, b'{"n":1}', True)


def test_what_is_refused(shop: Shop) -> None:
    app = guarded(shop, required=lambda method, route: route == "/payments", max_request_bytes=10)
    assert call(app, key=None).status == 201
    assert call(app, key=KEY, method="GET").status == 201
    assert call(app, key=None, PATH_INFO="/payments").code == "invalid_input"
    assert call(app, key="a b").code == "invalid_input"
    assert call(app, b"x" * 11).code == "too_large"
    unmeasured: dict[str, Any] = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    assert call(app, b"x" * 11, **unmeasured).code == "too_large"
    assert call(app, b"x", CONTENT_LENGTH="5").code == "invalid_input"
    assert call(app, CONTENT_LENGTH="many").code == "invalid_input"
    call(app, b"1")
    reused = call(app, b"2", HTTP_X_REQUEST_ID="r-1")
    assert (reused.status, reused.code) == (422, "key_reuse")
    assert msgspec.json.decode(reused.body)["requestId"] == "r-1"
    assert call(app, b"1", key=f'"{KEY}"').was_replayed
    assert shop.runs == 3


def test_a_repeat_during_the_work_is_refused(shop: Shop) -> None:
    shop.gate = threading.Event()
    app = guarded(shop)
    first: list[Answer] = []
    thread = threading.Thread(target=lambda: first.append(call(app)))
    thread.start()
    assert shop.entered.wait(10)
    refused = call(app)
    assert (refused.status, refused.code, int(refused.headers["retry-after"]) >= 1) == (409, "in_progress", True)
    assert call(app, b"else").code == "key_reuse"
    shop.gate.set()
    thread.join(10)
    assert (first[0].status, shop.runs) == (201, 1)


@pytest.mark.parametrize(("status", "runs"), [("200 OK", 1), ("404 Not Found", 1), ("422 No", 2), ("500 Oh", 2)])
def test_which_answers_are_kept(shop: Shop, status: str, runs: int) -> None:
    shop.status = status
    app = guarded(shop)
    assert [call(app).status for _ in range(2)] == [int(status[:3])] * 2
    assert shop.runs == runs


def test_exceptions(shop: Shop) -> None:
    shop.failure = ValueError("no")
    free, doubting = guarded(shop), guarded(shop, on_exception="unknown")
    for app in (free, doubting):
        with pytest.raises(ValueError, match="no"):
            call(app)
    shop.fails_late = True
    with pytest.raises(ValueError, match="no"):
        call(free, key="late")
    shop.failure = None
    assert call(free).status == 201
    assert call(free, key="late").code == call(doubting).code == "unknown_outcome"
    shop.status = "500 Internal Server Error"
    assert [call(doubting, key="500").status for _ in range(2)] == [500, 409]
    with pytest.raises(ConfigError):
        guarded(shop, on_exception="never")


def test_resolve_and_settling_by_hand(shop: Shop) -> None:
    def resolve(request: KeyedRequest, _: Unresolved) -> Resolved[object] | NotDone | None:
        assert (request.method, request.route, request.body) == ("POST", "/orders", b"{}")
        assert request.headers["content-type"] == "application/json"
        answers: dict[str, Resolved[object] | NotDone] = {"done": Resolved(None), "not": NotDone()}
        return answers.get(request.key)

    app = guarded(shop, resolve=resolve, on_exception="unknown")
    shop.failure = ValueError("no")
    for key in ("done", "not", "lost"):
        with pytest.raises(ValueError, match="no"):
            call(app, key=key)
    shop.failure = None
    assert call(app, key="done").body == b'{"ok":true}'
    assert call(app, key="not").status == 201
    assert call(app, key="lost").code == "unknown_outcome"
    assert app.processor.forget(request_key(principal="", method="POST", route="/orders", key="lost"))
    assert call(app, key="lost").status == 201


def test_an_answer_that_is_too_large_is_passed_on_and_its_work_never_runs_again(shop: Shop) -> None:
    shop.parts = [b"x" * 60, b"y" * 60, b"z" * 60]
    app = guarded(shop, max_response_bytes=100)
    assert call(app).body == b"".join(shop.parts)
    again = call(app)
    assert (again.status, again.code, shop.runs) == (409, "conflict", 1)


def test_nothing_runs_without_a_claim_and_nobody_learns_where_the_store_is(shop: Shop) -> None:
    class Away(InMemoryStore):
        async def look(self, address: str, *, now: int) -> None:
            raise StoreUnavailable("Expected to use redis://secret-host:6379, got: refused")

    refused = call(guarded(shop, store=Away()))
    assert (refused.status, refused.code, shop.runs, b"secret" in refused.body) == (503, "store_unavailable", 0, False)


async def test_a_key_is_the_same_for_asgi(shop: Shop) -> None:
    store = InMemoryStore()
    call(guarded(shop, store=store), b"[]", QUERY_STRING="a=1", PATH_INFO="/orders", HTTP_AUTHORIZATION="Bearer x")

    async def never(*_: object) -> None:
        raise AssertionError("Expected a replay")

    ask = Client(IdempotencyMiddleware(never, store=store))
    again = await ask("/orders", b"[]", key=KEY, query=b"a=1", headers={"authorization": "Bearer x"})
    assert (again.status, again.body, again.was_replayed) == (201, b'{"order":1}', True)


def test_an_application_that_breaks_the_rules_is_an_error() -> None:
    def silent(environ: Any, start_response: Any) -> list[bytes]:
        return []

    def hasty(environ: Any, start_response: Any) -> list[bytes]:
        return [b"body"]

    def twice(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        start_response("201 Created", [])
        return []

    for app in (silent, hasty, twice):
        with pytest.raises(RuntimeError, match="Expected"):
            call(guarded(app))


def test_flask() -> None:
    app = flask.Flask("shop")
    runs: list[object] = []

    @app.post("/orders")
    def order() -> tuple[dict[str, int], int]:
        runs.append(flask.request.get_json())
        if flask.request.args.get("fail"):
            raise ValueError("no")
        return {"order": len(runs)}, 201

    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, store=InMemoryStore())  # type: ignore[method-assign]
    client = app.test_client()
    answers = [client.post("/orders", json={"n": 1}, headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert [(answer.status_code, answer.get_json()) for answer in answers] == [(201, {"order": 1})] * 2
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    failed = [client.post("/orders?fail=1", json={}, headers={"Idempotency-Key": "f"}).status_code for _ in range(2)]
    assert (failed, runs) == ([500, 500], [{"n": 1}, {}, {}])


def test_django() -> None:
    from django.conf import settings  # type: ignore[import-untyped]  # noqa: PLC0415
    from django.core.handlers.wsgi import WSGIHandler  # type: ignore[import-untyped]  # noqa: PLC0415
    from django.http import HttpRequest, JsonResponse  # type: ignore[import-untyped]  # noqa: PLC0415
    from django.test.utils import override_settings  # type: ignore[import-untyped]  # noqa: PLC0415
    from django.urls import path  # type: ignore[import-untyped]  # noqa: PLC0415

    runs: list[bytes] = []

    def order(request: HttpRequest) -> JsonResponse:
        runs.append(request.body)
        return JsonResponse({"order": len(runs)}, status=201)

    urls = type("Urls", (), {"urlpatterns": [path("orders", order)]})
    if not settings.configured:
        settings.configure(SECRET_KEY="secret", ALLOWED_HOSTS=["*"])
    with override_settings(ROOT_URLCONF=urls, MIDDLEWARE=[], ALLOWED_HOSTS=["*"]):
        app = guarded(WSGIHandler())
        answers = [call(app, b'{"n":1}') for _ in range(2)]
    assert [(answer.status, answer.body) for answer in answers] == [(201, b'{"order": 1}')] * 2
    assert (answers[1].was_replayed, runs) == (True, [b'{"n":1}'])
