"""Runs at the start of every Python process that has this directory on its path: what a test does to a real server.

MOVED_WALL_CLOCK    a file that says by how many seconds the wall clock of the process is wrong, read at every look
LOCK_SECONDS        how long the lock of the reconciler lasts, and
LOOK_SECONDS        how often it looks, since nobody wants to wait for those of production

Only the wall clock moves, as when an operator sets it: the monotonic clocks go on.
"""

import os
import time
from pathlib import Path


def move_wall_clock(file: Path) -> None:
    read = time.time_ns

    def moved_ns() -> int:
        return read() + int(file.read_text()) * 1_000_000_000

    time.time_ns = moved_ns
    time.time = lambda: moved_ns() / 1e9


def hurry(lock_seconds: float, look_seconds: float) -> None:
    from mainspring.jobs import reconciler  # noqa: PLC0415 - most processes need it later, or never

    vars(reconciler).update(LOCK_SECONDS=lock_seconds, FULL_LOOK_SECONDS=look_seconds)


if "MOVED_WALL_CLOCK" in os.environ:
    move_wall_clock(Path(os.environ["MOVED_WALL_CLOCK"]))
if "LOCK_SECONDS" in os.environ:
    hurry(float(os.environ["LOCK_SECONDS"]), float(os.environ["LOOK_SECONDS"]))
