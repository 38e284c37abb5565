"""What a program says about a fetch, as the request that the API would get, with the same checks."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import TypedDict, Unpack

from msgspec import Raw

from mainspring.errors import InvalidInput
from mainspring.fetches.messages import CreateFetch, Method
from mainspring.wire.strict_json import decode, encode

CONTENT_TYPE = "content-type"


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
    headers = dict(fields.get("headers", {}))
    request: dict[str, object] = {"url": url, "headers": headers}
    if "method" in fields:
        request["method"] = fields["method"]
    if "max_redirects" in fields:
        request["maxRedirects"] = fields["max_redirects"]
    if "json" in fields:
        if "body" in fields:
            raise InvalidInput("Expected one of body and json, got both")
        request["body"] = encode(fields["json"], "json").decode()
        if CONTENT_TYPE not in {name.lower() for name in headers}:
            headers[CONTENT_TYPE] = "application/json"
    elif isinstance(body := fields.get("body"), bytes):
        request["bodyBase64"] = base64.b64encode(body).decode()
    elif body is not None:
        request["body"] = body
    document: dict[str, object] = {"request": request, "reqId": fields.get("req_id") or new_req_id()}
    for name, wire in _PASSED_ON.items():
        if fields.get(name) is not None:
            document[wire] = fields.get(name)
    if "context" in fields:
        document["context"] = Raw(encode(fields["context"], "context"))
    return decode(encode(document, "fields"), CreateFetch)


_PASSED_ON = {
    "timeout_seconds": "timeoutSeconds",
    "result_url": "resultUrl",
    "executor": "executor",
    "delivery_seconds": "deliverySeconds",
    "labels": "labels",
}
