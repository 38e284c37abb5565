"""The OpenAPI 3.1 document, made from the routes and the message types. Deterministic: same code, same bytes.

Types say almost everything; `_RULES` adds what they cannot say, in keywords that generators of clients leave alone:
`oneOf` and `anyOf` beside `properties` would make them forget the fields. Rules that depend on stored data stay unsaid,
and are answered with the documented problems.
"""

from __future__ import annotations

import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from mainspring.api.field_meanings import meaning
from mainspring.api.routes import JSON, Route
from mainspring.jobs.messages import UpdateJob
from mainspring.namespaces.messages import UpdateNamespace
from mainspring.timers.messages import CreateTimer, UpdateTimer
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
    "keys": "Idempotency keys in the server's store: those whose outcome is unknown, and what is decided about them.",
    "namespaces": "Separate sets of timer ids, each with its own shards, secrets and defaults.",
    "shards": "Which instance owns which shard.",
    "instances": "Which instances are alive.",
    "status": "For operators of the server.",
}


def _changes(update: type[msgspec.Struct]) -> Document:
    """An update changes at least one field: it does not consist of the others alone."""
    names = zip(update.__struct_fields__, update.__struct_encode_fields__, strict=True)
    return {"not": {"propertyNames": {"enum": [wire for name, wire in names if name in CHANGES_NOTHING]}}}


_NOT_BOTH: Final = {"if": {"required": ["executeAt"]}, "then": {"not": {"required": ["delaySeconds"]}}}
_RULES: Final[Mapping[str, Mapping[str, object]]] = {
    "CreateTimer": {**_NOT_BOTH, "else": {"required": ["delaySeconds"]}},
    "OutboundRequest": {"not": {"required": ["body", "bodyBase64"]}},
    "UpdateTimer": {**_NOT_BOTH, **_changes(UpdateTimer)},
    "UpdateJob": _changes(UpdateJob),
    "UpdateNamespace": _changes(UpdateNamespace),
}
_ITEMS: Final[Mapping[tuple[str, str], type[msgspec.Struct]]] = {("CreateTimers", "timers"): CreateTimer}
"""What is read item by item, so that each has its own problem."""
_SERVERS: Final = (
    {"url": "/", "description": "Where this document comes from."},
    {"url": "http://127.0.0.1:8700", "description": "A server without settings, on this machine."},
)
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
_CORRELATION: Final[Mapping[str, object]] = {
    "name": "X-Correlation-ID",
    "in": "header",
    "required": False,
    "description": "Names what several requests belong to. It comes back with the answer, is in the server's log, and "
    "goes with a timer to its callback and with a fetch to its resultUrl. What is not 1 to 128 visible ASCII "
    "characters is treated as none.",
    "schema": {"type": "string"},
}
_ID_HEADERS: Final[Mapping[str, object]] = {
    "X-Request-ID": {
        "schema": {"type": "string"},
        "description": "The id under which the request is in the server's log: yours, if you sent one.",
    },
    "X-Correlation-ID": {"schema": {"type": "string"}, "description": "The one of the request, if it had one."},
}
_REPLAYED: Final[Mapping[str, object]] = {
    "Idempotent-Replayed": {"schema": {"const": "true"}, "description": "The answer was recorded earlier."}
}


def openapi_document(routes: tuple[Route, ...], *, version: str) -> Document:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainspring", "version": version, "description": DESCRIPTION},
        "servers": list(_SERVERS),
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {route.path: {route.method.lower(): _operation(route)} for route in routes},
        "components": {
            "schemas": _schemas(routes),
            "parameters": {"CorrelationId": _CORRELATION},
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
    if route.request is not None:
        shared = {"$ref": "#/components/parameters/CorrelationId"}
        operation["parameters"] = [_key_parameter(route), shared] if route.takes_key else [shared]
    schema = _ref(route.answer) if route.answer is not None else {"type": "string"}
    media_type = route.content_type.partition(";")[0]
    responses: Document = {
        "200": {
            "description": "Done." if route.answer is None else _docstring(route.answer),
            "headers": {**_ID_HEADERS, **(_REPLAYED if route.takes_key else {})},
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
    for name, schema in components.items():
        for field, described in schema.get("properties", {}).items():
            schema["properties"][field] = _with_meaning(described, meaning(name, field))
    for name, rules in _RULES.items():
        components[name].update(rules)
    for (name, field), item in _ITEMS.items():
        components[name]["properties"][field]["items"] = _ref(item)
    for struct in _structs(types):
        for field_info in msgspec.structs.fields(struct):
            _name_instants(field_info.type, components[struct.__name__]["properties"][field_info.encode_name])
    return dict(sorted(components.items()))


def _with_meaning(described: Document, words: str) -> Document:
    """A field, with its description in front, where generators look for it."""
    option: Document = next((option for option in described.get("anyOf", ()) if "description" in option), {})
    words = described.get("description") or option.get("description") or words
    rest = {key: value for key, value in described.items() if key != "description"}
    if "anyOf" in rest:
        rest["anyOf"] = [{key: value for key, value in one.items() if key != "description"} for one in rest["anyOf"]]
    return {"description": words, **rest} if words else rest


def _structs(types: Iterable[type[msgspec.Struct]]) -> Iterator[type[msgspec.Struct]]:
    """All that are described, each once."""
    seen: set[object] = set()
    waiting: list[object] = list(types)
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        if isinstance(found, type) and issubclass(found, msgspec.Struct):
            yield found
            waiting += [field.type for field in msgspec.structs.fields(found)]
        else:
            waiting += [part for part in typing.get_args(found) if isinstance(part, Hashable)]


def _name_instants(annotation: object, described: Document) -> None:
    """What is written is always in UTC, which the type does not say, so that the schema would name no format."""
    if _has_instant(annotation):
        for option in (described, *described.get("anyOf", ())):
            if option.get("type") == "string":
                option["format"] = "date-time"


def _has_instant(annotation: object) -> bool:
    return annotation is datetime or any(map(_has_instant, typing.get_args(annotation)))


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
