"""Deliveries as views of web frameworks: a request goes in, a response of the framework comes out.

A view has the name of its function, so either may be given to `Receiver.settle`. What a function returns may be a
response of the framework, if its body is there as a whole: a stream cannot be kept. Frameworks are imported when used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mainspring.errors import TooLarge
from mainspring.idempotency.http.answers import Answer, Headers, as_answer, kept_headers, refusal
from mainspring.idempotency.http.receiver import Delivery, Receiver

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
    from flask import Response as FlaskResponse
    from starlette.requests import Request
    from starlette.responses import Response


def starlette_view(
    receiver: Receiver, work: Callable[[Delivery], Awaitable[object]]
) -> Callable[[Request], Awaitable[Response]]:
    from starlette.requests import ClientDisconnect, Request  # noqa: PLC0415
    from starlette.responses import Response  # noqa: PLC0415

    def answer_of(result: object) -> Answer:
        if not isinstance(result, Response):
            return as_answer(result)
        return Answer(result.status_code, kept_headers(result.raw_headers), bytes(result.body))

    receive = receiver.waiting(work, as_answer=answer_of)

    @functools.wraps(work)
    async def view(request: Request) -> Response:
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > receiver.max_body_bytes:
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


def flask_view(receiver: Receiver, work: Callable[[Delivery], object]) -> Callable[[], FlaskResponse]:
    from flask import Response, make_response, request  # noqa: PLC0415

    def answer_of(result: object) -> Answer:
        if isinstance(result, tuple):  # what Flask takes for body, status and headers
            result = make_response(result)
        if not isinstance(result, Response):
            return as_answer(result)
        return Answer(result.status_code, kept_headers(_raw(result.headers.items())), result.get_data())

    receive = receiver.blocking(work, as_answer=answer_of)

    @functools.wraps(work)
    def view() -> Response:
        body = request.stream.read(receiver.max_body_bytes + 1)
        answer = receive(dict(request.headers), body).answer
        return Response(answer.body, answer.status, _text(answer.headers))

    return view


def django_view(receiver: Receiver, work: Callable[[Delivery], object]) -> Callable[[HttpRequest], HttpResponse]:
    from django.core.exceptions import RequestDataTooBig  # type: ignore[import-untyped]  # noqa: PLC0415
    from django.http import HttpResponse  # noqa: PLC0415
    from django.views.decorators.csrf import csrf_exempt  # type: ignore[import-untyped]  # noqa: PLC0415

    def answer_of(result: object) -> Answer:
        if not isinstance(result, HttpResponse):
            return as_answer(result)
        return Answer(result.status_code, kept_headers(_raw(result.items())), bytes(result.content))

    receive = receiver.blocking(work, as_answer=answer_of)

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


def _raw(headers: Any) -> Headers:
    return [(name.encode("latin1"), value.encode("latin1")) for name, value in headers]


def _text(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin1"), value.decode("latin1")) for name, value in headers]
