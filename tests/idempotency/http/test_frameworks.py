"""The middleware inside of Starlette and FastAPI, on a real server, and in front of Mainspring's own API."""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastapi
import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from mainspring.api.app import all_routes, build_app
from mainspring.api.limits import Limits
from mainspring.api.listener import listening
from mainspring.api.openapi import openapi_document
from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.idempotency import InMemoryStore, SQLiteStore
from mainspring.idempotency.entries import COLLECTION
from mainspring.idempotency.http.held_answer import AsgiApp, Receive, Scope, Send
from mainspring.idempotency.http.middleware import IdempotencyMiddleware
from mainspring.model import Record
from mainspring.store import Store
from mainspring.stores.memory import MemoryStore
from mainspring.timers.messages import TimerRef
from tests.support.asgi_requests import Client
from tests.support.service_doubles import TOKEN, Edge, keyed

BEARER = {"authorization": f"Bearer {TOKEN}"}
TIMER = b'{"timerId":"t1","delaySeconds":3600,"callbackUrl":"http://127.0.0.1:9/"}'


@asynccontextmanager
async def serving(app: AsgiApp) -> AsyncIterator[int]:
    listener = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.serve())
        async with asyncio.timeout(10):
            while not listener.started:  # noqa: ASYNC110  (it tells in no other way)
                await asyncio.sleep(0.01)
        yield listener.servers[0].sockets[0].getsockname()[1]
        listener.should_exit = True


def post(port: int, path: str, key: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, b'{"n":1}', {"idempotency-key": key, "content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


async def test_fastapi_on_a_real_server_answers_a_repeat_as_before(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "keys.db"))
    orders: list[int] = []
    app = fastapi.FastAPI()
    app.add_middleware(IdempotencyMiddleware, store=store)

    @app.post("/orders", status_code=201)
    async def order(document: dict[str, int], response: fastapi.Response) -> dict[str, int]:
        orders.append(document["n"])
        response.headers["location"] = f"/orders/{len(orders)}"
        return {"order": len(orders)}

    async with serving(app) as port:
        first, again = [await asyncio.to_thread(post, port, "/orders", "k1") for _ in range(2)]
        other = await asyncio.to_thread(post, port, "/orders", "k2")
    await store.aclose()
    assert orders == [1, 1]
    assert (first[0], first[2]) == (again[0], again[2]) == (201, b'{"order":1}')
    assert again[1].pop("idempotent-replayed") == "true"
    for headers in (first[1], again[1]):
        del headers["date"]
    assert again[1] == first[1]
    assert other[1]["location"] == "/orders/2"


async def test_starlette_streams_are_given_again_though_their_first_client_left() -> None:
    runs: list[int] = []

    async def export(request: Request) -> StreamingResponse:
        async def lines() -> AsyncIterator[bytes]:
            runs.append(1)
            for number in range(3):
                await asyncio.sleep(0.01)
                yield b"line %d\n" % number

        return StreamingResponse(lines(), media_type="text/plain")

    guard = Middleware(IdempotencyMiddleware, store=InMemoryStore())
    call = Client(Starlette(routes=[Route("/export", export, methods=["POST"])], middleware=[guard]))
    await call("/export", key="k", gone=True)
    again = await call("/export", key="k")
    assert (again.body, again.was_replayed, len(runs)) == (b"line 0\nline 1\nline 2\n", True, 1)


async def test_an_error_in_starlette_reaches_its_own_handlers() -> None:
    async def fail(request: Request) -> JSONResponse:
        raise LookupError("no")

    async def handled(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"handled": str(error)}, 404)

    guard = Middleware(IdempotencyMiddleware, store=InMemoryStore())
    app = Starlette(
        routes=[Route("/", fail, methods=["POST"])], middleware=[guard], exception_handlers={LookupError: handled}
    )
    assert (await Client(app)("/", key="k")).body == b'{"handled":"no"}'


async def test_an_answer_does_not_wait_for_background_tasks_and_outlives_their_errors() -> None:
    sent: list[str] = []

    async def mail() -> None:
        await asyncio.sleep(0.05)
        sent.append("mail")
        raise LookupError("no such mailbox")

    async def order(request: Request) -> JSONResponse:
        return JSONResponse({"order": 1}, background=BackgroundTask(mail))

    inner = Starlette(routes=[Route("/", order, methods=["POST"])])
    guarded = IdempotencyMiddleware(inner, store=InMemoryStore())
    answered: list[list[str]] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Any) -> None:
            answered.append(list(sent))
            await send(message)

        await guarded(scope, receive, note)

    with pytest.raises(LookupError):
        await Client(noting)("/", key="k")
    assert (answered, sent) == ([[], []], ["mail"])
    again = await Client(guarded)("/", key="k")
    assert (again.body, again.was_replayed, sent) == (b'{"order":1}', True, ["mail"])


# --- our own API ------------------------------------------------------------------------------------------


async def claims(store: Store) -> list[Record]:
    return await store.scan_records(COLLECTION, now=await store.time())


async def test_a_create_with_a_key_is_carried_out_once_and_answered_as_before() -> None:
    edge = Edge()
    call = Client(build_app(keyed(edge)))
    given = {**BEARER, "x-request-id": "r-6"}
    first = await call("/v1/timers/create", TIMER, key="k", headers=given)
    again = await call("/v1/timers/create", TIMER, key="k", headers=given)
    assert (first.status, again.status, edge.timers.calls) == (200, 200, 1)
    assert again.body == first.body
    assert again.headers == [*first.headers, (b"idempotent-replayed", b"true")]
    assert first.header(b"x-request-id") == b"r-6"
    refused = await call("/v1/timers/create", TIMER + b" ", key="k", headers={**BEARER, "x-request-id": "r-7"})
    assert (refused.status, refused.code, edge.timers.calls) == (422, "key_reuse", 1)
    assert refused.header(b"x-request-id") == b"r-7"
    assert refused.header(b"x-content-type-options") == b"nosniff"


async def test_a_repeated_create_has_a_request_id_of_its_own() -> None:
    call = Client(build_app(keyed(Edge())))
    headers: list[dict[str, str]] = [BEARER, BEARER, {**BEARER, "x-correlation-id": "c-1"}]
    ids = [
        (await call("/v1/timers/create", TIMER, key="k", headers=given)).header(b"x-request-id") for given in headers
    ]
    assert None not in ids
    assert len(set(ids)) == 3
    assert ids[2] == b"c-1"


async def test_a_create_without_a_key_or_on_another_route_is_carried_out_each_time() -> None:
    edge = Edge()
    store = MemoryStore(SystemClock())
    call = Client(build_app(keyed(edge, store)))
    for _ in range(2):
        assert (await call("/v1/timers/create", TIMER, headers=BEARER)).status == 200
        assert (await call("/v1/timers/get", b'{"timerId":"t1"}', key="k", headers=BEARER)).status == 200
    assert (edge.timers.calls, await claims(store)) == (4, [])


async def test_nobody_claims_a_key_without_the_token() -> None:
    edge = Edge()
    store = MemoryStore(SystemClock())
    call = Client(build_app(keyed(edge, store)))
    assert (await call("/v1/timers/create", TIMER, key="k")).code == "unauthenticated"
    assert (await call("/v1/timers/create", TIMER, key="a b", headers=BEARER)).code == "invalid_input"
    assert (edge.timers.calls, await claims(store)) == (0, [])


async def test_a_refused_create_may_be_corrected_elsewhere_and_tried_again_under_its_key() -> None:
    edge = Edge()
    call = Client(build_app(keyed(edge)))
    edge.timers.failure = ValueError("unforeseen")
    assert (await call("/v1/timers/create", TIMER, key="k", headers=BEARER)).code == "internal"
    assert (await call("/v1/timers/create", b"{}", key="j", headers=BEARER)).code == "invalid_input"
    edge.timers.failure = None
    assert (await call("/v1/timers/create", TIMER, key="k", headers=BEARER)).status == 200
    assert (await call("/v1/timers/create", TIMER, key="j", headers=BEARER)).status == 200


async def test_the_key_is_described_where_it_is_taken() -> None:
    document = openapi_document(all_routes(Edge().api), version="0")
    taking = {
        path
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter.get("name") == "Idempotency-Key"
    }
    jobs = {"/v1/jobs/create", "/v1/jobs/trigger", "/v1/jobs/backfill"}
    assert taking == {
        "/v1/timers/create",
        "/v1/timers/create-batch",
        "/v1/namespaces/create",
        "/v1/fetches/create",
        "/v1/jobs/rerun",
        *jobs,
    }


async def test_a_timer_created_with_a_key_on_sqlite_stays_as_it_is_when_the_request_is_repeated(tmp_path: Path) -> None:
    async with Instance(Config(allow_loopback=True, store=f"sqlite:///{tmp_path / 'm.db'}")) as instance:
        api = keyed(Edge(), instance.store)
        call = Client(build_app(dataclasses.replace(api, timers=instance.timers)))
        first = await call("/v1/timers/create", TIMER, key="k", headers=BEARER)
        again = await call("/v1/timers/create", TIMER, key="k", headers=BEARER)
        assert again.body == first.body
        assert msgspec.json.decode(first.body)["generation"] == 1
        assert (await instance.timers.get(TimerRef(timer_id="t1"))).generation == 1


async def test_the_longest_answer_to_a_batch_is_given_again() -> None:
    policy = b'"retryPolicy":{"schedule":[' + b",".join([b"3e7"] * 100) + b'],"retryOn":["network"]}'
    payload = b'"payload":"' + b"x" * 400 + b'"'
    timers = (TIMER.replace(b'"t1"', b'"t%d",%s,%s' % (number, policy, payload)) for number in range(1000))
    body = b'{"timers":[' + b",".join(timers) + b"]}"
    assert 900_000 < len(body) < Config().max_body_bytes
    async with Instance(Config(allow_loopback=True, store="memory://")) as instance:
        api = keyed(Edge(), instance.store)
        call = Client(build_app(dataclasses.replace(api, timers=instance.timers)))
        first = await call("/v1/timers/create-batch", body, key="k", headers=BEARER)
        assert msgspec.json.decode(first.body)["created"] == 1000
        assert len(first.body) > 2 * len(body)
        again = await call("/v1/timers/create-batch", body, key="k", headers=BEARER)
    assert again.was_replayed
    assert again.body == first.body


async def test_the_listener_of_the_server_sends_a_repeat_as_it_is() -> None:
    app = build_app(keyed(Edge()))
    headers = {**BEARER, "idempotency-key": "k", "content-type": "application/json"}
    async with listening(app, host="127.0.0.1", port=0, limits=Limits()) as listener:

        def create() -> tuple[int, str | None, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=10)
            try:
                connection.request("POST", "/v1/timers/create", TIMER, headers)
                answer = connection.getresponse()
                return answer.status, answer.getheader("idempotent-replayed"), answer.read()
            finally:
                connection.close()

        first, again = await asyncio.to_thread(create), await asyncio.to_thread(create)
    assert first[:2] == (200, None)
    assert again == (200, "true", first[2])
