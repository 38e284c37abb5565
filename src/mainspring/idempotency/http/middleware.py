"""`Idempotency-Key` for any ASGI application: the work of a key runs once, and its answer is given again.

    app = IdempotencyMiddleware(app, store=SQLiteStore("keys.db"))

    no key where one is required, or a bad one    400
    the same request is in progress               409, with Retry-After
    the key was used with other bytes             422
    started, and it is unknown how it ended       409, code unknown_outcome
    done, and the answer was too large to keep    409
    request larger than can be compared           413
    the store cannot be reached                   503: nothing runs without a claim
    done before                                   the same answer, and Idempotent-Replayed: true

- A key belongs to its principal, method and route: the same key elsewhere is a different key. The route is the path,
  in which servers include where the application is mounted (`root_path`).
- Two requests are the same if their query and body are, byte for byte.
- The answer is recorded before its first byte is sent, and sent before background tasks of the application have ended.
  A client that goes away changes nothing: the work goes on, and whoever asks again gets its answer.
- 401, 403 and 429 are never kept, nor 5xx unless set: the key is free again. Cancelled work, and work that failed
  after it had begun to answer, is unknown: its key is not free until somebody settles it.
- An answer that outgrows `max_response_bytes`, one for which there is no room among all that are kept
  (`max_kept_bytes`), or a stream of events, goes straight to the client. It is recorded that the work was done, and
  repeats are told so; it never runs again.
- An `x-request-id` in an answer names the request that is being answered: a repeat gets its own, if it has one.

A request without the header passes untouched.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

from msgspec import Struct

from mainspring.errors import ConfigError, Conflict, InvalidInput, MainspringError, TooLarge
from mainspring.idempotency.async_processor import AsyncIdempotentProcessor
from mainspring.idempotency.core import LEASE_SECONDS, TTL_SECONDS
from mainspring.idempotency.errors import InProgress, KeyReuse, NotRecorded, UnknownOutcome
from mainspring.idempotency.http.answers import REPLAYED, Answer, Headers, refusal, retry_after, unpack
from mainspring.idempotency.http.held_answer import AsgiApp, Exchange, Receive, Scope, Send
from mainspring.idempotency.http.quota import Quota
from mainspring.idempotency.stores import IdempotencyStore

Refuse = Callable[[MainspringError, Scope], tuple[int, Headers, bytes]]

KEPT_BYTES: Final = 256 * 1024 * 1024
HEADER: Final = b"idempotency-key"
REQUEST_ID: Final = b"x-request-id"
_KEY: Final = re.compile(rb"[\x21-\x7e]{1,255}")
_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_NEVER_KEPT: Final = frozenset({401, 403, 429})


def authorization(scope: Scope) -> str:
    """The default principal: whoever has these credentials. Only their hash is used."""
    given = b"\0".join(value for name, value in scope["headers"] if name == b"authorization")
    return sha256(given).hexdigest() if given else ""


def path(scope: Scope) -> str:
    return str(scope["path"])


def below_500(status: int) -> bool:
    """Server errors are not kept: the server may do better next time."""
    return status < 500


def request_key(*, principal: str, method: str, route: str, key: str) -> str:
    """The name of a request's record, which `settle` and `forget` take."""
    parts = "\0".join((principal, method, route, key))
    return "http-" + sha256(parts.encode("utf-8", "surrogateescape")).hexdigest()


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
        keep: Callable[[int], bool] = below_500,
        keep_cookies: bool = False,
        max_request_bytes: int = 1_000_000,
        max_response_bytes: int = 1_000_000,
        max_kept_bytes: int = KEPT_BYTES,
        ttl_seconds: float = TTL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        safe_to_repeat: bool = False,
        scope: str = "http",
        refuse: Refuse | None = None,
    ) -> None:
        """`required` is asked with the method and the route, `keep` with the status of an answer.

        `principal` and `route` give text: whose key it is, and what for.
        `safe_to_repeat` says that the work may run again when it is unknown whether it was done. `refuse` makes the
        answer to an error, to which `Retry-After` is added.
        """
        self._app = app
        self._methods = _upper(methods)
        self._required = required
        self._principal = principal
        self._route = route
        self._keep_status = keep
        self._keep_cookies = keep_cookies
        self._max_request_bytes = max_request_bytes
        self._max_response_bytes = max_response_bytes
        self._quota = Quota(max_kept_bytes, ttl_seconds=ttl_seconds)
        self._refuse = refuse
        self.processor: AsyncIdempotentProcessor[_Request, bytes] = AsyncIdempotentProcessor(
            store,
            _run,
            scope=scope,
            exclude_fields=("exchange",),
            ttl_seconds=ttl_seconds,
            lease_seconds=lease_seconds,
            wait_seconds=0,
            keep=self._keep,
            safe_to_repeat=safe_to_repeat,
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
            name = self._name(_checked(keys), scope)
            body = await _read_body(receive, self._max_request_bytes)
        except MainspringError as error:
            await _send_answer(send, self._refused(error, scope))
            return
        if body is None:
            return  # nobody is there to be answered, and nothing was claimed
        exchange = Exchange(
            self._app,
            scope,
            receive,
            send,
            body=body,
            max_bytes=min(self._max_response_bytes, self._quota.room),
            keep_cookies=self._keep_cookies,
        )
        try:
            await self._answer(name, body, scope, exchange)
        except asyncio.CancelledError:
            await exchange.cancel()
            raise
        finally:
            await exchange.finish()

    async def _answer(self, name: str, body: bytes, scope: Scope, exchange: Exchange) -> None:
        try:
            answer = await self._recorded(name, body, scope, exchange)
        except MainspringError as error:
            if exchange.failure is not None:
                raise
            answer = self._refused(_told(error), scope)
        if answer is None:
            await exchange.deliver()
        else:
            await _send_answer(exchange.send, answer)

    async def _recorded(self, name: str, body: bytes, scope: Scope, exchange: Exchange) -> Answer | None:
        """What was recorded before; None if the exchange has just run and holds its own answer."""
        request = _Request(scope.get("query_string", b""), body, exchange)
        try:
            record = await self.processor.process(request, key=name)
        except Exception as error:
            if exchange.failure is not None:
                raise exchange.failure from None
            if isinstance(error, NotRecorded) and exchange.is_complete:
                return None  # done, and this caller may know; others are told that it is unknown
            raise
        if record.was_replay:
            return _again(unpack(record.result), scope)
        self._quota.take(len(record.result))
        return None

    def _name(self, key: str, scope: Scope) -> str:
        principal, route = self._principal(scope), self._route(scope)
        for what, found in (("principal", principal), ("route", route)):
            if not isinstance(found, str):
                raise TypeError(f"Expected {what}= to give text, got {type(found).__name__}")
        return request_key(principal=principal, method=scope["method"], route=route, key=key)

    def _refused(self, error: MainspringError, scope: Scope) -> Answer:
        if self._refuse is None:
            return refusal(error, request_id=_request_id(scope).decode("ascii"))
        status, headers, body = self._refuse(error, scope)
        seconds = retry_after(error)
        return Answer(status, headers if seconds is None else [*headers, (b"retry-after", b"%d" % seconds)], body)

    def _keep(self, result: bytes) -> bool:
        status = unpack(result).status
        return status not in _NEVER_KEPT and self._keep_status(status)


class _Request(Struct, frozen=True):
    """What is compared, along with what runs. `exchange` is excluded from the fingerprint."""

    query: bytes
    body: bytes
    exchange: Exchange


async def _run(request: _Request) -> bytes:
    return await request.exchange.run()


def _checked(keys: list[bytes]) -> str:
    if not keys:
        raise InvalidInput("Expected an Idempotency-Key header, got none")
    if len(keys) > 1:
        raise InvalidInput(f"Expected one Idempotency-Key header, got {len(keys)}")
    if _KEY.fullmatch(keys[0]) is None:
        raise InvalidInput("Expected an Idempotency-Key of 1 to 255 visible ASCII characters, got something else")
    return keys[0].decode("ascii")


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


def _again(answer: Answer, scope: Scope) -> Answer:
    if not answer.is_whole:
        raise Conflict("The request was carried out before, and its answer was too large to keep.")
    headers = answer.headers
    if any(name.lower() == REQUEST_ID for name, _ in headers):
        own = _request_id(scope)
        headers = [(n, own if n.lower() == REQUEST_ID else v) for n, v in headers if own or n.lower() != REQUEST_ID]
    return Answer(answer.status, [*headers, REPLAYED], answer.body)


def _request_id(scope: Scope) -> bytes:
    """What the sender calls this request; empty if it gives no name that can be repeated."""
    given: bytes = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
    return given if _REQUEST_ID.fullmatch(given) else b""


def _upper(methods: Iterable[str]) -> frozenset[str]:
    """As ASGI writes them. A single text is a mistake: its letters would be the methods."""
    found = frozenset(() if isinstance(methods, str) else (method.upper() for method in methods))
    if not found:
        raise ConfigError(f"Expected the names of methods, such as ('POST', 'PATCH'), got {methods!r}")
    return found


def _told(error: MainspringError) -> MainspringError:
    """The same, worded for whoever sent the header. The name of the record is for whoever settles it by hand."""
    match error:
        case KeyReuse():
            return KeyReuse("This Idempotency-Key was first used with a different request")
        case InProgress():
            told = "The first request with this Idempotency-Key is still in progress"
            return InProgress(told, retry_after=error.retry_after)
        case UnknownOutcome():
            return UnknownOutcome(
                "A request with this Idempotency-Key was begun, and nobody knows how it ended. It may have been done, "
                f"and is not run again by itself. Its record is {error.key}"
            )
        case _:
            return error


async def _send_answer(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
