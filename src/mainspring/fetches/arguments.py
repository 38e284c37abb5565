"""What a program says about a fetch, as the request that the API would get, with the same checks."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypedDict, Unpack

from msgspec import UNSET

from mainspring.errors import InvalidInput
from mainspring.fetches.messages import CreateFetch, FetchState, Method, Undelivered
from mainspring.keywords import refuse_unknown
from mainspring.wire.arguments import json_of, request
from mainspring.wire.strict_json import encode

CONTENT_TYPE = "content-type"
LONGEST_WAIT_SECONDS: Final = 31_536_000.0
"""For a result: a year."""


class FetchesWhere(TypedDict, total=False):
    """Which fetches; all conditions must hold; without any, everything matches."""

    states: Sequence[FetchState]
    may_have_acted: bool
    """Only those without a response whose target may have acted."""
    deliveries: Sequence[Undelivered]
    """Only those whose result is on its way to its origin, or did not reach it."""
    labels: Mapping[str, str]
    since: datetime
    """Created at or after this instant."""
    until: datetime
    """Created before this instant."""


class RequestFields(TypedDict, total=False):
    """The call. At most one of `body` and `json`; the latter is encoded and sent as JSON."""

    method: Method
    headers: Mapping[str, str]
    body: str | bytes
    json: object
    max_redirects: int


class FetchFields(RequestFields, total=False):
    """The call, and how it is to be handled."""

    timeout_seconds: float
    req_id: str
    result_url: str
    context: object
    """Any JSON-like value; returned with the result."""
    executor: str
    delivery_seconds: float
    labels: Mapping[str, str]


def new_req_id() -> str:
    return f"req_{secrets.token_hex(16)}"


def create_request(url: str, **fields: Unpack[FetchFields]) -> CreateFetch:
    """With a generated reqId if there is none, so that the request can be repeated without a second call."""
    refuse_unknown(fields, FetchFields.__optional_keys__)
    if "json" in fields and "body" in fields:
        raise InvalidInput("Expected one of body and json, got both")
    said = {
        **{name: value for name, value in fields.items() if name not in _OF_THE_CALL and value is not None},
        "request": _call(url, fields),
        "req_id": fields.get("req_id") or new_req_id(),
        "context": json_of(fields["context"], "a context") if "context" in fields else UNSET,
    }
    return request(CreateFetch, said, _NAMES)


def _call(url: str, fields: FetchFields) -> dict[str, object]:
    """`OutboundRequest` as it is written."""
    headers: object = fields.get("headers", {})
    call: dict[str, object] = {"url": url, "headers": headers}
    if "method" in fields:
        call["method"] = fields["method"]
    if "max_redirects" in fields:
        call["maxRedirects"] = fields["max_redirects"]
    if "json" in fields:
        call["body"] = encode(fields["json"], "json").decode()
        if isinstance(headers, Mapping) and CONTENT_TYPE not in {str(name).lower() for name in headers}:
            call["headers"] = {**headers, CONTENT_TYPE: "application/json"}
    elif isinstance(body := fields.get("body"), bytes):
        call["bodyBase64"] = base64.b64encode(body).decode()
    elif body is not None:
        call["body"] = body
    return call


_OF_THE_CALL: Final = RequestFields.__optional_keys__
_NAMES: Final = {"request.body_base64": "body", "request": ""}
"""What programs call the fields of a message."""
