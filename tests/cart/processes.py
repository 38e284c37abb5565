"""`python -m telecom_cart` as a process, which ends with the block."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "telecom_cart"]
STOP_SECONDS = 30


def environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT / "apps/cart/src")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


@contextmanager
def running(arguments: Sequence[str], folder: Path, *, until: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed a line with `until`."""
    with (folder / "errors").open("a") as errors:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if until in line:
                break
        else:
            raise AssertionError((folder / "errors").read_text())
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
        process.stdout.close()


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[tuple[str, str]]:
    """The addresses of a cart and of its simulated platform."""
    port, simulator = free_port(), free_port()
    ports = ["--port", str(port), "--simulator-port", str(simulator)]
    with running(["demo", *ports, *arguments], folder, until="Ctrl-C ends both"):
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{simulator}"
