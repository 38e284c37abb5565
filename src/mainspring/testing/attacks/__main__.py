"""`python -m mainspring.testing.attacks`: attack servers that are started for it, and print what it cost others."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from mainspring import descriptors
from mainspring.testing.attacks.alone import Failed
from mainspring.testing.attacks.catalogue import ATTACKS
from mainspring.testing.attacks.trial import ServerFailed, run_trial
from mainspring.testing.attacks.verdict import Verdict, table
from mainspring.testing.signals import end_at_once, remove_when_ended

BROKEN: Final = 1
NOT_RUN: Final = 2
_WIDTH: Final = 100


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice(list(ATTACKS)), help="This one; may be repeated.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=600),
    default=10.0,
    show_default=True,
    help="How long each attack lasts.",
)
@click.option("--size", type=click.IntRange(min=1), help="How many connections, timers or hosts one attack uses.")
@click.option("--list", "lists", is_flag=True, help="Say what the attacks are, and run none.")
def main(*, names: tuple[str, ...], seconds: float, size: int | None, lists: bool) -> None:
    """Attack a server, and see what it costs others.

    Every attack gets a server of its own with default settings, an embedded store in a directory that is removed, and
    a token of its own; all on loopback. While the attack lasts, good clients ask for /health and create timers, and
    timers and fetches go to a healthy host.

    \b
    The columns:
        got through   what the attacker achieved, which says that there was an attack
        p99, longest  how long good clients waited for an answer (p99 at most 500 ms)
        timers late   the worst time from when a timer was due to when it arrived
        fetches late  the same for fetches, from when they were accepted (both at most 500 ms)
        memory        what the server grew by at most (150 MB)
        recovered     how long until all is well again after the attack (15 s),
                      or after a restart, where the attack is aimed at that
    \b
    It ends with
        0  all attacks were held
        1  one was not; why is said below the table
        2  nothing was run, or an attack itself did not work
      130  it was ended by SIGINT (Ctrl-C)
      143  it was ended by SIGTERM
    """
    chosen = names or tuple(ATTACKS)
    if lists:
        for name in chosen:
            click.echo(f"{name:25} {ATTACKS[name].what}")
        return
    if size is not None and len(chosen) != 1:
        raise click.UsageError("Expected --size together with one --only, got it for several attacks")
    descriptors.raise_limit()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        click.echo(f"This machine is busy (load {load:.1f} on {cores} cores): figures will be too bad.", err=True)
    verdicts: list[Verdict] = []
    directory = Path(tempfile.mkdtemp(prefix="mainspring-attack-"))
    remove_when_ended(directory)
    end_at_once(lambda: f"{len(verdicts)} of {len(chosen)} attacks were over\n{table(verdicts)}")
    try:
        asyncio.run(_attack(chosen, directory, seconds, size, verdicts))
    except (Failed, ServerFailed, ExceptionGroup) as raised:
        error = raised.exceptions[0] if isinstance(raised, ExceptionGroup) else raised
        click.echo(table(verdicts))
        click.echo(f"{chosen[len(verdicts)]}: {error}", err=True)
        sys.exit(NOT_RUN)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    click.echo(table(verdicts))
    broken = [verdict for verdict in verdicts if verdict.complaints]
    for verdict in broken:
        click.echo(f"{verdict.attack.name}: {'; '.join(verdict.complaints)}")
    click.echo(f"{len(verdicts)} attacks of {seconds:g} s, {len(verdicts) - len(broken)} held, {len(broken)} broken")
    sys.exit(BROKEN if broken else 0)


async def _attack(
    names: tuple[str, ...], directory: Path, seconds: float, size: int | None, verdicts: list[Verdict]
) -> None:
    for number, name in enumerate(names, 1):
        attack = ATTACKS[name]
        label = f"{number} of {len(names)}  {name}"
        verdict = await run_trial(
            attack, directory / name, seconds=seconds, size=size or attack.size, told=_progress(label)
        )
        verdicts.append(verdict)
        _tell(f"{label}: {verdict.row()[-1]}\n")


def _progress(label: str) -> Callable[[str], None]:
    """One line on a terminal, which the next one replaces; nothing elsewhere."""

    def told(what: str) -> None:
        if sys.stderr.isatty():
            _tell(f"{label}: {what}")

    return told


def _tell(text: str) -> None:
    line = text.ljust(_WIDTH) if sys.stderr.isatty() else text
    sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else line)
    sys.stderr.flush()


if __name__ == "__main__":
    main()
