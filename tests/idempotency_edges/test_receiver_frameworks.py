"""The receiver kit as views of Starlette, FastAPI, Flask and Django."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import fastapi
import flask
import msgspec
import pytest
from django.conf import settings  # type: ignore[import-untyped]
from django.http import HttpResponse  # type: ignore[import-untyped]
from django.test import RequestFactory  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from mainspring.idempotency import InMemoryStore
from mainspring.idempotency.receiver import Delivery, Receiver
from tests.idempotency_edges.calling import Client
from tests.idempotency_edges.deliveries import BODY, SECRET, signed

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

    async def call(headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        request = RequestFactory().post("/", body, content_type="application/json", headers=headers)
        answer = remind(request)
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


def test_frameworks_are_imported_only_when_they_are_used() -> None:
    program = (
        "import sys, mainspring.idempotency.receiver, mainspring.idempotency.middleware\n"
        "frameworks = {'starlette', 'fastapi', 'flask', 'django', 'faststream', 'uvicorn'}\n"
        "found = (frameworks | {'mainspring.api', 'mainspring.kernel'}) & set(sys.modules)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
