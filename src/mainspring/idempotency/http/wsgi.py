"""`Idempotency-Key` for any WSGI application: Flask, Django, and whatever else runs in threads.

    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, store=SQLiteStore("keys.db"))          # Flask
    application = WsgiIdempotencyMiddleware(get_wsgi_application(), store=SQLiteStore("keys.db"))  # Django

The rules are those of `middleware`, which is for ASGI, and a key is the same for both. What differs: the application is
run to its end before anything is sent, so a client that goes away is noticed by nobody; and frameworks that catch their
exceptions answer 500, which `on_exception` counts as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from mainspring.errors import InvalidInput, MainspringError, TooLarge
from mainspring.idempotency.core import LEASE_SECONDS, TTL_SECONDS
from mainspring.idempotency.errors import NotRecorded, UnknownOutcome
from mainspring.idempotency.http import rules
from mainspring.idempotency.http.answers import Answer, PackedAnswer, kept_headers, pack, refusal, unpack
from mainspring.idempotency.http.quota import Quota
from mainspring.idempotency.http.rules import KEPT_BYTES, KeyedRequest, OnException, Resolve, request_key
from mainspring.idempotency.record import NotDone, Resolved, Unresolved
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.sync_processor import IdempotentProcessor

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

__all__ = ["KeyedRequest", "WsgiIdempotencyMiddleware", "authorization", "request_key"]

Environ = dict[str, Any]
_READ_BYTES: Final = 65_536


def authorization(environ: Environ) -> str:
    """The default principal: whoever has these credentials. Only their hash is used."""
    return rules.credentials_digest(_latin1(environ.get("HTTP_AUTHORIZATION", "")))


def path(environ: Environ) -> str:
    """Where the application is mounted, and the path below it."""
    whole = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return _latin1(whole).decode("utf-8", "surrogateescape")


class WsgiIdempotencyMiddleware:
    """Put it inside what authenticates, and outside what does the work."""

    def __init__(
        self,
        app: WSGIApplication,
        *,
        store: IdempotencyStore,
        methods: Iterable[str] = ("POST", "PATCH"),
        required: Callable[[str, str], bool] | None = None,
        principal: Callable[[Environ], str] = authorization,
        route: Callable[[Environ], str] = path,
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
    ) -> None:
        """As those of `IdempotencyMiddleware`; `principal` and `route` get the environment."""
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
        self._resolve = resolve
        self._doubts_exceptions = rules.checked_policy(on_exception)
        self.processor: IdempotentProcessor[_Request, bytes] = IdempotentProcessor(
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

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        method, given = environ["REQUEST_METHOD"], environ.get("HTTP_IDEMPOTENCY_KEY")
        if method not in self._methods or (
            given is None and (self._required is None or not self._required(method, self._route(environ)))
        ):
            return self._app(environ, start_response)
        try:
            key = rules.checked([] if given is None else [_latin1(given)])
            body = _read_body(environ, self._max_request_bytes)
        except MainspringError as error:
            return self._refused(error, environ, start_response)
        asked = self._asked(key, body, environ)
        exchange = _Exchange(
            self._app,
            {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))},
            start_response,
            max_bytes=min(self._max_response_bytes, self._quota.room),
            keep_cookies=self._keep_cookies,
        )
        try:
            answer = self._recorded(asked, environ, exchange)
        except MainspringError as error:
            if exchange.failure is not None:
                raise
            return self._refused(rules.told(error), environ, start_response)
        return exchange.deliver() if answer is None else _sent(answer, start_response)

    def _recorded(self, asked: KeyedRequest, environ: Environ, exchange: _Exchange) -> Answer | None:
        """What was recorded before; None if the exchange has just run and holds its own answer."""
        name = request_key(principal=asked.principal, method=asked.method, route=asked.route, key=asked.key)
        try:
            record = self.processor.process(_Request(asked.query, asked.body, exchange, asked), key=name)
        except Exception as error:
            if exchange.failure is not None:
                raise exchange.failure from None
            if isinstance(error, NotRecorded | UnknownOutcome) and exchange.is_complete:
                return None  # this caller may have its answer; others are told that the outcome is unknown
            raise
        if record.was_replay:
            return rules.again(record.result, _own_ids(environ))
        self._quota.take(len(record.result))
        return None

    def _run(self, request: _Request) -> bytes:
        exchange = request.exchange
        try:
            answer = exchange.run()
        except Exception as error:
            exchange.failure = error
            if exchange.has_begun or self._doubts_exceptions:
                raise UnknownOutcome("The application raised an exception: the work may have been done.") from error
            raise
        if self._doubts_exceptions and unpack(answer).status == rules.INTERNAL_ERROR and not self._keep(answer):
            raise UnknownOutcome("The application answered 500: the work may have been done.")
        return answer

    def _resolved(self, request: _Request, unresolved: Unresolved) -> Resolved[bytes] | NotDone | None:
        assert self._resolve is not None
        return rules.resolution(self._resolve(request.asked, unresolved))

    def _asked(self, key: str, body: bytes, environ: Environ) -> KeyedRequest:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        }
        return KeyedRequest(
            principal=rules.checked_text("principal", self._principal(environ)),
            method=environ["REQUEST_METHOD"],
            route=rules.checked_text("route", self._route(environ)),
            key=key,
            query=_latin1(environ.get("QUERY_STRING", "")),
            body=body,
            headers=headers,
        )

    def _refused(self, error: MainspringError, environ: Environ, start_response: StartResponse) -> list[bytes]:
        return _sent(refusal(error, request_id=_own_ids(environ)[rules.REQUEST_ID].decode("ascii")), start_response)

    def _keep(self, result: bytes) -> bool:
        return rules.is_kept(unpack(result).status, self._keep_status)


class _Exchange:
    """One run of the application, whose answer is held back until it is recorded, unless it is too large for that."""

    def __init__(
        self,
        app: WSGIApplication,
        environ: Environ,
        start_response: StartResponse,
        *,
        max_bytes: int,
        keep_cookies: bool,
    ) -> None:
        self._app = app
        self._environ = environ
        self._start_response = start_response
        self._max_bytes = max_bytes
        self._keep_cookies = keep_cookies
        self._start: tuple[str, list[tuple[str, str]], Any] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._write: Callable[[bytes], object] | None = None
        """Set as soon as parts go straight to the client."""
        self.is_complete = False
        self.failure: Exception | None = None
        """What the application raised: passed outwards as if we were not there."""

    @property
    def has_begun(self) -> bool:
        """Whether there is something of an answer."""
        return bool(self._parts) or self._write is not None

    def run(self) -> bytes:
        answer = self._app(self._environ, self._started)
        try:
            for part in answer:
                self._take(part)
        finally:
            if (close := getattr(answer, "close", None)) is not None:
                close()
        if self._start is None:
            raise RuntimeError("Expected a complete answer from the application, got none")
        self.is_complete = True
        status, headers, _ = self._start
        raw = [(_latin1(name), _latin1(value)) for name, value in headers]
        is_whole = self._write is None
        body = b"".join(self._parts) if is_whole else b""
        kept = kept_headers(raw, with_cookies=self._keep_cookies)
        return pack(Answer(int(status[:3]), kept, body, is_whole=is_whole))

    def deliver(self) -> list[bytes]:
        """Send to the first caller what was held back, all of it."""
        if self._write is not None:
            return []
        assert self._start is not None
        self._start_response(*self._start)
        return self._parts

    def _started(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        if self._start is not None and exc_info is None:
            raise RuntimeError("Expected one call of start_response, got a second one")
        if self._write is not None:
            return self._start_response(status, headers, exc_info)  # too late: it raises what has happened
        self._start = (status, headers, exc_info)
        return self._take

    def _take(self, part: bytes) -> None:
        if self._start is None:
            raise RuntimeError("Expected start_response to be called before the body, got a part of the body")
        if self._write is not None:
            self._write(part)
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._max_bytes:
            self._write = self._start_response(*self._start)
            for held in self._parts:
                self._write(held)
            self._parts.clear()


class _Request(Struct, frozen=True):
    """What is compared, along with what runs and what `resolve` gets, which are excluded from the fingerprint."""

    query: bytes
    body: bytes
    exchange: _Exchange
    asked: KeyedRequest


def _read_body(environ: Environ, limit: int) -> bytes:
    """The whole body. Without a length there is none, unless the server says that its end can be seen."""
    source = environ["wsgi.input"]
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        raise InvalidInput("Expected a number as Content-Length, got something else") from None
    if not environ.get("CONTENT_LENGTH") and environ.get("wsgi.input_terminated"):
        length = limit + 1
    if length > limit and environ.get("CONTENT_LENGTH"):
        raise _too_large(limit)
    parts: list[bytes] = []
    left = length
    while left > 0 and (part := source.read(min(left, _READ_BYTES))):
        parts.append(part)
        left -= len(part)
    body = b"".join(parts)
    if len(body) > limit:
        raise _too_large(limit)
    if environ.get("CONTENT_LENGTH") and len(body) < length:
        raise InvalidInput("Expected a whole body, got one that broke off")
    return body


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"Expected a body of at most {limit} bytes with an Idempotency-Key, got more")


def _own_ids(environ: Environ) -> dict[bytes, bytes]:
    return rules.own_ids(lambda name: _latin1(environ.get(f"HTTP_{name.decode().upper().replace('-', '_')}", "")))


def _sent(answer: Answer, start_response: StartResponse) -> list[bytes]:
    phrases = {status.value: status.phrase for status in HTTPStatus}
    headers = [(name.decode("latin1"), value.decode("latin1")) for name, value in answer.headers]
    start_response(f"{answer.status} {phrases.get(answer.status, 'Status')}", headers)
    return [answer.body]


def _latin1(text: str) -> bytes:
    return text.encode("latin1", "replace")
