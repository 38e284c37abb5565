"""From a request to a new fetch: what the types cannot say about it, and what it is when it is stored."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, Raw

from mainspring.delivery.headers import check_headers
from mainspring.errors import FieldError, InvalidInput, UnsafeTarget
from mainspring.fetches.call import body_of
from mainspring.fetches.messages import CreateFetch
from mainspring.fetches.record import IN_PROCESS, SPARE, Fetch
from mainspring.text import hides_something
from mainspring.timers.checks import HIDDEN


def check(
    request: CreateFetch,
    *,
    check_url: Callable[[str], object],
    check_result_url: Callable[[str], object],
    body_bytes: int,
    context_bytes: int,
) -> None:
    """Raise `InvalidInput` that names every wrong field. `check_url` refuses targets, `check_result_url` origins."""
    errors = [*_url_errors("/request/url", request.request.url, check_url), *_body_errors(request, body_bytes)]
    if request.result_url is not None:
        errors += _url_errors("/resultUrl", request.result_url, check_result_url)
    try:
        check_headers(request.request.headers, reserved=False)
    except InvalidInput as error:
        errors += [FieldError(f"/request{wrong.pointer}", wrong.detail) for wrong in error.errors]
    if request.context is not UNSET and len(bytes(request.context)) > context_bytes:
        errors.append(
            FieldError("/context", f"Expected at most {context_bytes} bytes, got {len(bytes(request.context))}")
        )
    for name, value in request.labels.items():
        if hides_something(name + value):
            errors.append(FieldError("/labels", f"{HIDDEN}, in label {name!r}"))
    if errors:
        raise InvalidInput(errors[0].detail, errors=tuple(errors))


def _url_errors(pointer: str, url: str, check_url: Callable[[str], object]) -> list[FieldError]:
    try:
        check_url(url)
    except (InvalidInput, UnsafeTarget) as error:
        return [FieldError(pointer, error.detail)]
    return []


def _body_errors(request: CreateFetch, limit: int) -> list[FieldError]:
    call = request.request
    if call.body is not UNSET and call.body_base64 is not UNSET:
        return [FieldError("/request/bodyBase64", "Expected at most one of body and bodyBase64, got both")]
    pointer = "/request/body" if call.body_base64 is UNSET else "/request/bodyBase64"
    try:
        size = len(body_of(call))
    except ValueError:
        return [FieldError(pointer, "Expected base64, got something else")]
    return [] if size <= limit else [FieldError(pointer, f"Expected at most {limit} bytes, got {size}")]


def new_fetch(request: CreateFetch, *, req_id: str, now: int) -> Fetch:
    return Fetch(
        req_id=req_id,
        request=request.request,
        timeout_ms=round(request.timeout_seconds * 1000),
        created_at=now,
        delivery_ms=round(request.delivery_seconds * 1000),
        result_url=request.result_url,
        context=Raw(b"null") if request.context is UNSET else request.context,
        labels=request.labels,
        pool=None if request.executor == IN_PROCESS else request.executor,
        spare=SPARE,
    )
