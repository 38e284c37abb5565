"""`python -m mainspring.testing.fuzzing`: throw nonsense at the places where bytes of strangers come in."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mainspring.testing.fuzzing.answers import AnswersTarget
from mainspring.testing.fuzzing.bodies import BodiesTarget
from mainspring.testing.fuzzing.campaign import Campaign, Report, Target
from mainspring.testing.fuzzing.cron import CronTarget
from mainspring.testing.fuzzing.listener import ListenerTarget
from mainspring.testing.signals import end_at_once

TARGETS: Final[dict[str, Callable[[], Target]]] = {
    "listener": ListenerTarget,
    "answers": AnswersTarget,
    "bodies": BodiesTarget,
    "cron": CronTarget,
}
FAILED: Final = 1


@click.command()
@click.option("--target", "name", type=click.Choice([*TARGETS, "all"]), default="all", show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="How long, for each target."
)
@click.option("--seed", type=click.IntRange(min=0), help="What all cases follow from; random by default, and printed.")
@click.option("--case", type=click.IntRange(min=0), help="Run this one alone, of one target and one seed; see below.")
def main(*, name: str, seconds: float, seed: int | None, case: int | None) -> None:
    """Throw nonsense at a server, from a seed.

    \b
    The targets:
        listener  HTTP at a real server: heads, bodies, trailers, pipelines
        answers   what receivers answer, at the real sender
        bodies    JSON at every operation of the API
        cron      texts of schedules, and their calendars in all zones
    \b
    A case fails if there is
        an error that is none of ours: an answer of 500, a traceback
        an answer that contradicts another one
        nothing for more than a second
    and all of them fail if memory grows by more than 64 MB.
    \b
    The cases of a seed are numbered from 0 on, for each target anew. What fails is
    printed with its target, seed and number, as they are given to run it again; a
    number draws the same case for ever, whether or not those before it are run.
    \b
    It ends with
        0  nothing failed
        1  something failed: what is printed runs it again
        2  nothing was run: what was asked for makes no sense
      130  it was ended by SIGINT (Ctrl-C)
      143  it was ended by SIGTERM
    """
    if case is not None and (name == "all" or seed is None):
        raise click.UsageError("Expected --case together with --target and --seed, got it alone")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    end_at_once(lambda: f"seed {seed}")
    reports = [_fuzz(chosen, seconds, seed, case) for chosen in (TARGETS if name == "all" else (name,))]
    sys.exit(FAILED if any(report.failures for report in reports) else 0)


def _fuzz(name: str, seconds: float, seed: int, case: int | None) -> Report:
    target = TARGETS[name]()
    with _bar(name, seconds) as advanced:
        campaign = Campaign(target, seed, seconds=seconds, advanced=advanced)
        if case is not None:
            campaign = Campaign(target, seed, first=case, cases=1)
        report = asyncio.run(campaign.run())
    for failure in report.failures:
        click.echo(str(failure))
    click.echo(str(report))
    return report


@contextmanager
def _bar(label: str, seconds: float) -> Iterator[Callable[[int, float], None]]:
    if not sys.stderr.isatty():
        yield lambda cases, passed: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[cases]} cases"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=seconds, cases=0)
        yield lambda cases, passed: progress.update(task, completed=min(passed, seconds), cases=cases)


if __name__ == "__main__":
    main()
