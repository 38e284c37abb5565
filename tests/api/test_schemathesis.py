"""The running server against its own OpenAPI document: what the document allows is answered as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from mainspring.api.app import all_routes
from mainspring.api.openapi import openapi_document
from tests.support.service_doubles import TOKEN, Edge

pytestmark = pytest.mark.slow

ROUTES = tuple(route for route in all_routes(Edge().api) if route.tag != "docs")
schema = schemathesis.openapi.from_dict(openapi_document(ROUTES, version="0"))


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "mainspring", "serve", "--port", "0", "--store", "memory://"]
    environ = {**os.environ, "MAINSPRING_TOKEN": TOKEN}
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=directory, env=environ, stderr=log)
        try:
            yield wait_for_banner(directory / "log", server)
        finally:
            server.terminate()
            server.wait(15)


def wait_for_banner(log: Path, server: subprocess.Popen[bytes]) -> str:
    for _ in range(200):
        found = re.search(r"ready at (http://\S+)", log.read_text())
        if found:
            return found[1]
        try:
            server.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"Expected a running server, got: {log.read_text()}")


@schema.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_server_keeps_to_its_document(case: schemathesis.Case[Any], base_url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    # Rules that a schema cannot say, such as what is a URL, are refused with the documented 400.
    excluded: list[Any] = [positive_data_acceptance]
    if case.operation.path == "/v1/timers/create-batch":
        excluded.append(negative_data_rejection)  # each item has its own problem, in an answer that is a 200
    case.call_and_validate(base_url=base_url, headers=headers, timeout=10, excluded_checks=excluded)


ENDS = {
    "before the first year": "0001-01-01T00:00:00+23:59",
    "the first moment": "0001-01-01T00:00:00Z",
    "before the epoch": "1969-12-31T23:59:59.999Z",
    "behind the last year": "9999-12-31T23:59:59-23:59",
    "just behind the last year": "9999-12-31T23:59:59.999999-00:01",
    "negative": -1,
    "too large a number": 253_402_300_800_000,
}
TIMER: dict[str, object] = {"timerId": "ends", "callbackUrl": "http://127.0.0.1:9/"}
BOUNDS: dict[str, tuple[str, dict[str, object], str]] = {
    "list from": ("/v1/timers/list", {}, "dueFrom"),
    "list to": ("/v1/timers/list", {}, "dueTo"),
    "history since": ("/v1/timers/history", {"timerId": "ends"}, "since"),
    "history until": ("/v1/timers/history", {"timerId": "ends"}, "until"),
    "bulk": ("/v1/timers/bulk-park", {"dryRun": True}, "dueTo"),
}


def ask(base_url: str, path: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    asked = urllib.request.Request(base_url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("instant", ENDS.values(), ids=ENDS)
def test_no_timer_is_beyond_the_ends_of_time(base_url: str, instant: object) -> None:
    assert ask(base_url, "/v1/timers/create", {**TIMER, "delaySeconds": 3600})[0] == 200
    for path, body in (("/v1/timers/create", TIMER), ("/v1/timers/update", {"timerId": "ends"})):
        status, told = ask(base_url, path, {**body, "executeAt": instant})
        assert (status, told["code"]) == (400, "invalid_input")
        assert [error["pointer"] for error in told["errors"]] == ["/executeAt"]


@pytest.mark.parametrize("instant", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize(("path", "body", "field"), BOUNDS.values(), ids=BOUNDS)
def test_a_bound_beyond_the_ends_of_time_is_a_bound_or_refused(
    base_url: str, path: str, body: dict[str, object], field: str, instant: object
) -> None:
    status, told = ask(base_url, path, {**body, field: instant})
    assert status == 200 or [error["pointer"] for error in told["errors"]] == [f"/{field}"]


@pytest.mark.parametrize("instant", ["9999-12-31T23:59:59.999Z", 253_402_300_799_999, "2036-01-01T00:00:00+23:59"])
def test_the_last_instant_is_taken(base_url: str, instant: object) -> None:
    status, timer = ask(base_url, "/v1/timers/create", {**TIMER, "executeAt": instant})
    assert status == 200, timer
    assert ask(base_url, "/v1/timers/get", {"timerId": "ends"}) == (200, timer)
