"""The running server against its own OpenAPI document: what the document allows is answered as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from mainspring.api.app import all_routes
from mainspring.api.openapi import openapi_document

from .services import TOKEN, Edge

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
    case.call_and_validate(base_url=base_url, headers=headers, timeout=10, excluded_checks=[positive_data_acceptance])
