"""Compare databases for as long as you like.

    python -m tests.differential                                         400 steps on all of them
    python -m tests.differential --steps 2000 --seed 7 postgresql mysql  these steps, on these

Ends with 1 at the first difference, and says how to see it again; with 2 if there was nothing to compare; with 130 or
143 if it was told to end.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from mainspring.testing.signals import end_at_once, remove_when_ended
from tests.differential.comparison import Report, compare
from tests.servers.catalogue import SERVERS
from tests.servers.sources import Unobtainable

DATABASES = ("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(DATABASES)}; all when none is given")
    parser.add_argument("--steps", type=int, default=400, help="requests to each [400]")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="[random, and printed]")
    chosen = parser.parse_args()
    if chosen.steps < 1:
        parser.error(f"Expected at least one step, got {chosen.steps}")
    if unknown := set(chosen.names) - set(DATABASES):
        parser.error(f"Expected names of {', '.join(DATABASES)}, got {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-differential-"))
        remove_when_ended(Path(directory))
        end_at_once(lambda: "nothing is known about the remaining steps")
        urls = {"sqlite": f"sqlite:///{directory}/reference.db"}
        for name in chosen.names or DATABASES:
            server = stack.enter_context(SERVERS[name]())
            try:
                server.obtain()
            except Unobtainable as error:
                sys.stderr.write(f"{name}: {error}\n")
                continue
            urls[name] = server.start().fresh()
        if len(urls) == 1 or (chosen.names and len(urls) <= len(set(chosen.names))):
            sys.stderr.write("Expected the databases to compare, got one that is not to be had\n")
            return 2
        sys.stderr.write(f"seed {chosen.seed}: sqlite and {', '.join(list(urls)[1:])}\n")
        report = asyncio.run(compare(urls, seed=chosen.seed, steps=chosen.steps, progress=bar(chosen.steps)))
    return tell(report, chosen.seed)


def bar(steps: int) -> Callable[[int], None]:
    width = 30
    end = "\r" if sys.stderr.isatty() else "\n"

    def show(done: int) -> None:
        if sys.stderr.isatty() or done % 100 == 0:
            filled = width * done // steps
            sys.stderr.write(f"[{'#' * filled}{'.' * (width - filled)}] {done} of {steps} steps{end}")
            sys.stderr.flush()

    return show


def tell(report: Report, seed: int) -> int:
    statuses = ", ".join(f"{count} answered {status}" for status, count in sorted(report.statuses.items()))
    sys.stdout.write(f"\nseed {seed}: {report.steps} steps, {statuses}\n")
    if report.difference is None:
        sys.stdout.write("no difference\n")
        return 0
    sys.stdout.write(f"{report.difference}\nagain: --seed {seed} --steps {report.difference.step}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
