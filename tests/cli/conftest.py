"""One server for all tests of the CLI, and a way to run commands against it in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainspring.cli import main
from tests.support.running_server import Running, running_server

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MAINSPRING_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def run(server: Running, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the server; the arguments are the command line."""
    monkeypatch.setenv("MAINSPRING_URL", server.url)
    monkeypatch.setenv("MAINSPRING_TOKEN", server.token)
    return run_alone


def run_alone(*arguments: str, stdin: str | bytes = "") -> Result:
    """Runs a command; an exception that reaches the user is an error of the test."""
    result = CliRunner().invoke(main, arguments, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
