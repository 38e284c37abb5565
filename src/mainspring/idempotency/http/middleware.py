"""`Idempotency-Key` for any ASGI application: the work of a key runs once, and its answer is given again.

    app = IdempotencyMiddleware(app, store=SQLiteStore("keys.db"))

    no key where one is required, or a bad one    400
    the same request is in progress               409, with Retry-After
    the key was used with other bytes             422, even while that is in progress
    started, and it is unknown how it ended       409, code unknown_outcome
    done, and the answer was too large to keep    409
    request larger than can be compared           413
    the store cannot be reached                   503: nothing runs without a claim
    done before                                   the same answer, and Idempotent-Replayed: true

- A key belongs to its principal, method and route: the same key elsewhere is a different key. The route is the path,
  in which servers include where the application is mounted (`root_path`). In quotes or not, it is the same key.
- Two requests are the same if their query and body are, byte for byte.
- The answer is recorded before its first byte is sent, and sent before background tasks of the application have ended.
  A client that goes away changes nothing: the work goes on, and whoever asks again gets its answer.
- 401, 403 and 429 are never kept, nor 400, 422 and 5xx unless set: the key is free again. Cancelled work, and work that
  failed after it had begun to answer, is unknown: its key is not free until `resolve` finds out or somebody settles it.
  What that means for an exception before the answer, `on_exception` says.
- An answer that outgrows `max_response_bytes`, one for which there is no room among all that are kept
  (`max_kept_bytes`), or a stream of events, goes straight to the client. It is recorded that the work was done, and
  repeats are told so; it never runs again.
- An `x-request-id` or `x-correlation-id` in an answer names the request that is being answered: a repeat gets its own,
  if it has one.

A request without the header passes untouched. `wsgi` is the same for WSGI.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable

from msgspec import Struct

from mainspring.errors import MainspringError, TooLarge
from mainspring.idempotency.async_processor import AsyncIdempotentProcessor
from mainspring.idempotency.core import LEASE_SECONDS, TTL_SECONDS
from mainspring.idempotency.errors import NotRecorded, UnknownOutcome
from mainspring.idempotency.http import rules
from mainspring.idempotency.http.answers import Answer, Headers, PackedAnswer, refusal, retry_after, unpack
from mainspring.idempotency.http.held_answer import AsgiApp, HeldAnswer, Receive, Scope, Send
from mainspring.idempotency.http.quota import Quota
from mainspring.idempotency.http.rules import HEADER, KEPT_BYTES, KeyedRequest, OnException, Resolve, request_key
from mainspring.idempotency.record import NotDone, Resolved, Unresolved
from mainspring.idempotency.stores import IdempotencyStore

__all__ = ["IdempotencyMiddleware", "KeyedRequest", "authorization", "request_key"]

Refuse = Callable[[MainspringError, Scope], tuple[int, Headers, bytes]]


def authorization(scope: Scope) -> str:
    """The default principal: whoever has these credentials. Only their hash is used."""
    return rules.credentials_digest(b"\0".join(value for name, value in scope["headers"] if name == b"authorization"))


def path(scope: Scope) -> str:
    return str(scope["path"])


class IdempotencyMiddleware:
    """Put it inside what authenticates, and outside what does the work."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        store: IdempotencyStore,
        methods: Iterable[str] = ("POST", "PATCH"),
        required: Callable[[str, str], bool] | None = None,
        principal: Callable[[Scope], str] = authorization,
        route: Callable[[Scope], str] = path,
        keep: Callable[[int], bool] = rules.by_status,
        keep_cookies: bool = False,
        max_request_bytes: int = 1_000_000,
        max_response_bytes: int = 1_000_000,
        max_kept_bytes: int = KEPT_BYTES,
        ttl_seconds: float = TTL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        resolve: Resolve | None = None,
        safe_to_repeat: bool = False,
        on_exception: OnException = "free",
        scope: str = "http",
        refuse: Refuse | None = None,
    ) -> None:
        """`required` is asked with the method and the route, `keep` with the status of an answer.

        `principal` and `route` give text: whose key it is, and what for.
        `resolve` finds out about a request whose outcome is unknown: `Resolved(answer)`, `NotDone()`, or None.
        `safe_to_repeat` says that the work may run again when it is unknown whether it was done. `on_exception` says
        whether that is so after an exception of the application, or a 500, by which frameworks tell of one. `refuse`
        makes the answer to an error, to which `Retry-After` is added.
        """
        self._app = app
        self._methods = rules.checked_methods(methods)
        self._required = required
        self._principal = principal
        self._route = route
        self._keep_status = keep
        self._keep_cookies = keep_cookies
        self._max_request_bytes = max_request_bytes
        self._max_response_bytes = max_response_bytes
        self._quota = Quota(max_kept_bytes, ttl_seconds=ttl_seconds)
        self._refuse = refuse
        self._resolve = resolve
        self._doubts_exceptions = rules.checked_policy(on_exception)
        self.processor: AsyncIdempotentProcessor[_Request, bytes] = AsyncIdempotentProcessor(
            store,
            self._run,
            scope=scope,
            exclude_fields=("exchange", "asked"),
            ttl_seconds=ttl_seconds,
            lease_seconds=lease_seconds,
            wait_seconds=0,
            keep=self._keep,
            resolve=None if resolve is None else self._resolved,
            safe_to_repeat=safe_to_repeat,
            result_type=PackedAnswer,
        )
        """For `settle` and `forget`, with `request_key`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        keys = [value for name, value in scope["headers"] if name == HEADER]
        if not keys and (self._required is None or not self._required(scope["method"], self._route(scope))):
            await self._app(scope, receive, send)
            return
        try:
            key = rules.checked(keys)
            body = await _read_body(receive, self._max_request_bytes)
        except MainspringError as error:
            await _send_answer(send, self._refused(error, scope))
            return
        if body is None:
            return  # nobody is there to be answered, and nothing was claimed
        exchange = HeldAnswer(
            self._app,
            scope,
            receive,
            send,
            body=body,
            max_bytes=min(self._max_response_bytes, self._quota.room),
            keep_cookies=self._keep_cookies,
        )
        try:
            await self._answer(self._asked(key, body, scope), scope, exchange)
        except asyncio.CancelledError:
            await exchange.cancel()
            raise
        finally:
            await exchange.finish()

    async def _answer(self, asked: KeyedRequest, scope: Scope, exchange: HeldAnswer) -> None:
        try:
            answer = await self._recorded(asked, scope, exchange)
        except MainspringError as error:
            if exchange.failure is not None:
                raise
            answer = self._refused(rules.told(error), scope)
        if answer is None:
            await exchange.deliver()
        else:
            await _send_answer(exchange.send, answer)

    async def _recorded(self, asked: KeyedRequest, scope: Scope, exchange: HeldAnswer) -> Answer | None:
        """What was recorded before; None if the exchange has just run and holds its own answer."""
        name = request_key(principal=asked.principal, method=asked.method, route=asked.route, key=asked.key)
        try:
            record = await self.processor.process(_Request(asked.query, asked.body, exchange, asked), key=name)
        except Exception as error:
            if exchange.failure is not None:
                raise exchange.failure from None
            if isinstance(error, NotRecorded | UnknownOutcome) and exchange.is_complete:
                return None  # this caller may have its answer; others are told that the outcome is unknown
            raise
        if record.was_replay:
            return rules.again(record.result, _own_ids(scope))
        self._quota.take(len(record.result))
        return None

    async def _run(self, request: _Request) -> bytes:
        try:
            answer = await request.exchange.run()
        except Exception as error:
            if not self._doubts_exceptions or isinstance(error, UnknownOutcome):
                raise
            raise UnknownOutcome("The application raised an exception: the work may have been done.") from error
        if self._doubts_exceptions and unpack(answer).status == rules.INTERNAL_ERROR and not self._keep(answer):
            raise UnknownOutcome("The application answered 500: the work may have been done.")
        return answer

    async def _resolved(self, request: _Request, unresolved: Unresolved) -> Resolved[bytes] | NotDone | None:
        assert self._resolve is not None
        found = self._resolve(request.asked, unresolved)
        return rules.resolution(await found if inspect.isawaitable(found) else found)

    def _asked(self, key: str, body: bytes, scope: Scope) -> KeyedRequest:
        return KeyedRequest(
            principal=rules.checked_text("principal", self._principal(scope)),
            method=scope["method"],
            route=rules.checked_text("route", self._route(scope)),
            key=key,
            query=scope.get("query_string", b""),
            body=body,
            headers={name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]},
        )

    def _refused(self, error: MainspringError, scope: Scope) -> Answer:
        if self._refuse is None:
            return refusal(error, request_id=_own_ids(scope)[rules.REQUEST_ID].decode("ascii"))
        status, headers, body = self._refuse(error, scope)
        seconds = retry_after(error)
        return Answer(status, headers if seconds is None else [*headers, (b"retry-after", b"%d" % seconds)], body)

    def _keep(self, result: bytes) -> bool:
        return rules.is_kept(unpack(result).status, self._keep_status)


class _Request(Struct, frozen=True):
    """What is compared, along with what runs and what `resolve` gets, which are excluded from the fingerprint."""

    query: bytes
    body: bytes
    exchange: HeldAnswer
    asked: KeyedRequest


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the client went away before it had arrived."""
    parts = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise TooLarge(f"Expected a body of at most {limit} bytes with an Idempotency-Key, got more")
        if not message.get("more_body", False):
            return b"".join(parts)


def _own_ids(scope: Scope) -> dict[bytes, bytes]:
    return rules.own_ids(lambda wanted: next((value for name, value in scope["headers"] if name == wanted), b""))


async def _send_answer(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
