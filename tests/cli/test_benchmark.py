"""`mainspring dev benchmark` against a real server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run_alone
from tests.support.running_server import Running


def test_a_small_load_is_created_received_and_reported(run: Run) -> None:
    result = run("dev", "benchmark", "--count", "50", "--connections", "4", "-o", "json")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["timers"] == 50
    assert figures["createsPerSecond"] > 1
    assert -2 < figures["latenessP50Ms"] <= figures["latenessP99Ms"] < 20_000
    until = time.monotonic() + 20
    while json.loads(run("timer", "list", "--id-prefix", "benchmark-", "-o", "json").stdout)["timers"]:
        assert time.monotonic() < until  # the outcome of a call is recorded after the receiver has it


def test_an_address_that_the_server_may_not_call_is_explained_and_nothing_is_left(run: Run) -> None:
    result = run("dev", "benchmark", "--count", "5", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "/callbackUrl: Expected a public address" in result.stderr
    assert "0.0.0.0" in result.stderr
    assert run("dev", "benchmark", "--host", "192.0.2.1").exit_code == 1


def test_the_token_may_come_from_a_file(run: Run, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_TOKEN")
    file = Path("token")
    file.touch(0o600)
    file.write_text(server.token)
    assert run("dev", "benchmark", "--count", "2", "--token-file", "token").exit_code == 0


def test_without_a_server_there_is_a_hint() -> None:
    result = run_alone("--url", "http://127.0.0.1:9", "dev", "benchmark", "--count", "5")
    assert (result.exit_code, "mainspring serve" in result.stderr) == (6, True)
