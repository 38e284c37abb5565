"""A command of the test kit that is ended by a signal leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

SOON = 15.0
FUZZ = (sys.executable, "-m", "mainspring.testing.fuzzing", "--target", "listener", "--seconds", "300")
ATTACK = (sys.executable, "-m", "mainspring.testing.attacks", "--only", "haste", "--seconds", "300")
DIFFERENTIAL = (sys.executable, "-m", "tests.differential", "--steps", "100000", "postgresql")
AUDIT = (sys.executable, "-m", "tools.audit", "--pip-audit")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def left_behind(command: tuple[str, ...], scratch: Path, number: signal.Signals, begun: str) -> tuple[int, list[str]]:
    """Exit code, and what is left, of a command that gets a signal, like all its group, once it has begun something."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(scratch)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until(lambda: any(scratch.glob(begun)) or process.poll() is not None)
            assert process.poll() is None
            os.killpg(process.pid, number)
            code = process.wait(SOON)
        finally:
            process.kill()
    return code, [path.name for path in scratch.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [FUZZ, ATTACK], ids=["fuzz", "attack"])
def test_a_server_that_was_tried_leaves_no_files_when_that_is_ended(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    assert left_behind(command, tmp_path, number, "mainspring-*/*") == (128 + number, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_audit_leaves_no_files_when_it_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "pip-audit"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert left_behind((*AUDIT, str(program)), scratch, number, "mainspring-*") == (128 + number, [])


@pytest.mark.server("postgresql")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_databases_that_were_compared_leave_no_files_when_that_is_ended(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # the server may run as another user
        assert left_behind(DIFFERENTIAL, Path(scratch), number, "mainspring-*/data/base") == (128 + number, [])
