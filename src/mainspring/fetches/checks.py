"""What the types cannot say about a request for a fetch: rules that hold however a fetch is requested."""

from __future__ import annotations

from msgspec import UNSET

from mainspring.delivery.headers import check_headers
from mainspring.errors import FieldError, InvalidInput
from mainspring.fetches.call import body_of
from mainspring.fetches.messages import CreateFetch
from mainspring.wire.checks import CheckUrl, label_errors, refuse, url_errors


def check(
    request: CreateFetch,
    *,
    check_url: CheckUrl,
    check_result_url: CheckUrl,
    body_bytes: int,
    context_bytes: int,
) -> None:
    """Raise `InvalidInput` that names every wrong field. `check_url` refuses targets, `check_result_url` origins."""
    errors = [*url_errors("/request/url", request.request.url, check_url), *_body_errors(request, body_bytes)]
    if request.result_url is not None:
        errors += url_errors("/resultUrl", request.result_url, check_result_url)
    try:
        check_headers(request.request.headers, reserved=False)
    except InvalidInput as error:
        errors += [FieldError(f"/request{wrong.pointer}", wrong.detail) for wrong in error.errors]
    if request.context is not UNSET and len(bytes(request.context)) > context_bytes:
        errors.append(
            FieldError("/context", f"Expected at most {context_bytes} bytes, got {len(bytes(request.context))}")
        )
    refuse(errors + label_errors(request.labels))


def _body_errors(request: CreateFetch, limit: int) -> list[FieldError]:
    call = request.request
    if call.body is not UNSET and call.body_base64 is not UNSET:
        return [FieldError("/request/bodyBase64", "Expected at most one of body and bodyBase64, got both")]
    pointer = "/request/body" if call.body_base64 is UNSET else "/request/bodyBase64"
    try:
        size = len(body_of(call))
    except ValueError:
        return [FieldError(pointer, "Expected valid base64, got something else")]
    return [] if size <= limit else [FieldError(pointer, f"Expected at most {limit} bytes, got {size}")]
