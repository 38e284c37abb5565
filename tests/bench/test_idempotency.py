"""The idempotency benchmark, as far as it needs no server: what is compared, and what is said not to be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.figures import Setting

from bench import idempotency
from mainspring.idempotency import InMemoryStore
from tests.support.source_tree import ROOT

CONTENDERS = ("aws_lambda_powertools", "idempotency")


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CONTENDERS:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("nothing_installed")
def test_contenders_that_are_not_installed_are_named_as_not_compared() -> None:
    said: list[str] = []
    assert idempotency._others_in_memory(said.append) == {}
    assert idempotency._others_on_redis("redis://127.0.0.1:1", said.append) == {}
    assert [line.partition(" (")[0] for line in said] == [
        "NOT COMPARED: aws-lambda-powertools",
        "NOT COMPARED: idempotency",
        "NOT COMPARED: aws-lambda-powertools with Redis",
        "NOT COMPARED: idempotency with Redis",
    ]
    assert all("python -m bench.idempotency --help" in line for line in said)


@pytest.mark.usefixtures("nothing_installed")
def test_replays_from_memory_are_measured_without_others(tmp_path: Path) -> None:
    calls: dict[str, idempotency.Call] = {"mainspring": idempotency._ours(InMemoryStore())}
    figures = idempotency._replays_of_others(calls, Setting(tmp_path, True, lambda _: None))
    assert [figure.what for figure in figures] == ["replay, many payloads", "replay, large payload"]
    assert all(figure.measured > 0 and figure.met is None for figure in figures)


def test_help_and_documentation_say_what_to_install() -> None:
    command = [sys.executable, "-m", "bench.idempotency", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    documented = (ROOT / "docs" / "benchmarks.md").read_text()
    for package in ("aws-lambda-powertools==3.37.0", "idempotency==0.1.0", "boto3==1.43.117", "botocore", "jmespath"):
        assert package in shown
        assert package in documented
