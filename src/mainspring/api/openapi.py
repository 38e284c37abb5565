"""The OpenAPI 3.1 document, made from the routes and the message types. Deterministic: same code, same bytes.

Types say almost everything; `_RULES` adds what they cannot say. Rules that depend on stored data stay unsaid, and are
answered with the documented problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mainspring.api.routes import JSON, Route
from mainspring.jobs.messages import UpdateJob
from mainspring.namespaces.messages import UpdateNamespace
from mainspring.timers.messages import UpdateTimer
from mainspring.wire.checks import CHANGES_NOTHING
from mainspring.wire.problems import PROBLEM_TYPE, STATUSES, Problem

Document = dict[str, Any]

DESCRIPTION: Final = (
    "Mainspring: durable timers, jobs and fetches over HTTP. Request an HTTP call that must happen at a given "
    "time or on a calendar, or now and at most once; an acknowledged request has been committed. Every operation is a "
    "POST with a JSON object; every error is an application/problem+json. Instants are read as RFC 3339 with an offset "
    "or as epoch milliseconds and written as RFC 3339 in UTC."
)
_TAGS: Final = {
    "timers": "HTTP calls that must happen.",
    "jobs": "HTTP calls on a calendar, and what became of each of its instants.",
    "fetches": "HTTP calls that are made at most once, with a result that is delivered.",
    "namespaces": "Separate sets of timer ids, each with its own shards, secrets and defaults.",
    "shards": "Which instance owns which shard.",
    "instances": "Which instances are alive.",
    "status": "For operators of the server.",
}


def _changes(update: type[msgspec.Struct]) -> list[Document]:
    """An update changes at least one field."""
    names = zip(update.__struct_fields__, update.__struct_encode_fields__, strict=True)
    return [{"required": [wire]} for name, wire in names if name not in CHANGES_NOTHING]


_ONE_TIME: Final = [{"required": ["executeAt"]}, {"required": ["delaySeconds"]}]
_RULES: Final[Mapping[str, Mapping[str, object]]] = {
    "CreateTimer": {"oneOf": _ONE_TIME},
    "OutboundRequest": {"not": {"required": ["body", "bodyBase64"]}},
    "UpdateTimer": {"not": {"required": ["executeAt", "delaySeconds"]}, "anyOf": _changes(UpdateTimer)},
    "UpdateJob": {"anyOf": _changes(UpdateJob)},
    "UpdateNamespace": {"anyOf": _changes(UpdateNamespace)},
}
_KEY_PARAMETER: Final[Mapping[str, object]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeating the same bytes with the same key and token within 24 h returns the first answer, with "
    "Idempotent-Replayed: true, and changes nothing. Still in progress: 409 in_progress with Retry-After; different "
    "bytes: 422 key_reuse. Answers other than 200 are not kept.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_NOT_REPEATED: Final = " If it is unknown whether the first was carried out: 409 unknown_outcome."
_REPLAYED: Final[Mapping[str, object]] = {
    "Idempotent-Replayed": {"schema": {"const": "true"}, "description": "The answer was recorded earlier."}
}


def openapi_document(routes: tuple[Route, ...], *, version: str) -> Document:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainspring", "version": version, "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {route.path: {route.method.lower(): _operation(route)} for route in routes},
        "components": {
            "schemas": _schemas(routes),
            "responses": {code: _problem_response(code) for code in STATUSES},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> Document:
    operation: Document = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "security": [] if route.is_open else [{"token": []}],
    }
    if route.request is not None:
        operation["description"] = _docstring(route.request)
        content: Document = {"schema": _ref(route.request)}
        if route.example is not None:
            content["example"] = msgspec.json.decode(msgspec.json.encode(route.example))
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    if route.takes_key:
        operation["parameters"] = [_key_parameter(route)]
    schema = _ref(route.answer) if route.answer is not None else {"type": "string"}
    media_type = route.content_type.partition(";")[0]
    responses: Document = {
        "200": {
            "description": "Done." if route.answer is None else _docstring(route.answer),
            "headers": {"X-Request-ID": {"schema": {"type": "string"}}, **(_REPLAYED if route.takes_key else {})},
            "content": {media_type: {"schema": schema}},
        }
    }
    for code in route.problems:
        responses[str(STATUSES[code][0])] = {"$ref": f"#/components/responses/{code}"}
    operation["responses"] = responses
    return operation


def _key_parameter(route: Route) -> Document:
    description = str(_KEY_PARAMETER["description"])
    return {**_KEY_PARAMETER, "description": description if route.safe_to_repeat else description + _NOT_REPEATED}


def _schemas(routes: tuple[Route, ...]) -> Document:
    types: list[type[msgspec.Struct]] = [Problem]
    for route in routes:
        types += [found for found in (route.request, route.answer) if found is not None]
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(types)), ref_template="#/components/schemas/{name}"
    )
    for name, rules in _RULES.items():
        components[name].update(rules)
    return dict(sorted(components.items()))


def _problem_response(code: str) -> Document:
    status, title = STATUSES[code]
    response: Document = {
        "description": f"{title}.",
        "content": {PROBLEM_TYPE: {"schema": _ref(Problem)}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return response


def _ref(struct: type[msgspec.Struct]) -> Document:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _docstring(struct: type[msgspec.Struct]) -> str:
    return " ".join((struct.__doc__ or "").split())
