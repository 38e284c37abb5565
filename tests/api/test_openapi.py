"""The OpenAPI document and the page made from it."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import pytest

from mainspring.api.app import all_routes, build_app
from mainspring.api.docs import render
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
    assert b"<script" not in page.body
    assert b"http-equiv" not in page.body


def test_the_page_shows_a_curl_line_for_every_operation() -> None:
    page = render(DOCUMENT)
    for path in DOCUMENT["paths"]:
        assert re.search(rf"curl [^<]*{re.escape(path)}</pre>", page), path


def test_the_page_escapes_what_it_shows() -> None:
    hostile = {**DOCUMENT, "info": {"title": "<script>x</script>", "version": '"><b>', "description": "<img>"}}
    assert "<script>x" not in render(hostile)
    assert "<img>" not in render(hostile)


def test_links_within_the_page_lead_somewhere() -> None:
    page = render(DOCUMENT)
    ids = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= ids
