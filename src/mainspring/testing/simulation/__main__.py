"""`python -m mainspring.testing.simulation`: search, or look at one history closely."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mainspring.testing.oracle.journal import write_journal
from mainspring.testing.signals import StopSignal
from mainspring.testing.simulation.counters import enough, total, unreached
from mainspring.testing.simulation.plan import NoPlan, Plan, read_plan, write_plan
from mainspring.testing.simulation.search import Found, search
from mainspring.testing.simulation.services import SERVICES
from mainspring.testing.simulation.shrinker import LONGEST, shrink
from mainspring.testing.simulation.simulate import Outcome, simulate
from mainspring.testing.simulation.swarm import draw_plan, service_of
from mainspring.testing.simulation.timeline import timeline

SHOWN = 3
"""How many failing seeds of a search are shrunk and shown."""
BROKEN = 1
NOT_RUN = 2
NEVER_HAPPENED = 3
EXCLUDED = {"replay": ("seed", "service", "seeds", "first", "processes"), "seed": ("seeds", "first", "processes")}
"""Options that mean nothing when another is given."""


class Refused(click.ClickException):
    """One line, and none about usage: the command was understood."""

    exit_code = NOT_RUN


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=500, show_default=True, help="How many seeds to run.")
@click.option("--from", "first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Run this one alone, and show its history.")
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run a replay file.")
@click.option(
    "--service",
    type=click.Choice([*SERVICES, "all"]),
    default="timers",
    show_default=True,
    help=f"Whose histories. all: of each in turn, seed by seed; {', '.join(SERVICES)} have those with the remainder "
    f"0, 1, 2 and 3 when divided by {len(SERVICES)}.",
)
@click.option("--processes", type=click.IntRange(min=1), help="How many processes; one for each core by default.")
@click.option("--shrink/--no-shrink", "shrinks", default=True, help="Make failing histories smaller.")
@click.option(
    "--runs", type=click.IntRange(min=0), default=LONGEST, show_default=True, help="How many runs that may take."
)
@click.option("--whole", is_flag=True, help="Show every event, and not only those of broken ids.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".simulation"),
    show_default=True,
    help="Where replay files go.",
)
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Search for broken promises in simulated histories.

    \b
    It ends with
        0  no promise was broken
        1  a promise was broken
        2  nothing was run: what was asked for makes no sense, or cannot be done
        3  no promise was broken, but in a long search (1,000 seeds of a service)
           something that has to happen sometimes never did
      130  it was ended by SIGINT (Ctrl-C)
      143  it was ended by SIGTERM
    """
    _refuse(context)
    _try_out(options["keep"])
    with StopSignal() as stop:
        sys.exit(_carry_out(options, stop))


def _refuse(context: click.Context) -> None:
    """Options that mean nothing because of others."""
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    given = [name for name in flags if context.get_parameter_source(str(name)) is ParameterSource.COMMANDLINE]
    for name, excluded in EXCLUDED.items():
        if name in given and (other := next((one for one in excluded if one in given), None)):
            raise Refused(f"Expected {flags[name]} without {flags[other]}, got both")


def _try_out(folder: Path) -> None:
    """Make sure that replay files can be kept, before there are any. No folder is left behind."""
    with ExitStack() as stack:
        try:
            for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
                missing.mkdir()
                stack.callback(missing.rmdir)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise Refused(f"Expected a folder that can be written, got {folder}: {error.strerror}") from None


def _plan(options: dict[str, Any]) -> Plan:
    try:
        return read_plan(options["replay"]) if options["replay"] else draw_plan(options["seed"], options["service"])
    except NoPlan as error:
        raise Refused(str(error)) from None


def _carry_out(options: dict[str, Any], stop: StopSignal) -> int:
    shown = {name: options[name] for name in ("shrinks", "runs", "whole", "keep")} | {"stop": stop}
    chosen = options["replay"], options["seed"]
    if any(one is not None for one in chosen):
        return _show(_plan(options), **shown)
    failed, missing = _search(options, stop)
    for found in failed[:SHOWN]:
        _show(draw_plan(found.seed, options["service"]), **shown)
    return BROKEN if failed else NEVER_HAPPENED if missing else 0


def _search(options: dict[str, Any], stop: StopSignal) -> tuple[list[Found], list[str]]:
    """What failed, and what never happened although it should have."""
    began = time.monotonic()
    failed: list[Found] = []
    reached: list[list[str]] = []
    seeds = range(options["first"], options["first"] + options["seeds"])
    with _bar(len(seeds), "seeds") as advance:
        for found in search(seeds, options["service"], processes=options["processes"], is_over=stop.is_told):
            advance()
            reached.append(found.reached)
            if found.violations:
                failed.append(found)
                rules = ",".join(dict.fromkeys(violation.rule for violation in found.violations))
                whose = service_of(found.seed, options["service"])
                click.echo(
                    f"seed {found.seed} of {whose}  {rules}  {found.violations[0].id}: {found.violations[0].detail}"
                )
    seconds = time.monotonic() - began
    if stop.is_told():
        numbers = sorted(found.seed for found in failed)
        which = f": {', '.join(map(str, numbers))}" if numbers else ""
        _end(stop, f"{len(reached)} of {len(seeds)} seeds in {seconds:.0f} s, {len(failed)} failed{which}")
    click.echo(f"{len(reached)} seeds in {seconds:.0f} s ({len(reached) / seconds:.1f}/s), {len(failed)} failed")
    service = options["service"]
    missing = unreached(total(reached), service) if len(reached) >= enough(service) else []
    if missing:
        click.echo(f"never happened: {', '.join(missing)}")
    return sorted(failed, key=lambda found: found.seed), missing


def _end(stop: StopSignal, told: str) -> NoReturn:
    assert stop.by is not None
    click.echo(f"ended by {stop.by.name}: {told}")
    sys.exit(128 + stop.by)


def _show(plan: Plan, *, shrinks: bool, runs: int, whole: bool, keep: Path, stop: StopSignal) -> int:
    """Show the history of a plan, and the smallest that fails in the same way."""
    outcome = simulate(plan)
    if stop.is_told():
        _end(stop, f"seed {plan.seed} {'failed' if outcome.violations else 'did not fail'}")
    told = f"{len(plan.operations)} operations, {outcome.seconds:.1f} s, {outcome.digest}"
    click.echo(f"--- seed {plan.seed} of {plan.service}: {told}")
    if not outcome.violations:
        if whole:
            click.echo("\n".join(timeline(outcome.journal, [], whole=True)))
        click.echo("no promise is broken")
        return 0
    if shrinks:
        with _bar(runs, "shrinking") as advance:

            def tell(made: int) -> None:
                advance()
                if stop.is_told():
                    _end(stop, f"seed {plan.seed} failed, {made - 1} runs were made to shrink it")

            outcome = shrink(outcome, runs=runs, told=tell)
        _tell_plan(outcome.plan)
    click.echo("\n".join(timeline(outcome.journal, outcome.violations, whole=whole)))
    _keep(outcome, keep)
    return BROKEN


def _tell_plan(plan: Plan) -> None:
    """What is left of a plan, in short."""
    plain = type(plan.world)()
    other = {
        name: getattr(plan.world, name)
        for name in plan.world.__struct_fields__
        if name not in ("policies", "destinations") and getattr(plan.world, name) != getattr(plain, name)
    }
    click.echo(f"    shrunk to {len(plan.operations)} operations, {len(plan.regimes)} regimes, {len(plan.blows)} blows")
    click.echo(f"    world: {', '.join(f'{name}={value}' for name, value in other.items())}")


def _keep(outcome: Outcome, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{outcome.plan.seed}.json"
    write_plan(path, outcome.plan)
    write_journal(path.with_suffix(".jsonl"), outcome.journal)
    click.echo(f"    --replay {path}")


@contextmanager
def _bar(count: int, label: str) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=count)
        yield lambda: progress.advance(task)


if __name__ == "__main__":
    main()
