"""The OpenAPI document and the page made from it."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from mainspring.api.app import all_routes, build_app
from mainspring.api.docs import render
from mainspring.api.field_meanings import known_meanings
from mainspring.api.openapi import openapi_document
from mainspring.api.routes import Route
from mainspring.errors import plain_words
from tests.support.exchanges import call
from tests.support.service_doubles import Edge

ROUTES = tuple(route for route in all_routes(Edge().api) if route.tag != "docs")
DOCUMENT = openapi_document(ROUTES, version="1.2.3")


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for child in value.values() for found in references(child)]
    if isinstance(value, list):
        return [found for child in value for found in references(child)]
    return []


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        found: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def patterns(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["pattern"]} if isinstance(value.get("pattern"), str) else set()
        return own.union(*(patterns(child) for child in value.values()))
    if isinstance(value, list):
        return set().union(*(patterns(child) for child in value))
    return set()


def test_every_pattern_is_said_in_words_to_people() -> None:
    found = patterns(DOCUMENT["components"])
    assert len(found) >= 5
    page = render(DOCUMENT)
    for pattern in found:
        assert "regex" not in plain_words(f"Expected `str` matching regex {pattern!r}"), pattern
        assert escape(pattern) not in page, pattern


def test_every_field_of_every_type_has_a_description() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    silent = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if not described.get("description", "").endswith(".")
    ]
    assert silent == []
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []


def test_no_description_is_left_of_a_field_that_is_gone() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    fields = {field for schema in schemas.values() for field in schema.get("properties", {})}
    everywhere, in_one = known_meanings()
    assert everywhere - fields == set()
    assert {(name, field) for name, field in in_one if field not in schemas[name].get("properties", {})} == set()


def test_every_instant_has_its_format() -> None:
    named = [
        (f"{name}.{field}", described)
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if re.search(r"(At|Until|^at|^since|^until|^first|^last|^from|lastRun)$", field)
        and described.get("type") != "integer"
    ]
    assert len(named) > 40
    assert [name for name, described in named if "date-time" not in str(described)] == []


def test_generators_find_the_fields_of_every_type() -> None:
    """Alternatives beside the fields make them forget the fields."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert {"oneOf", "anyOf", "allOf"} & set(schema) == set(), name
        for field, described in schema.get("properties", {}).items():
            assert described.get("items", {"type": ""}) != {}, f"{name}.{field}"
    items = DOCUMENT["components"]["schemas"]["CreateTimers"]["properties"]["timers"]["items"]
    assert items == {"$ref": "#/components/schemas/CreateTimer"}


TIMER = {"timerId": "t", "callbackUrl": "https://example.com/"}


@pytest.mark.parametrize(
    ("schema", "message", "is_valid"),
    [
        ("CreateTimer", {**TIMER, "delaySeconds": 1}, True),
        ("CreateTimer", {**TIMER, "executeAt": 1}, True),
        ("CreateTimer", TIMER, False),
        ("CreateTimer", {**TIMER, "delaySeconds": 1, "executeAt": 1}, False),
        ("UpdateTimer", {"timerId": "t", "delaySeconds": 1}, True),
        ("UpdateTimer", {"timerId": "t", "delaySeconds": 1, "executeAt": 1}, False),
        ("UpdateTimer", {"timerId": "t", "namespace": "n", "ifGeneration": 1}, False),
        ("UpdateJob", {"name": "n"}, False),
        ("UpdateJob", {"name": "n", "timezone": "UTC"}, True),
        ("UpdateNamespace", {"name": "n"}, False),
        ("UpdateNamespace", {"name": "n", "hostLimit": None}, True),
        ("OutboundRequest", {"url": "https://example.com/", "body": "", "bodyBase64": ""}, False),
    ],
)
def test_rules_between_fields_are_in_the_document(schema: str, message: dict[str, object], is_valid: bool) -> None:
    checker = Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]})
    assert checker.is_valid(message) == is_valid


def test_a_document_that_is_read_from_a_server_leads_back_to_it() -> None:
    assert DOCUMENT["servers"][0]["url"] == "/"


def test_the_document_is_the_same_every_time() -> None:
    assert openapi_document(ROUTES, version="1.2.3") == DOCUMENT
    assert list(DOCUMENT["components"]["schemas"]) == sorted(DOCUMENT["components"]["schemas"])


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    assert "timers_run_now" in ids


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_is_described(route: Route) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    assert operation["summary"]
    assert operation["security"] == ([] if route.is_open else [{"token": []}])
    if route.request is not None:
        assert operation["description"]
        assert "example" in operation["requestBody"]["content"]["application/json"]
        assert {"400", "401", "413", "415", "503"} <= set(operation["responses"])


def test_the_problem_of_an_item_names_fields_like_any_problem() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    field = {"$ref": "#/components/schemas/FieldError"}
    assert schemas["ProblemItem"]["properties"]["errors"]["items"] == field
    assert schemas["Problem"]["properties"]["errors"]["items"] == field


def test_a_code_that_no_answer_has_is_not_described() -> None:
    assert "unsafe_target" not in DOCUMENT["components"]["responses"]


async def test_document_and_page_are_served_without_a_token() -> None:
    app = build_app(Edge().api)
    document = await call(app, "/openapi.json", method="GET", token=None)
    assert document.json()["openapi"] == "3.1.0"
    page = await call(app, "/docs", method="GET", token=None)
    assert page.body == (await call(app, "/", method="GET", token=None)).body
    assert b"http-equiv" not in page.body


async def test_the_page_may_run_its_own_script_ask_its_own_server_and_nothing_else() -> None:
    page = await call(build_app(Edge().api), "/docs", method="GET", token=None)
    [script], [style] = (re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), page.body, re.S) for tag in ("script", "style"))
    assert dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; ")) == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digest(script)}'",
        "style-src": f"'sha256-{digest(style)}'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert page.body.count(b"<script") == 1
    assert re.findall(rb"""[ "'](?:on[a-z]+|style|src)=""", page.body.replace(script, b"").replace(style, b"")) == []


def digest(text: bytes) -> str:
    return base64.b64encode(hashlib.sha256(text).digest()).decode()


def test_the_page_shows_a_curl_line_for_every_operation() -> None:
    page = render(DOCUMENT)
    for path in DOCUMENT["paths"]:
        assert re.search(rf'curl [^<]*<span class="base">[^<]*</span>{re.escape(path)}</pre>', page), path


def test_the_page_escapes_what_it_shows() -> None:
    hostile = {**DOCUMENT, "info": {"title": "<script>x</script>", "version": '"><b>', "description": "<img>"}}
    assert "<script>x" not in render(hostile)
    assert "<img>" not in render(hostile)


def test_links_within_the_page_lead_somewhere() -> None:
    page = render(DOCUMENT)
    ids = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= ids
