"""`mainspring dev serve` and `dev clock`: a server whose clock can be moved, from a shell."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mainspring.client import Client
from mainspring.emulator.remote import RemoteClock
from mainspring.errors import Unauthenticated
from tests.cli.conftest import Run, run_alone
from tests.support.running_server import COMMAND, TOKEN, clean_environment


@dataclass(frozen=True)
class Emulator:
    url: str
    receiver: str
    received: Path


@contextmanager
def emulator(directory: Path, *flags: str) -> Iterator[Emulator]:
    errors, received = directory / "errors.log", directory / "received.log"
    command = [*COMMAND, "dev", "serve", "--port", "0", "--receiver-port", "0", "--data-dir", str(directory), *flags]
    # A store and workers in the environment are those of other servers.
    others = {"MAINSPRING_STORE": "sqlite:///nowhere.db", "MAINSPRING_WORKERS": "3", "MAINSPRING_TOKEN": TOKEN}
    with errors.open("wb") as stderr, received.open("wb") as stdout:
        process = subprocess.Popen(command, stderr=stderr, stdout=stdout, env=clean_environment() | others)
    try:
        url = _found(process, errors, r"is ready at (\S+)")
        yield Emulator(url, _found(process, errors, r"Receiving at (\S+)"), received)
    finally:
        process.terminate()
        assert process.wait(15) == 0, errors.read_text()


def _found(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        time.sleep(0.02)  # nothing announces the line but the line itself
    raise AssertionError(f"Expected {pattern}, got: {log.read_text()}")


def _ask(emulator: Emulator, *arguments: str) -> str:
    result = run_alone("--url", emulator.url, "--token", TOKEN, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_a_day_is_over_in_a_moment_and_all_calls_have_arrived(tmp_path: Path) -> None:
    with emulator(tmp_path, "--frozen", "--at", "2026-12-24T17:00:00+01:00") as running:
        assert json.loads(_ask(running, "dev", "clock", "-o", "json"))["now"] == "2026-12-24T16:00:00Z"
        _ask(running, "timer", "create", "tea", "--in", "2h", "--callback-url", f"{running.receiver}tea")
        _ask(running, "job", "create", "report", "0 9 * * *", "--callback-url", f"{running.receiver}report")
        assert json.loads(_ask(running, "dev", "clock", "+1h59m", "-o", "json"))["now"] == "2026-12-24T17:59:00Z"
        assert running.received.read_text() == ""
        assert json.loads(_ask(running, "dev", "clock", "+1m", "-o", "json"))["now"] == "2026-12-24T18:00:00Z"
        assert "POST /tea → 200\nsignature: valid" in running.received.read_text()
        moved = json.loads(_ask(running, "dev", "clock", "2026-12-26T12:00:00Z", "-o", "json"))
        assert moved == {"now": "2026-12-26T12:00:00Z", "flows": False, "arrived": True}
        arrived = re.findall(r"POST (\S+) → 200(?:\n.+)*\nmainspring-clock: (\S+)", running.received.read_text())
        assert arrived == [
            ("/tea", "2026-12-24T18:00:00Z"),
            ("/report", "2026-12-25T09:00:00Z"),
            ("/report", "2026-12-26T09:00:00Z"),
        ]


@pytest.mark.slow
def test_distances_go_by_the_clock_of_the_emulator(tmp_path: Path) -> None:
    with emulator(tmp_path, "--frozen", "--at", "2030-01-01T00:00:00Z") as running:
        target = f"{running.receiver}tea"
        created = _ask(running, "timer", "create", "tea", "--in", "2h", "--callback-url", target, "-o", "table")
        assert "(in 2 h)" in created
        _ask(running, "dev", "clock", "+5h")
        history = _ask(running, "timer", "history", "tea", "-o", "table")
        assert "(3 h ago)" in history
        assert "(in " not in history


@pytest.mark.slow
def test_time_flows_unless_it_is_frozen_and_the_clock_needs_the_token(tmp_path: Path) -> None:
    with emulator(tmp_path) as running:
        with Client(running.url, TOKEN) as client:
            clock = RemoteClock(client)
            first = clock.show()
            assert first.flows
            _ask(running, "timer", "create", "tea", "--in", "1s", "--callback-url", running.receiver)
            deadline = time.monotonic() + 10
            while "POST / → 200" not in running.received.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)  # real time, this once
            assert clock.show().now > first.now
        with Client(running.url, "not-the-token-0123456789", retries=0) as stranger:
            for ask in (RemoteClock(stranger).show, lambda: RemoteClock(stranger).move_to(first.now)):
                with pytest.raises(Unauthenticated):
                    ask()


def test_a_receiver_that_runs_already_is_named_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_alone("dev", "serve", "--port", "0", "--receiver-port", str(port))
    assert result.exit_code == 2
    assert f"Port {port} on 127.0.0.1 is already in use: choose another --receiver-port" in result.stderr


def test_no_other_server_has_a_clock_to_move(run: Run) -> None:
    for arguments in (("dev", "clock"), ("dev", "clock", "+2h")):
        result = run(*arguments)
        assert result.exit_code == 3
        assert "has no clock to move: start one with `mainspring dev serve`" in result.stderr


@pytest.mark.parametrize("move", ["2h", "+soon", "2026-12-24T17:00:00", "tomorrow-ish"])
def test_a_move_that_is_neither_a_duration_nor_an_instant_is_refused(run: Run, move: str) -> None:
    result = run("dev", "clock", move)
    assert result.exit_code == 2
    assert "Expected" in result.stderr
