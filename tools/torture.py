"""Kills a working server over and over and checks that nothing was lost or sent against its owner's wish.

    python tools/torture.py                           a minute, with a seed of its own
    python tools/torture.py --seconds 600 --seed 7    longer, with these timers and these crashes

Prints a line per crash and a summary; exits 1 if a promise was broken, and then keeps the directory of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from mainspring.testing.torture.run import plan_of, run


def endless_plan(seed: int, until: float) -> Iterator[str]:
    """Rounds of all crash points and as many random kills, until the time is over."""
    for number in count():
        for how in plan_of(seed + number, kills=8):
            if time.monotonic() >= until:
                return
            yield how


def show(start: float, seconds: float, done: int, how: str) -> None:
    elapsed = time.monotonic() - start
    width = 30
    filled = min(width, int(width * elapsed / seconds))
    end = "\r" if sys.stderr.isatty() else "\n"
    sys.stderr.write(f"[{'#' * filled}{'.' * (width - filled)}] {elapsed:5.0f} s  {done:4} crashes  {how:18}{end}")
    sys.stderr.flush()


def main() -> int:
    arguments = argparse.ArgumentParser(description="Kill a working server over and over, and check what it did.")
    arguments.add_argument("--seconds", type=float, default=60.0, help="how long to go on killing [60]")
    arguments.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="[random, and printed]")
    arguments.add_argument("--companion", action="store_true", help="a second server takes over at every death")
    arguments.add_argument("--directory", type=Path, help="where the run keeps its files; must not exist [temporary]")
    chosen = arguments.parse_args()
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="mainspring-torture-"))
    directory.mkdir(parents=True, exist_ok=directory != chosen.directory)
    sys.stderr.write(f"seed {chosen.seed}, files in {directory}\n")
    start = time.monotonic()
    crashes = count(1)
    report = asyncio.run(
        run(
            directory,
            seed=chosen.seed,
            plan=endless_plan(chosen.seed, start + chosen.seconds),
            companion=chosen.companion,
            progress=lambda how: show(start, chosen.seconds, next(crashes), how),
        )
    )
    sys.stdout.write(f"\nseed:       {chosen.seed}\n{report}\n")
    for violation in report.violations[:100]:
        sys.stdout.write(f"  {violation}\n")
    if report.violations:
        sys.stdout.write(f"The journal and the database are in {directory}\n")
        return 1
    if chosen.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
