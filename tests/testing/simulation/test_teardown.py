"""A search can be ended at any time: soon, in one line, and without leaving a process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOON = 10.0
"""About a second, on a machine that has nothing else to do."""


@contextmanager
def searching(folder: Path, processes: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "mainspring.testing.simulation", "--seeds", "100000", "--keep", str(folder)]
    with subprocess.Popen(
        [*command, "--processes", str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as search:
        try:
            yield search
        finally:
            search.kill()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_busy(pid: int) -> bool:
    """It has imported everything, and computes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) > 1.5 * os.sysconf("SC_CLK_TCK")


def workers_of(search: subprocess.Popen[str]) -> list[int]:
    wait_until(lambda: len(children(search.pid)) >= 2)
    workers = children(search.pid)
    wait_until(lambda: any(map(is_busy, workers)))
    return workers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_search_ends_at_once_and_says_what_was_done(number: signal.Signals, tmp_path: Path) -> None:
    with searching(tmp_path, 2) as search:
        workers = workers_of(search)
        os.killpg(search.pid, number) if number == signal.SIGINT else search.send_signal(number)
        told, _ = search.communicate(timeout=SOON)
        assert search.returncode == 128 + number
        assert re.fullmatch(rf"ended by {number.name}: \d+ of 100000 seeds in \d+ s, 0 failed\n", told)
        assert not any(map(is_running, workers))


@pytest.mark.slow
def test_processes_of_a_search_do_not_outlive_it(tmp_path: Path) -> None:
    with searching(tmp_path, 2) as search:
        workers = workers_of(search)
        search.kill()
        search.wait(SOON)
        wait_until(lambda: not any(map(is_running, workers)), SOON)


def test_a_search_in_one_process_ends_between_two_seeds(tmp_path: Path) -> None:
    with searching(tmp_path, 1) as search:
        wait_until(lambda: is_busy(search.pid))
        search.send_signal(signal.SIGINT)
        told, _ = search.communicate(timeout=SOON)
        assert search.returncode == 130
        assert re.fullmatch(r"ended by SIGINT: \d+ of 100000 seeds in \d+ s, 0 failed\n", told)
