"""The application: from a request to a route, and from its answer or error to a response. It is one of ASGI besides.

Order: the path and method are known, the token is right, the body is JSON by its header and within its limit;
only then is it read, and only a route looks into it. Every answer carries the request id and the secure headers.
Answers of megabytes are few at a time (`large_answers`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import msgspec

from mainspring import telemetry
from mainspring.api.asgi import AsgiApp, Message, Mounted, Receive, Scope, Send
from mainspring.api.docs import docs_routes
from mainspring.api.exchange import Exchange, Head, PeerGone
from mainspring.api.fetches import Fetches, fetch_routes
from mainspring.api.instances import instance_routes
from mainspring.api.internal import executor_routes, internal_routes
from mainspring.api.jobs import Jobs, job_routes
from mainspring.api.keys import Keys, key_routes
from mainspring.api.large_answers import LargeAnswers
from mainspring.api.namespaces import DeleteStep, Namespaces, ReshardStep, namespace_routes
from mainspring.api.openapi import openapi_document
from mainspring.api.refusals import retry_after
from mainspring.api.request_id import (
    CORRELATION_ID,
    REQUEST_ID,
    correlation_id_of,
    id_headers,
    new_request_id,
    request_id_of,
)
from mainspring.api.routes import NO_CONTENT_POLICY, Headers, Route, secure_headers
from mainspring.api.shards import shard_routes
from mainspring.api.status import status_routes
from mainspring.api.timers import Timers, timer_routes
from mainspring.api.tokens import Tokens
from mainspring.cluster.messages import InstancesView, ShardsView
from mainspring.cluster.wakeups import Wake
from mainspring.errors import MainspringError, TooLarge, Unauthenticated, Unavailable
from mainspring.fetches.pools import Execute, ExecuteReply
from mainspring.telemetry import RequestIds, requests, served_request
from mainspring.text import did_you_mean
from mainspring.wire.problems import PROBLEM_TYPE, Problem, internal, problem, problem_of

Refuse = Callable[[MainspringError, Scope], tuple[int, Headers, bytes]]

MAX_BODY_BYTES: Final = 1_000_000
_KEY: Final = b"idempotency-key"
_JSON: Final = b"application/json"
_JSON_TYPE: Final = re.compile(rb'application/json[ \t]*(?:;[ \t]*charset="?utf-8"?[ \t]*)?', re.IGNORECASE)


class ByKey(Protocol):
    """Puts the middleware for `Idempotency-Key` in front of an application."""

    def __call__(self, app: AsgiApp, refuse: Refuse, /, *, safe_to_repeat: bool) -> AsgiApp: ...


@dataclass(frozen=True, slots=True)
class Api:
    """The parts that make up the HTTP edge."""

    timers: Timers
    jobs: Jobs
    fetches: Fetches
    keys: Keys
    namespaces: Namespaces
    delete_namespace: DeleteStep
    reshard_namespace: ReshardStep
    shards: Callable[[], Awaitable[ShardsView]]
    instances: Callable[[], Awaitable[InstancesView]]
    ready: Callable[[], Awaitable[None]]
    """Raises `Unavailable` with the reason when the instance cannot do its work."""
    metrics: Callable[[], str]
    token_digests: tuple[bytes, ...]
    """SHA-256 of every accepted token."""
    instance: str
    version: str
    max_body_bytes: int = MAX_BODY_BYTES
    wake: Callable[[Wake], None] | None = None
    """Takes what other instances say; None: nobody is listened to."""
    cut_off: Callable[[str], None] = lambda _: None
    """Ends the call of a fetch that was cancelled elsewhere, by its mark."""
    cluster_digest: bytes = b""
    """SHA-256 of the secret by which they are known."""
    idempotent: ByKey | None = None
    """None: the header `Idempotency-Key` means nothing."""
    join_metrics: Callable[[str], Awaitable[str]] | None = None
    """Adds the metrics of the other processes that answer at the same address; None: there are none."""


def all_routes(api: Api) -> tuple[Route, ...]:
    routes = (
        *timer_routes(api.timers),
        *job_routes(api.jobs),
        *fetch_routes(api.fetches),
        *key_routes(api.keys),
        *namespace_routes(api.namespaces, delete=api.delete_namespace, reshard=api.reshard_namespace),
        *shard_routes(api.shards),
        *instance_routes(api.instances),
        *status_routes(
            ready=api.ready,
            metrics=api.metrics,
            instance=api.instance,
            version=api.version,
            join_metrics=api.join_metrics,
        ),
    )
    return (*routes, *docs_routes(partial(openapi_document, routes, version=api.version)))


def build_app(api: Api, more: tuple[Route, ...] = ()) -> App:
    """`more` routes are answered besides, and not described."""
    return _app(api, (*all_routes(api), *_internal(api), *more))


def build_internal_app(api: Api) -> App:
    """Only what other instances say: for an address that is not public."""
    return _app(api, _internal(api))


def build_executor_app(
    execute: Callable[[Execute], Awaitable[ExecuteReply]],
    cut_off: Callable[[str], None],
    *,
    ready: Callable[[], Awaitable[None]],
    metrics: Callable[[], str],
    name: str,
    version: str,
    token_digests: tuple[bytes, ...],
    cluster_digest: bytes,
) -> App:
    """What an executor of a pool answers: instances, and whoever looks after it."""
    routes = status_routes(ready=ready, metrics=metrics, instance=name, version=version)
    routes = (*routes, *executor_routes(execute, cut_off))
    return App(routes, token_digests=token_digests, cluster_digest=cluster_digest)


def _app(api: Api, routes: tuple[Route, ...]) -> App:
    return App(
        routes,
        token_digests=api.token_digests,
        cluster_digest=api.cluster_digest,
        max_body_bytes=api.max_body_bytes,
        idempotent=api.idempotent,
    )


def _internal(api: Api) -> tuple[Route, ...]:
    return internal_routes(api.wake, api.cut_off, api.metrics) if api.wake is not None else ()


class App:
    """Answers what our listener receives, and is an ASGI application for every other."""

    def __init__(
        self,
        routes: tuple[Route, ...],
        *,
        token_digests: tuple[bytes, ...],
        cluster_digest: bytes,
        max_body_bytes: int = MAX_BODY_BYTES,
        idempotent: ByKey | None = None,
    ) -> None:
        self._routes = {
            route.path: (route, Head(200, secure_headers(route.content_type, route.policy))) for route in routes
        }
        self._tokens = Tokens(token_digests)
        self._cluster = Tokens((cluster_digest,))
        self._max_body_bytes = max_body_bytes
        self._answers = LargeAnswers()
        self._once: dict[bool, AsgiApp] = {}
        """Keyed by whether a request may be carried out again when nobody knows whether it was."""
        if idempotent is not None:
            for safe in (False, True):
                self._once[safe] = idempotent(self._without_key, self._refuse, safe_to_repeat=safe)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.answer(Mounted(scope, receive, send))

    async def _without_key(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [header for header in scope["headers"] if header[0] != _KEY]
        await self({**scope, "headers": headers}, receive, send)

    def _refuse(self, error: MainspringError, scope: Scope) -> tuple[int, Headers, bytes]:
        headers = dict(scope["headers"])
        request_id = request_id_of(headers)
        told = problem_of(error, request_id=request_id) or internal(request_id=request_id)
        body = msgspec.json.encode(told)
        requests.add(_STATUS_CLASSES[told.status // 100])
        own = [(b"content-length", b"%d" % len(body)), *id_headers(headers, request_id)]
        return told.status, [*_PROBLEM_HEADERS, *own], body

    def _by_key(self, exchange: Exchange) -> AsgiApp | None:
        """What answers a request by its key: nobody claims one without the right token."""
        found = self._routes.get(exchange.path)
        if found is None or not found[0].takes_key or exchange.method != found[0].method:
            return None
        try:
            _admit(exchange, self._tokens)
        except (Unauthenticated, Unavailable):
            return None
        return self._once.get(found[0].safe_to_repeat)

    async def answer(self, exchange: Exchange, request_id: str = "") -> None:
        """Most requests come without an id, and pay nothing for those that do (`_answer_named`)."""
        if not request_id:
            if REQUEST_ID in exchange.fields or CORRELATION_ID in exchange.fields:
                await self._answer_named(exchange)
                return
            request_id = new_request_id()
        once = self._by_key(exchange) if _KEY in exchange.fields else None
        if once is not None:
            scope, receive, send = exchange.asgi()
            await once(_named(scope, request_id), receive, _correlated(send, correlation_id_of(exchange.fields)))
            return
        found = self._routes.get(exchange.path)
        if found is None or (exchange.method != found[0].method and not _is_head(exchange.method, found[0])):
            near = self._near(exchange) if found is None else ""
            await _send_problem(exchange, *_misdirected(exchange.method, found and found[0], request_id, near))
            return
        route, head = found
        try:
            if not route.is_open:
                _admit(exchange, self._cluster if route.is_internal else self._tokens)
            body = b""
            if route.method == "POST":
                if not _is_json(exchange.fields.get(b"content-type", _JSON)):
                    await _send_problem(exchange, _wrong_type(request_id))
                    return
                body = await self._body_of(exchange)
            await self._answers.give(route, body, partial(_send, exchange, head, request_id), reader=exchange.reader)
        except MainspringError as error:
            told = problem_of(error, request_id=request_id)
            if told is None:
                telemetry.exception("unforeseen error", request_id=request_id, path=route.path)
            await _send_problem(exchange, told or internal(request_id=request_id))
        except PeerGone:
            return
        except Exception:  # noqa: BLE001 - the last resort that keeps details from callers; the log has them
            telemetry.exception("unforeseen error", request_id=request_id, path=route.path)
            await _send_problem(exchange, internal(request_id=request_id))

    def _near(self, exchange: Exchange) -> str:
        """The path that was probably meant, for whoever has a token: comparing takes time."""
        if not self._tokens.admit(exchange.fields.get(b"authorization", b"")):
            return ""
        return did_you_mean(exchange.path, (path for path, (route, _) in self._routes.items() if not route.is_internal))

    async def _answer_named(self, exchange: Exchange) -> None:
        """What is logged meanwhile has the ids of the request."""
        request_id = request_id_of(exchange.fields)
        with _served(request_id, correlation_id_of(exchange.fields).decode("ascii")):
            await self.answer(exchange, request_id)

    async def _body_of(self, exchange: Exchange) -> bytes:
        length = exchange.fields.get(b"content-length", b"0").rstrip(b" \t")
        if length.isdigit() and len(length) <= 18 and int(length) <= self._max_body_bytes:
            body = await exchange.body(self._max_body_bytes)
            if body is not None:
                return body
        raise TooLarge(f"Expected a body of at most {self._max_body_bytes} bytes, got more")


_STATUS_CLASSES: Final = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx")
_PROBLEM_HEADERS: Final = secure_headers(PROBLEM_TYPE, NO_CONTENT_POLICY)


def _admit(exchange: Exchange, tokens: Tokens) -> None:
    """Raise unless the request may be answered. A listener wants to know who has shown a token, and may be full."""
    if not tokens.admit(exchange.fields.get(b"authorization", b"")):
        raise Unauthenticated
    if not exchange.recognise():
        raise Unavailable("Too many connections: this one only serves requests that need no token")


@contextmanager
def _served(request_id: str, correlation_id: str) -> Iterator[None]:
    ids = RequestIds(request_id, correlation_id)
    before = served_request.get()
    served_request.set(ids)
    try:
        yield
    finally:
        ids.is_over = True
        served_request.set(before)


def _named(scope: Scope, request_id: str) -> Scope:
    """The request with its id in the header, where everything that answers it looks."""
    others = [header for header in scope["headers"] if header[0] != REQUEST_ID]
    return {**scope, "headers": [*others, (REQUEST_ID, request_id.encode("ascii"))]}


def _correlated(send: Send, correlation_id: bytes) -> Send:
    """An answer that was recorded for another request gets the correlation id of this one."""
    if not correlation_id:
        return send

    async def send_correlated(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [header for header in message["headers"] if header[0] != CORRELATION_ID]
            message = {**message, "headers": [*others, (CORRELATION_ID, correlation_id)]}
        await send(message)

    return send_correlated


def _is_json(content_type: bytes) -> bool:
    return content_type == _JSON or _JSON_TYPE.fullmatch(content_type) is not None


def _is_head(method: str, route: Route) -> bool:
    return method == "HEAD" and route.method == "GET"


def _misdirected(method: str, route: Route | None, request_id: str, near: str) -> tuple[Problem, Headers]:
    if route is None:
        return problem("not_found", f"Expected one of the paths in /openapi.json{near}", request_id=request_id), []
    allowed = "GET, HEAD" if route.method == "GET" else route.method
    told = problem("method_not_allowed", f"Expected {allowed}, got {method}", request_id=request_id)
    return told, [(b"allow", allowed.encode())]


def _wrong_type(request_id: str) -> Problem:
    return problem(
        "unsupported_media_type",
        "Expected content-type application/json in UTF-8, got something else",
        request_id=request_id,
    )


async def _send_problem(exchange: Exchange, told: Problem, extra: Headers | None = None) -> None:
    headers = [*_PROBLEM_HEADERS, *(extra or ()), *retry_after(told.status)]
    if told.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await _send(exchange, Head(told.status, headers), told.request_id, msgspec.json.encode(told))


async def _send(exchange: Exchange, head: Head, request_id: str, body: bytes) -> None:
    requests.add(_STATUS_CLASSES[head.status // 100])
    await exchange.answer(head, request_id, body)
