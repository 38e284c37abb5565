"""Errors as RFC 9457 problems. Whatever goes wrong becomes a `CartError` first, so there is one table and one shape."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.errors import Conflict, InvalidInput, MainspringError, TooLarge, Unavailable
from mainspring.idempotency import InProgress, KeyReuse, UnknownOutcome
from telecom_cart.api.correlation import correlation_id
from telecom_cart.api.refusals import (
    BodyTooLarge,
    CrossSite,
    KeyInUse,
    KeyReused,
    KeyUnknown,
    MethodNotAllowed,
    NoSuchPath,
    NotJson,
    StoreDown,
)
from telecom_cart.checks import pointer_to
from telecom_cart.errors import CartError, FieldProblem, InternalError, OperationTimeout, ValidationFailed
from telecom_cart.sites import is_foreign

STATUSES: Final[Mapping[str, int]] = {
    "VALIDATION_ERROR": 400,
    "EMPTY_CART": 400,
    "AMBIGUOUS_CHECKOUT": 400,
    "CROSS_SITE": 403,
    "CART_NOT_FOUND": 404,
    "ITEM_NOT_FOUND": 404,
    "ORDER_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "IDEMPOTENCY_KEY_IN_USE": 409,
    "IDEMPOTENCY_OUTCOME_UNKNOWN": 409,
    "PRECONDITION_FAILED": 412,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "ALREADY_CHECKED_OUT": 422,
    "CHECKOUT_IN_PROGRESS": 422,
    "CHECKOUT_FAILED": 422,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "INTERNAL_ERROR": 500,
    "CHECKOUT_UNKNOWN": 503,
    "EXTERNAL_PROVIDER_ERROR": 503,
    "OPERATION_TIMEOUT": 503,
    "STORE_UNAVAILABLE": 503,
}
MEDIA_TYPE: Final = "application/problem+json"
MOST_ERRORS: Final = 20
MOST_CHARACTERS: Final = 200
"""Of wrong fields that are told, and of the name of one."""

_OF_HTTP: Final[Mapping[int, type[CartError]]] = {
    404: NoSuchPath,
    405: MethodNotAllowed,
    413: BodyTooLarge,
    415: NotJson,
}

_ENCODED_SLASH: Final = re.compile(rb"(?i)%2f|%5c")

logger = logging.getLogger("telecom_cart.api")


def response_of(error: CartError, headers: Mapping[str, str] | None = None) -> Response:
    status = STATUSES[error.code]
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": error.code,
        "detail": error.detail,
        "retryable": error.retryable,
        "errors": [{"pointer": problem.pointer, "detail": problem.detail} for problem in _bounded(error.errors)],
        "correlationId": correlation_id(),
    }
    after = {} if error.retry_after_seconds is None else {"Retry-After": str(error.retry_after_seconds)}
    # As ASCII: what is quoted from a request may be text that no encoding knows.
    return Response(json.dumps(body), status, {**(headers or {}), **after}, MEDIA_TYPE)


def _bounded(errors: Sequence[FieldProblem]) -> list[FieldProblem]:
    """Every wrong field, but no answer that is many times as large as its request."""
    told = [replace(each, pointer=each.pointer[:MOST_CHARACTERS]) for each in errors[:MOST_ERRORS]]
    if len(errors) > MOST_ERRORS:
        told.append(FieldProblem("", f"There are {len(errors) - MOST_ERRORS} more"))
    return told


def error_of(error: Exception) -> CartError:
    """What users are told of anything that was raised. Nobody foresaw it: no details, which are in the log."""
    match error:
        case CartError():
            return error
        case Unavailable():
            return StoreDown()
        case InProgress():
            return OperationTimeout("Another request is using the same Idempotency-Key right now. Nothing was changed.")
        case ClientDisconnect():
            return InternalError()  # which nobody is there to read
        case _:
            logger.error("a request failed unexpectedly", exc_info=error)
            return InternalError()


def key_error_of(error: MainspringError) -> CartError:
    """What is told of an Idempotency-Key that cannot be used, or of a body beside it."""
    match error:
        case TooLarge():
            return BodyTooLarge()
        case KeyReuse():
            return KeyReused()
        case InProgress():
            return KeyInUse()
        case UnknownOutcome() | Conflict():
            return KeyUnknown()
        case InvalidInput():
            return ValidationFailed(errors=(FieldProblem("Idempotency-Key", error.detail),))
        case _:
            return error_of(error)


def install(app: FastAPI, routes: Sequence[Route]) -> None:
    async def known(_: Request, error: Exception) -> Response:
        return response_of(error_of(error))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = _OF_HTTP.get(error.status_code)
        told = ValidationFailed() if kind is None and error.status_code < 500 else (kind or InternalError)()
        if kind is not MethodNotAllowed:
            return response_of(told, error.headers)
        # A path has a route for each of its methods, and the framework names those of the first one only.
        path = request.scope["path"]
        allowed = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
        allowed |= {"HEAD"} if "GET" in allowed else set()
        return response_of(told, {"Allow": ", ".join(sorted(allowed))} if allowed else error.headers)

    async def of_fastapi(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = (FieldProblem(pointer_to(*map(str, each["loc"][1:])), each["msg"]) for each in error.errors())
        return response_of(ValidationFailed(errors=tuple(problems)))

    for kind in (CartError, MainspringError):
        app.add_exception_handler(kind, known)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_fastapi)


class Strangers:
    """Refuses what a page of another site would change, and a path that has two readings."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif is_foreign(scope):
            await response_of(CrossSite())(scope, receive, send)
        elif _ENCODED_SLASH.search(scope.get("raw_path") or b""):
            await response_of(NoSuchPath())(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class Unforeseen:
    """Answers what nobody foresaw, if nothing was answered yet."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False

        async def watched(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # the last one who can answer
            if scope["type"] != "http" or is_begun:
                raise
            await response_of(error_of(error))(scope, receive, send)
