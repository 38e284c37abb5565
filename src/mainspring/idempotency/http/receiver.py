"""The receiving end of webhooks in one line: verify callers, do the work of a delivery once, answer repeats as before.

    receiver = Receiver(secrets=[SECRET], store=SQLiteStore("deliveries.db"))

    @app.post("/remind")
    @receiver.flask
    def remind(delivery: Delivery) -> object:
        ...

`starlette` (for FastAPI, too) takes a coroutine function; `flask` and `django` take functions and serve threads;
`blocking` and `waiting` are the same without a framework. The views are in `views`.

- The signature (Standard Webhooks) is checked over the bytes that arrived. A wrong one: 401, and nothing is processed.
- A delivery is identified by its `webhook-id`. Its body is not compared: senders count their attempts in it.
- Answers of 2xx that do not say `"ok": false` are kept. After any other answer, or an error, a repeat runs again.
- A repeat during the work waits for a while, then gets 503 with Retry-After. Not 409, which would make senders give up.
- Work that was started and whose end is unknown: 503, code unknown_outcome, until `resolve` finds out, somebody
  decides manually (`settle`, `forget`), or the sender gives up. With `safe_to_repeat` it runs again.
- Work that returns something that cannot be an answer was done nevertheless: its outcome is unknown, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from mainspring import telemetry
from mainspring.clock import wall_ms
from mainspring.delivery.signatures import verify
from mainspring.errors import (
    ConfigError,
    InvalidInput,
    MainspringError,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
)
from mainspring.idempotency.async_processor import AsyncIdempotentProcessor
from mainspring.idempotency.core import LEASE_SECONDS, TTL_SECONDS
from mainspring.idempotency.errors import InProgress, LostClaim, NotRecorded, UnknownOutcome
from mainspring.idempotency.http.answers import REPLAYED, Answer, PackedAnswer, as_answer, pack, refusal, unpack
from mainspring.idempotency.keys import DERIVED, KEY_LIMIT, checked_scope
from mainspring.idempotency.record import NotDone, Resolved, Unresolved
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.sync_processor import IdempotentProcessor

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
    from flask import Response as FlaskResponse
    from starlette.requests import Request
    from starlette.responses import Response

MAX_BODY_BYTES: Final = 1_000_000
WAIT_SECONDS: Final = 5.0
_REFUSED: Final = (InProgress, LostClaim, StoreUnavailable, UnknownOutcome)


class Delivery(Struct, frozen=True):
    """What arrived, once its signature has been verified."""

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
    """Who may call, and how the work of deliveries is claimed and recorded. One receiver may serve several functions.

    A function gets a `Delivery` and returns the answer: None for `{"ok": true}`, bytes for a body that is JSON already
    (such as `callback_answer()`), an `Answer`, a response of its framework, or any value that JSON can say.
    """

    secrets: Sequence[str]
    store: IdempotencyStore
    scope: str | None = None
    """What the work is called; by default the full name of the function, which nested functions do not have."""
    ttl_seconds: float = TTL_SECONDS
    lease_seconds: float = LEASE_SECONDS
    wait_seconds: float = WAIT_SECONDS
    """How long a repeat waits for the work before it is refused."""
    resolve: Callable[[Delivery, Unresolved], Any] | None = None
    """Finds out about a delivery whose outcome is unknown: `Resolved(answer)`, `NotDone()`, or None."""
    safe_to_repeat: bool = False
    max_body_bytes: int = MAX_BODY_BYTES

    # --- Without a framework --------------------------------------------------------------------------------

    def blocking(
        self, work: Callable[[Delivery], object], *, as_answer: Callable[[object], Answer] = as_answer
    ) -> Callable[[Mapping[str, str], bytes], Received]:
        """For threads: headers and body to an answer. Errors of the work are raised, all others are answers."""
        if inspect.iscoroutinefunction(work):
            raise ConfigError("Expected a plain function, got a coroutine function")

        def run(item: _Work) -> bytes:
            return _packed(work(item.delivery), as_answer)

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
                return _put_off(error)
            return _received(record.result, was_replay=record.was_replay)

        return receive

    def waiting(
        self, work: Callable[[Delivery], Awaitable[object]], *, as_answer: Callable[[object], Answer] = as_answer
    ) -> Callable[[Mapping[str, str], bytes], Awaitable[Received]]:
        """The same for an event loop."""

        async def run(item: _Work) -> bytes:
            result = work(item.delivery)
            return _packed(await result if inspect.isawaitable(result) else result, as_answer)

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
                return _put_off(error)
            return _received(record.result, was_replay=record.was_replay)

        return receive

    # --- Frameworks -----------------------------------------------------------------------------------------

    def starlette(self, work: Callable[[Delivery], Awaitable[object]]) -> Callable[[Request], Awaitable[Response]]:
        """A view of Starlette or FastAPI."""
        from mainspring.idempotency.http.views import starlette_view  # noqa: PLC0415  (loads the framework)

        return starlette_view(self, work)

    def flask(self, work: Callable[[Delivery], object]) -> Callable[[], FlaskResponse]:
        """A view of Flask."""
        from mainspring.idempotency.http.views import flask_view  # noqa: PLC0415

        return flask_view(self, work)

    def django(self, work: Callable[[Delivery], object]) -> Callable[[HttpRequest], HttpResponse]:
        """A view of Django. The signature stands in for the token against forged forms."""
        from mainspring.idempotency.http.views import django_view  # noqa: PLC0415

        return django_view(self, work)

    # --- By hand --------------------------------------------------------------------------------------------

    def settle(self, delivery_id: str, answer: object = None, *, work: Callable[..., object] | None = None) -> None:
        """Record that the work of a delivery whose outcome is unknown was done, and how to answer repeats.

        `work` is the function or its view; it need not be named if the receiver has a `scope`. `answer` is what the
        function might have returned, apart from a response of a framework.
        """
        self._by_hand(work).settle(delivery_id, pack(as_answer(answer)))

    def forget(self, delivery_id: str, *, work: Callable[..., object] | None = None) -> bool:
        """Let the work of a delivery run again, whatever is recorded for it. False if nothing is."""
        return self._by_hand(work).forget(delivery_id)

    async def asettle(
        self, delivery_id: str, answer: object = None, *, work: Callable[..., object] | None = None
    ) -> None:
        """`settle`, for an event loop."""
        await self._by_hand_waiting(work).settle(delivery_id, pack(as_answer(answer)))

    async def aforget(self, delivery_id: str, *, work: Callable[..., object] | None = None) -> bool:
        """`forget`, for an event loop."""
        return await self._by_hand_waiting(work).forget(delivery_id)

    def _by_hand(self, work: Callable[..., object] | None) -> IdempotentProcessor[_Work, bytes]:
        return IdempotentProcessor(self.store, _nothing, scope=self._scope(work), ttl_seconds=self.ttl_seconds)

    def _by_hand_waiting(self, work: Callable[..., object] | None) -> AsyncIdempotentProcessor[_Work, bytes]:
        scope = self._scope(work)
        return AsyncIdempotentProcessor(self.store, _nothing_waiting, scope=scope, ttl_seconds=self.ttl_seconds)

    # --- Both kinds -----------------------------------------------------------------------------------------

    def _settings(self, work: Callable[..., object], resolved: Callable[..., object]) -> dict[str, Any]:
        return {
            "scope": self._scope(work),
            "exclude_fields": ("delivery",),
            "ttl_seconds": self.ttl_seconds,
            "lease_seconds": self.lease_seconds,
            "wait_seconds": self.wait_seconds,
            "keep": _is_done,
            "resolve": None if self.resolve is None else resolved,
            "safe_to_repeat": self.safe_to_repeat,
            "result_type": PackedAnswer,
        }

    def _scope(self, work: Callable[..., object] | None) -> str:
        if self.scope is None and work is None:
            raise ConfigError("Expected work=, the function, for a receiver without a scope, got none")
        return checked_scope(self.scope, work)

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
        if delivery_id.startswith(DERIVED):
            raise InvalidInput(f"Expected a webhook-id that does not start with {DERIVED}, got one that does")
        try:
            data = msgspec.json.decode(body) if body else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"Expected a JSON body, got: {error}") from error
        return Delivery(delivery_id, data, body, lower)


class _Work(Struct, frozen=True):
    """A delivery as work. Its one field is excluded from the fingerprint: the id alone tells what is a repeat."""

    delivery: Delivery


def _packed(result: object, as_answer: Callable[[object], Answer]) -> bytes:
    try:
        return pack(as_answer(result))
    except Exception as error:
        told = f"The work was done, but what it returned cannot be an answer: {error}"
        telemetry.error("a delivery has no valid answer, and its outcome is unknown", detail=told)
        raise UnknownOutcome(told) from error


def _nothing(work: _Work) -> bytes:
    raise AssertionError  # deciding by hand runs nothing


async def _nothing_waiting(work: _Work) -> bytes:
    raise AssertionError


def _is_done(kept: bytes) -> bool:
    """Whether the sender will take this answer as success: then, and only then, a repeat must not run."""
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


def _put_off(error: MainspringError) -> Received:
    """503, whatever it is: the sender comes again."""
    if isinstance(error, StoreUnavailable):
        telemetry.warning("a delivery was refused", reason=error.detail)
    return Received(refusal(error, status=503))


def _not_recorded(error: NotRecorded) -> Received:
    """The work was done, and this one sender may know."""
    if not isinstance(error.result, bytes):
        raise error
    return _received(error.result, was_replay=False)
