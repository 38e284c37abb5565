"""Real servers under a random load, while they are killed, paused and cut off, and their database is restarted.

    python tools/torture.py                                          a minute on SQLite, with a seed of its own
    python tools/torture.py --store postgresql --seconds 300         five minutes on PostgreSQL, which is started for it
    python tools/torture.py --judge DIRECTORY                        look at a run again: what was wrong, as a timeline

Prints figures, and the row of the table in docs/guides/operating.md. Ends with 1 if a promise was broken, and then
keeps the directory of the run with its journal; with 2 if it did not run; with 130 or 143 if it was told to end.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # database servers are those of the tests

import msgspec
from tests.cluster.stale_writes.census import count_stale_writes
from tests.servers.catalogue import SERVERS
from tests.servers.process import ServerFailed
from tests.servers.server import Server
from tests.servers.sources import Unobtainable

from mainspring.testing.oracle.journal import Left, read_journal
from mainspring.testing.oracle.judge import judge
from mainspring.testing.oracle.timeline import timeline
from mainspring.testing.signals import end_at_once
from mainspring.testing.torture.figures import Figures, heading
from mainspring.testing.torture.run import Torture, kept_world, torture

STORES = ("sqlite", "postgresql", "mysql", "mongodb")
SHOWN = 20
NOT_RUN = 2


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--store", choices=STORES, default="sqlite", help="[sqlite]")
    arguments.add_argument("--seconds", type=_seconds, default=60.0, help="how long blows fall [60]")
    arguments.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="[random, and printed]")
    arguments.add_argument("--judge", type=Path, help="the directory of an earlier run: look at its journal again")
    chosen = arguments.parse_args()
    if chosen.judge is not None:
        return look_again(chosen.judge)
    directory = Path(tempfile.mkdtemp(prefix="mainspring-torture-"))
    end_at_once(lambda: f"nothing was judged, files are in {directory}")
    sys.stderr.write(f"seed {chosen.seed} on {chosen.store}, files in {directory}\n")
    try:
        figures = carry_out(directory, chosen.store, seed=chosen.seed, seconds=chosen.seconds)
    except (Unobtainable, ServerFailed, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{chosen.store}: {error}\n")
        return NOT_RUN
    sys.stdout.write(f"\nseed {chosen.seed}\n{figures}\n\n{heading()}\n{figures.row()}\n")
    for violation in figures.violations[:SHOWN]:
        sys.stdout.write(f"{str(violation)[:500]}\n")
    if not figures.is_good:
        sys.stdout.write(f"Look at it with: python tools/torture.py --judge {directory}\n")
        return 1
    shutil.rmtree(directory)
    return 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"Expected a number above 0, got {text}")
    return seconds


def carry_out(directory: Path, store: str, *, seed: int, seconds: float) -> Figures:
    with ExitStack() as stack:
        wanted = Torture(store_url=f"sqlite:///{directory}/shared.db", seed=seed, seconds=seconds)
        if store != "sqlite":
            server = stack.enter_context(SERVERS[store]())
            server.obtain()
            server.start()
            wanted = replace(wanted, store_url=server.fresh(), restart_database=lambda: _restart(server))
        return asyncio.run(_counted(directory, wanted))


async def _counted(directory: Path, wanted: Torture) -> Figures:
    async with count_stale_writes(wanted.store_url, wanted.servers) as counting:
        figures = await torture(directory, replace(wanted, server_urls=counting.urls), bar(wanted.seconds))
        return replace(figures, stale_writes=await counting.stale())


def _restart(server: Server) -> None:
    server.kill()
    server.start()


def bar(seconds: float) -> Callable[[float, int], None]:
    width = 30
    end = "\r" if sys.stderr.isatty() else "\n"
    shown = [-10.0]

    def show(spent: float, blows: int) -> None:
        if sys.stderr.isatty() or spent - shown[0] >= 10:
            shown[0] = spent
            filled = min(width, int(width * spent / seconds))
            sys.stderr.write(f"[{'#' * filled}{'.' * (width - filled)}] {spent:5.0f} s  {blows:4} blows{end}")
            sys.stderr.flush()

    return show


def look_again(directory: Path) -> int:
    try:
        journal, world = read_journal(directory / "journal.jsonl"), kept_world(directory)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        sys.stderr.write(f"Expected the directory of a run, got {directory}: {error}\n")
        return NOT_RUN
    if not any(isinstance(event, Left) for event in journal):
        sys.stderr.write(f"Expected the journal of a whole run, got one in {directory} that was ended before\n")
        return NOT_RUN
    violations = judge(journal, world)
    for violation in violations[:SHOWN]:
        sys.stdout.write(f"{timeline(journal, violation)}\n\n")
    sys.stdout.write(f"{len(violations)} violations\n")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
