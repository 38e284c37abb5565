"""The receiving end of webhooks in one line: check who calls, do the work of a delivery once, answer repeats as before.

    receiver = Receiver(secrets=[SECRET], store=SQLiteStore("deliveries.db"))

    @app.post("/remind")
    @receiver.flask
    def remind(delivery: Delivery) -> object:
        ...

`starlette` (for FastAPI, too) takes a coroutine function; `flask` and `django` take functions and serve threads;
`blocking` and `waiting` are the same without a framework. Frameworks are imported when used.

- The signature (Standard Webhooks) is checked over the bytes that arrived. A wrong one: 401, and nothing is looked at.
- A delivery is known by its `webhook-id`. Its body is not compared: senders count their attempts in it.
- Kept are answers of 2xx that do not say `"ok": false`. After any other answer, or an error, a repeat runs again.
- A repeat during the work waits for a while: then 503 with Retry-After. Not 409, which tells senders to give up.
- Work that was begun and whose end nobody knows: 503, code unknown_outcome, until `resolve` tells, somebody settles it
  by hand, or the sender gives up. With `safe_to_repeat` it runs again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from mainspring.clock import wall_ms
from mainspring.delivery.signing import verify
from mainspring.errors import InvalidInput, MainspringError, StoreUnavailable, TooLarge, Unauthenticated
from mainspring.idempotency.answers import REPLAYED, Answer, Headers, kept_headers, pack, refusal, unpack
from mainspring.idempotency.blocking import IdempotentProcessor
from mainspring.idempotency.core import LEASE_SECONDS, TTL_SECONDS
from mainspring.idempotency.errors import InProgress, LostClaim, NotRecorded, UnknownOutcome
from mainspring.idempotency.keys import KEY_LIMIT
from mainspring.idempotency.outcome import NotDone, Resolved, Unresolved
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.waiting import AsyncIdempotentProcessor

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
    from flask import Response as FlaskResponse
    from starlette.requests import Request
    from starlette.responses import Response

MAX_BODY_BYTES: Final = 1_000_000
WAIT_SECONDS: Final = 5.0
_JSON: Final = b"application/json"
_DONE: Final = b'{"ok":true}'
_REFUSED: Final = (InProgress, LostClaim, StoreUnavailable, UnknownOutcome)


class Delivery(Struct, frozen=True):
    """What arrived, after its signature was found right."""

    id: str
    """The `webhook-id`: the same for all repeats."""
    data: Any
    """The body, as JSON says it."""
    body: bytes
    headers: Mapping[str, str]
    """By names in lower case."""


class Received(Struct, frozen=True):
    """What to answer, and whether it was recorded before."""

    answer: Answer
    was_replay: bool = False


class Receiver(Struct, frozen=True, kw_only=True):
    """Who may call, and how the work of deliveries is claimed and recorded. One may serve several functions.

    A function gets a `Delivery` and returns the answer: None for `{"ok": true}`, bytes for a body that is JSON already
    (such as `callback_answer()`), an `Answer`, a response of its framework, or any value that JSON can say.
    """

    secrets: Sequence[str]
    store: IdempotencyStore
    scope: str | None = None
    """What the work is called; else the full name of the function, and functions within functions have none."""
    ttl_seconds: float = TTL_SECONDS
    lease_seconds: float = LEASE_SECONDS
    wait_seconds: float = WAIT_SECONDS
    """How long a repeat waits for the work before it is sent away."""
    resolve: Callable[[Delivery, Unresolved], Any] | None = None
    """Tells about a delivery whose outcome is unknown: `Resolved(answer)`, `NotDone()`, or None."""
    safe_to_repeat: bool = False
    max_body_bytes: int = MAX_BODY_BYTES

    # --- Without a framework --------------------------------------------------------------------------------

    def blocking(self, work: Callable[[Delivery], object]) -> Callable[[Mapping[str, str], bytes], Received]:
        """For threads: headers and body to an answer. Errors of the work are raised, all others are answers."""

        def run(item: _Work) -> bytes:
            return pack(as_answer(work(item.delivery)))

        def resolved(item: _Work, unresolved: Unresolved) -> Resolved[bytes] | NotDone | None:
            assert self.resolve is not None
            return _resolution(self.resolve(item.delivery, unresolved))

        processor = IdempotentProcessor[_Work, bytes](self.store, run, **self._settings(work, resolved))

        def receive(headers: Mapping[str, str], body: bytes) -> Received:
            try:
                delivery = self._read(headers, body)
            except MainspringError as error:
                return Received(refusal(error))
            try:
                record = processor.process(_Work(delivery), key=delivery.id)
            except NotRecorded as error:
                return _not_recorded(error)
            except _REFUSED as error:
                return Received(refusal(error, status=503))
            return _received(record.result, was_replay=record.was_replay)

        return receive

    def waiting(
        self, work: Callable[[Delivery], Awaitable[object]]
    ) -> Callable[[Mapping[str, str], bytes], Awaitable[Received]]:
        """The same for an event loop."""

        async def run(item: _Work) -> bytes:
            return pack(as_answer(await work(item.delivery)))

        async def resolved(item: _Work, unresolved: Unresolved) -> Resolved[bytes] | NotDone | None:
            assert self.resolve is not None
            resolution = self.resolve(item.delivery, unresolved)
            return _resolution(await resolution if inspect.isawaitable(resolution) else resolution)

        processor = AsyncIdempotentProcessor[_Work, bytes](self.store, run, **self._settings(work, resolved))

        async def receive(headers: Mapping[str, str], body: bytes) -> Received:
            try:
                delivery = self._read(headers, body)
            except MainspringError as error:
                return Received(refusal(error))
            try:
                record = await processor.process(_Work(delivery), key=delivery.id)
            except NotRecorded as error:
                return _not_recorded(error)
            except _REFUSED as error:
                return Received(refusal(error, status=503))
            return _received(record.result, was_replay=record.was_replay)

        return receive

    # --- Frameworks -----------------------------------------------------------------------------------------

    def starlette(self, work: Callable[[Delivery], Awaitable[object]]) -> Callable[[Request], Awaitable[Response]]:
        """A view of Starlette or FastAPI."""
        from starlette.requests import ClientDisconnect, Request  # noqa: PLC0415
        from starlette.responses import Response  # noqa: PLC0415

        async def answered(delivery: Delivery) -> object:
            result = await work(delivery)
            if not isinstance(result, Response):
                return result
            return Answer(result.status_code, kept_headers(result.raw_headers), bytes(result.body))

        receive = self.waiting(functools.wraps(work)(answered))

        @functools.wraps(work)
        async def view(request: Request) -> Response:
            body = bytearray()
            try:
                async for part in request.stream():
                    body += part
                    if len(body) > self.max_body_bytes:
                        break
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it
            answer = (await receive(request.headers, bytes(body))).answer
            response = Response(answer.body, answer.status)
            response.raw_headers = list(answer.headers)
            return response

        # FastAPI reads what a view takes from its signature: the request, not a delivery.
        parameter = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)
        view.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        view.__annotations__ = {"request": Request}
        return view

    def flask(self, work: Callable[[Delivery], object]) -> Callable[[], FlaskResponse]:
        """A view of Flask."""
        from flask import Response, request  # noqa: PLC0415

        def answered(delivery: Delivery) -> object:
            result = work(delivery)
            if not isinstance(result, Response):
                return result
            return Answer(result.status_code, kept_headers(_raw(result.headers.items())), result.get_data())

        receive = self.blocking(functools.wraps(work)(answered))

        @functools.wraps(work)
        def view() -> Response:
            body = request.stream.read(self.max_body_bytes + 1)
            answer = receive(dict(request.headers), body).answer
            return Response(answer.body, answer.status, _text(answer.headers))

        return view

    def django(self, work: Callable[[Delivery], object]) -> Callable[[HttpRequest], HttpResponse]:
        """A view of Django. The signature stands in for the token against forged forms."""
        from django.core.exceptions import RequestDataTooBig  # type: ignore[import-untyped]  # noqa: PLC0415
        from django.http import HttpResponse  # noqa: PLC0415
        from django.views.decorators.csrf import csrf_exempt  # type: ignore[import-untyped]  # noqa: PLC0415

        def answered(delivery: Delivery) -> object:
            result = work(delivery)
            if not isinstance(result, HttpResponse):
                return result
            return Answer(result.status_code, kept_headers(_raw(result.items())), bytes(result.content))

        receive = self.blocking(functools.wraps(work)(answered))

        @functools.wraps(work)
        def view(request: HttpRequest) -> HttpResponse:
            try:
                body = request.body
            except RequestDataTooBig:  # Django's own limit is lower than ours
                answer = refusal(TooLarge())
            else:
                answer = receive(request.headers, body).answer
            return HttpResponse(answer.body, status=answer.status, headers=dict(_text(answer.headers)))

        exempt: Callable[[HttpRequest], HttpResponse] = csrf_exempt(view)
        return exempt

    # --- Both kinds -----------------------------------------------------------------------------------------

    def _settings(self, work: Callable[..., object], resolved: Callable[..., object]) -> dict[str, Any]:
        return {
            "scope": self.scope or _name(work),
            "exclude_fields": ("delivery",),
            "ttl_seconds": self.ttl_seconds,
            "lease_seconds": self.lease_seconds,
            "wait_seconds": self.wait_seconds,
            "keep": _is_done,
            "resolve": None if self.resolve is None else resolved,
            "safe_to_repeat": self.safe_to_repeat,
        }

    def _read(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        if len(body) > self.max_body_bytes:
            raise TooLarge(f"Expected a body of at most {self.max_body_bytes} bytes, got more")
        try:
            verify(self.secrets, headers, body, now=wall_ms() // 1000)
        except InvalidInput as error:
            raise Unauthenticated(error.detail) from error
        lower = {name.lower(): value for name, value in headers.items()}
        delivery_id = lower["webhook-id"]
        if len(delivery_id) > KEY_LIMIT:
            raise InvalidInput(f"Expected a webhook-id of at most {KEY_LIMIT} characters, got {len(delivery_id)}")
        try:
            data = msgspec.json.decode(body) if body else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"Expected a body of JSON, got: {error}") from error
        return Delivery(delivery_id, data, body, lower)


class _Work(Struct, frozen=True):
    """A delivery as work. Its one field is excluded from the fingerprint: the id alone tells what is a repeat."""

    delivery: Delivery


def as_answer(result: object) -> Answer:
    match result:
        case Answer():
            return result
        case None:
            body = _DONE
        case bytes():
            body = result
        case _:
            body = msgspec.json.encode(result)
    return Answer(200, [(b"content-type", _JSON), (b"content-length", b"%d" % len(body))], body)


def _is_done(kept: bytes) -> bool:
    """Whether the sender will take this answer for success: then, and only then, a repeat must not run."""
    answer = unpack(kept)
    return 200 <= answer.status < 300 and not _says_not_ok(answer.body)


def _says_not_ok(body: bytes) -> bool:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(said, dict) and said.get("ok") is False


def _resolution(resolution: Resolved[object] | NotDone | None) -> Resolved[bytes] | NotDone | None:
    if isinstance(resolution, Resolved):
        return Resolved(pack(as_answer(resolution.result)))
    return resolution


def _received(kept: bytes, *, was_replay: bool) -> Received:
    answer = unpack(kept)
    return Received(
        Answer(answer.status, [*answer.headers, REPLAYED], answer.body) if was_replay else answer, was_replay
    )


def _not_recorded(error: NotRecorded) -> Received:
    """The work was done, and this one sender may know."""
    if not isinstance(error.result, bytes):
        raise error
    return _received(error.result, was_replay=False)


def _name(work: Callable[..., object]) -> str | None:
    """The full name of a function; None for one that shares its name with others, which is refused."""
    name = getattr(work, "__qualname__", "<")
    return None if "<" in name else f"{work.__module__}.{name}"


def _raw(headers: Any) -> Headers:
    return [(name.encode("latin1"), value.encode("latin1")) for name, value in headers]


def _text(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin1"), value.decode("latin1")) for name, value in headers]
