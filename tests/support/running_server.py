"""A real server in its own process, for tests of the SDK and the CLI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOKEN = "a-token-for-tests-0123456789"
COMMAND = (sys.executable, "-c", "from mainspring.cli import main; main()")


def clean_environment() -> dict[str, str]:
    """Without settings, and without the width that pytest's workers claim to have."""
    left_out = ("COLUMNS", "LINES")
    return {
        name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_") and name not in left_out
    }


@dataclass(frozen=True)
class Running:
    url: str
    token: str
    store: str
    """The URL of its store, which others may open, too."""
    process_id: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def running_server(directory: Path, store: str = "", *more: str, descriptors: int = 0) -> Iterator[Running]:
    """`descriptors`: how many files and connections it may have open, if not as many as we."""
    limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"] if descriptors else []
    log = directory / "server.log"
    flags = ["serve", "--port", "0", "--data-dir", str(directory / "data")]
    flags += [*(("--store", store) if store else ()), *more]
    environment = clean_environment() | {"MAINSPRING_TOKEN": TOKEN}
    with log.open("wb") as stderr:
        process = subprocess.Popen([*limited, *COMMAND, *flags], stderr=stderr, env=environment, cwd=directory)
    try:
        store = store or f"sqlite:///{directory / 'data' / 'mainspring.db'}"
        yield Running(_address(process, log), TOKEN, store, process.pid)
    finally:
        process.terminate()
        assert process.wait(15) == 0, log.read_text()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"is ready at (\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.02)  # nothing announces the line but the line itself
    raise AssertionError(f"Expected a running server, got: {log.read_text()}")
