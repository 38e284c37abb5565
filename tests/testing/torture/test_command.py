"""tools/torture.py: it ends when it is told to, with everything it started, and refuses what it cannot do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_lines import command_lines
from tests.support.source_tree import ROOT

TOOL = ROOT / "tools" / "torture.py"
SOON = 10.0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_torture_that_is_ended_leaves_no_server_behind(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, TOOL, "--seconds", "300"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
    ) as tool:
        try:
            deadline = time.monotonic() + 60
            while not any("mainspring serve" in line for line in command_lines(str(tmp_path))):
                assert time.monotonic() < deadline
                assert tool.poll() is None
                time.sleep(0.05)
            tool.send_signal(number)
            _, told = tool.communicate(timeout=SOON)
        finally:
            tool.kill()
    deadline = time.monotonic() + SOON
    while left := command_lines(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    if number != signal.SIGKILL:
        [directory] = tmp_path.glob("mainspring-torture-*")
        assert tool.returncode == 128 + number
        assert "Traceback" not in told
        assert told.splitlines()[-1] == f"ended by {number.name}: nothing was judged, files are in {directory}"


def refused(*arguments: object) -> str:
    """The last line that it says."""
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_directory_that_has_no_run_cannot_be_judged(tmp_path: Path) -> None:
    assert refused(TOOL, "--judge", tmp_path / "missing").startswith("Expected the directory of a run, got ")
    assert refused(TOOL, "--judge", tmp_path).startswith("Expected the directory of a run, got ")
    (tmp_path / "journal.jsonl").write_text("garbage\n")
    assert refused(TOOL, "--judge", tmp_path).startswith("Expected the directory of a run, got ")
    (tmp_path / "journal.jsonl").write_text("")
    (tmp_path / "world.json").write_text('{"commits": false}')
    assert refused(TOOL, "--judge", tmp_path).startswith("Expected the journal of a whole run, got ")


@pytest.mark.slow
def test_commands_refuse_numbers_that_would_do_nothing() -> None:
    for seconds in ("-1", "0", "nan", "inf"):
        assert "Expected a number above 0" in refused(TOOL, f"--seconds={seconds}")
    assert "Expected at least one step, got 0" in refused("-m", "tests.differential", "--steps", "0")
    assert "Expected parts of names, got xyz" in refused("-m", "tests.testing.simulation.planted", "xyz")
