"""The receiver kit as views of Starlette, FastAPI, Flask and Django."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import fastapi
import flask
import msgspec
import pytest
from django.conf import settings  # type: ignore[import-untyped]
from django.http import HttpResponse, StreamingHttpResponse  # type: ignore[import-untyped]
from django.test import RequestFactory  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from mainspring.idempotency import InMemoryStore, UnknownOutcome
from mainspring.idempotency.http.receiver import Delivery, Receiver
from tests.idempotency.http.deliveries import BODY, SECRET, signed
from tests.support.asgi_requests import Client

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="test", DEFAULT_CHARSET="utf-8")

Seen = list[str]
Call = Callable[[dict[str, str], bytes], Awaitable[tuple[int, dict[str, str], bytes]]]


def receiver(**options: Any) -> Receiver:
    return Receiver(secrets=[SECRET], store=InMemoryStore(), scope="test", max_body_bytes=1000, **options)


def by_starlette(seen: Seen) -> Call:
    async def remind(delivery: Delivery) -> object:
        seen.append(delivery.data["timerId"])
        return JSONResponse({"n": len(seen)}, 202, {"x-own": "1"})

    return _asgi(Client(Starlette(routes=[Route("/", receiver().starlette(remind), methods=["POST"])])))


def by_fastapi(seen: Seen) -> Call:
    app = fastapi.FastAPI()

    @app.post("/")
    @receiver().starlette
    async def remind(delivery: Delivery) -> object:
        seen.append(delivery.data["timerId"])
        return JSONResponse({"n": len(seen)}, 202, {"x-own": "1"})

    return _asgi(Client(app))


def _asgi(client: Client) -> Call:
    async def call(headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        answer = await client("/", body, headers=headers, chunks=3)
        return answer.status, {name.decode().lower(): value.decode() for name, value in answer.headers}, answer.body

    return call


def by_flask(seen: Seen) -> Call:
    app = flask.Flask(__name__)

    @app.post("/")
    @receiver().flask
    def remind(delivery: Delivery) -> object:
        seen.append(delivery.data["timerId"])
        return flask.Response(msgspec.json.encode({"n": len(seen)}), 202, {"x-own": "1"})

    return _by_test_client(app)


def _by_test_client(app: flask.Flask) -> Call:
    async def call(headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        answer = app.test_client().post("/", data=body, headers=headers)
        return answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.data

    return call


def by_django(seen: Seen) -> Call:
    @receiver().django
    def remind(delivery: Delivery) -> object:
        seen.append(delivery.data["timerId"])
        return HttpResponse(msgspec.json.encode({"n": len(seen)}), status=202, headers={"x-own": "1"})

    assert remind.csrf_exempt  # type: ignore[attr-defined]
    return _by_factory(remind)


def _by_factory(view: Callable[[Any], Any]) -> Call:
    async def call(headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        request = RequestFactory().post("/", body, content_type="application/json", headers=headers)
        answer = view(request)
        return answer.status_code, {name.lower(): value for name, value in answer.items()}, bytes(answer.content)

    return call


FRAMEWORKS = {"starlette": by_starlette, "fastapi": by_fastapi, "flask": by_flask, "django": by_django}
every_framework = pytest.mark.parametrize("made", FRAMEWORKS.values(), ids=FRAMEWORKS)


@every_framework
async def test_a_view_does_the_work_once_and_answers_repeats_as_before(made: Callable[[Seen], Call]) -> None:
    seen: Seen = []
    call = made(seen)
    first, again, other = await call(signed(), BODY), await call(signed(), BODY), await call(signed("msg_2"), BODY)
    assert seen == ["t1", "t1"]
    assert (first[0], first[2]) == (again[0], again[2]) == (202, b'{"n":1}')
    assert again[1].pop("idempotent-replayed") == "true"
    assert again[1] == first[1]
    assert first[1]["x-own"] == "1"
    assert other[2] == b'{"n":2}'


@every_framework
async def test_a_view_refuses_forgeries_and_what_is_too_large(made: Callable[[Seen], Call]) -> None:
    seen: Seen = []
    call = made(seen)
    status, headers, body = await call({**signed(), "webhook-id": "forged"}, BODY)
    assert (status, headers["content-type"]) == (401, "application/problem+json")
    assert msgspec.json.decode(body)["code"] == "unauthenticated"
    large = b'"' + b"x" * 1000 + b'"'
    assert (await call(signed(body=large), large))[0] == 413
    assert seen == []


def the_views(kit: Receiver, work: Callable[[Delivery], object]) -> dict[str, Call]:
    """One function as a view of each framework, under one receiver."""

    async def waited(delivery: Delivery) -> object:
        return work(delivery)

    starlette = Starlette(routes=[Route("/", kit.starlette(waited), methods=["POST"])])
    fast = fastapi.FastAPI()
    fast.post("/")(kit.starlette(waited))
    flasks = flask.Flask(__name__)
    flasks.post("/")(kit.flask(work))
    return {
        "starlette": _asgi(Client(starlette)),
        "fastapi": _asgi(Client(fast)),
        "flask": _by_test_client(flasks),
        "django": _by_factory(kit.django(work)),
    }


every_name = pytest.mark.parametrize("name", FRAMEWORKS)


@every_name
async def test_a_delivery_whose_outcome_is_unknown_is_settled_by_hand_and_answered_so(name: str) -> None:
    kit = receiver()

    def lost(delivery: Delivery) -> object:
        raise UnknownOutcome("the call timed out")

    call = the_views(kit, lost)[name]
    assert [(await call(signed(), BODY))[0] for _ in range(2)] == [503, 503]
    await asyncio.to_thread(kit.settle, "msg_1", {"found": True})
    status, headers, body = await call(signed(), BODY)
    assert (status, body, headers["idempotent-replayed"]) == (200, b'{"found":true}', "true")


@every_name
async def test_a_delivery_that_is_forgotten_by_hand_runs_again(name: str) -> None:
    kit = receiver()
    failures = [UnknownOutcome("the call timed out")]

    def work(delivery: Delivery) -> object:
        if failures:
            raise failures.pop()
        return {"n": 2}

    call = the_views(kit, work)[name]
    assert (await call(signed(), BODY))[0] == 503
    assert not await kit.aforget("msg_2")
    assert await kit.aforget("msg_1")
    assert (await call(signed(), BODY))[2] == b'{"n":2}'


UNANSWERABLE: dict[str, Callable[[], object]] = {
    "starlette": lambda: StreamingResponse(iter([b"x"])),
    "fastapi": lambda: StreamingResponse(iter([b"x"])),
    "flask": object,
    "django": lambda: StreamingHttpResponse([b"x"]),
}


@every_name
async def test_work_that_returns_what_cannot_be_kept_was_done_all_the_same_and_never_runs_again(name: str) -> None:
    seen: Seen = []

    def work(delivery: Delivery) -> object:
        seen.append(delivery.id)
        return UNANSWERABLE[name]()

    call = the_views(receiver(), work)[name]
    for _ in range(2):
        status, _, body = await call(signed(), BODY)
        assert (status, msgspec.json.decode(body)["code"]) == (503, "unknown_outcome")
    assert seen == ["msg_1"]


async def test_what_flask_takes_for_body_and_status_is_an_answer() -> None:
    call = the_views(receiver(), lambda delivery: ({"n": 1}, 202))["flask"]
    for _ in range(2):
        status, _, body = await call(signed(), BODY)
        assert (status, msgspec.json.decode(body)) == (202, {"n": 1})


def test_frameworks_are_imported_only_when_they_are_used_and_nothing_of_the_server_ever() -> None:
    program = (
        "import sys, mainspring.idempotency.http.receiver, mainspring.idempotency.http.middleware\n"
        "import mainspring.idempotency.transaction, mainspring.idempotency.stores.sqlite\n"
        "frameworks = {'starlette', 'fastapi', 'flask', 'django', 'faststream'}\n"
        "of_the_server = {'uvicorn', 'uvloop', 'httptools', 'click', 'rich', 'yaml'}\n"
        "ours = {'mainspring.api', 'mainspring.kernel', 'mainspring.cluster.instance', 'mainspring.config'}\n"
        "found = (frameworks | of_the_server | ours) & set(sys.modules)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
