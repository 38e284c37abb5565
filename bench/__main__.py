"""`python -m bench`: every figure that Mainspring promises, measured beside the limit of the machine it runs on.

Figures that are compared are measured in turn, in one run, and the median of several rounds counts, because a
shared machine is never twice the same. What each figure means is told in docs/benchmarks.md.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import apsw
import click
import uvloop
from rich.console import Console

from bench import (
    carts,
    cluster,
    costs,
    creates,
    databases,
    destinations,
    fetches,
    firing,
    idempotency,
    jobs,
    lists,
    placement,
    quiet,
    scale,
    scale_large,
    shards,
)
from bench.figures import Figure, Setting, as_json, markdown, table
from bench.peers.comparison import peers

BENCHMARKS: dict[str, Callable[[Setting], Awaitable[list[Figure]]]] = {
    "single": creates.single_creates,
    "batch": creates.batch_creates,
    "burst": firing.burst,
    "lateness": firing.lateness,
    "fetches": fetches.fetches,
    "scale": scale.scale,
    "lists": lists.lists,
    "start": quiet.start_up,
    "idle": quiet.idle,
    "shards": shards.shards,
    "destinations": destinations.destinations,
    "jobs": jobs.same_minute,
    "idle-jobs": jobs.idle_jobs,
    "carts": carts.add_items,
}
WHEN_NAMED: dict[str, Callable[[Setting], Awaitable[list[Figure]]]] = {
    "databases": databases.databases,
    "cluster": cluster.cluster,
    "idempotency": idempotency.idempotency,
    "peers": peers,
    "costs": costs.costs,
    "placement": placement.placement,
    "scale-large": scale_large.scale_large,
}
"""Run when they are asked for: they install and start database servers, or take long."""


async def measure(names: tuple[str, ...], setting: Setting, figures: list[Figure], console: Console) -> None:
    """Run benchmark after benchmark, each in a directory of its own, and add what they measure to `figures`."""
    for name in names:
        started_at = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix=f"mainspring-bench-{name}-", dir=setting.directory) as place,
            console.status(name) as status,
        ):

            def say(text: str, name: str = name) -> None:
                status.update(f"{name}: {text}")
                setting.say(f"{name}: {text}")

            figures += await (BENCHMARKS | WHEN_NAMED)[name](replace(setting, directory=Path(place), say=say))
        console.print(f"{name}: done in {time.monotonic() - started_at:.0f} s", highlight=False)


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*BENCHMARKS, *WHEN_NAMED]), help="Only this one. Repeatable.")
@click.option("--quick", is_flag=True, help="Tiny sizes: to see that everything works, not to measure.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures there.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=tempfile.gettempdir(),
    show_default=True,
    help="On the disk that is to be measured.",
)
def main(only: tuple[str, ...], quick: bool, json_file: Path | None, as_markdown: bool, directory: Path) -> None:
    """Measure Mainspring, each figure beside the limit of this machine."""
    progress = Console(stderr=True)
    machine = (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, load {os.getloadavg()[0]:.1f} before"
    )
    setting = Setting(directory, quick, lambda text: None if progress.is_terminal else progress.print(text))
    figures: list[Figure] = []
    try:
        uvloop.run(measure(only or tuple(BENCHMARKS), setting, figures, progress))
    finally:  # what was measured before a failure is worth showing
        click.echo(machine)
        if as_markdown:
            click.echo(markdown(figures))
        else:
            Console(width=None if sys.stdout.isatty() else 140).print(table(figures))
        for note in setting.notes:
            click.echo(note)
        if json_file is not None:
            json_file.write_bytes(as_json(figures, machine))


if __name__ == "__main__":
    main()
