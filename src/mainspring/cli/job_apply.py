"""`mainspring job apply`: make the registry equal to a file, after showing what that means."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import UNSET

from mainspring.cli.confirmation import confirm
from mainspring.cli.globals import Globals, connection_options, settings
from mainspring.cli.job_difference import Change, Step, steps
from mainspring.cli.job_file import Form, form_of, read_jobs
from mainspring.cli.output import cell, show_document
from mainspring.cli.parameters import LABEL, once_each
from mainspring.cli.progress import progress
from mainspring.errors import FieldError, InvalidInput, MainspringError
from mainspring.jobs.difference import CONTENT, content
from mainspring.text import counted, printable
from mainspring.wire.message import View

if TYPE_CHECKING:
    from mainspring.client import Client

EXIT_DIFFERENT: Final = 7
SIGNS: Final = {"create": "+", "update": "~", "delete": "-"}


class UpdatedJob(View, frozen=True, kw_only=True):
    """A job that differs from the file, and in what."""

    name: str
    changes: tuple[Change, ...]


class ApplyView(View, frozen=True, kw_only=True):
    """What was done, or would be."""

    created: tuple[str, ...]
    updated: tuple[UpdatedJob, ...]
    deleted: tuple[str, ...]
    unchanged: int
    dry_run: bool


@click.command("apply")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["toml", "yaml", "json"]),
    help="[default: by the file's name or its contents]",
)
@click.option("--dry-run", is_flag=True, help="Only show the difference; the exit code is 7 if there is one.")
@click.option(
    "--label",
    "labels",
    type=LABEL,
    multiple=True,
    help="Give all jobs of the file this label, and delete only jobs that have it. Repeatable.",
)
@click.option("--prune/--no-prune", default=True, show_default=True, help="Delete jobs that are not in the file.")
@click.option("--yes", is_flag=True, help="Do not ask before deletions.")
@click.option("--by", default="", help="Who you are, as a note to others.")
@connection_options
@click.pass_context
def apply_command(
    ctx: click.Context,
    file: str,
    *,
    form: Form | None,
    dry_run: bool,
    labels: tuple[tuple[str, str], ...],
    prune: bool,
    yes: bool,
    by: str,
) -> None:
    """Make the jobs of the server match a file of TOML, YAML or JSON; - is stdin. `job export` writes one.

    The file has a table `jobs` with a table for each job, or a list `jobs`. The fields are those of
    `POST /v1/jobs/create`; an absent field takes its default. A job is only paused or resumed if the file says
    `paused` for it. All jobs are checked before the first is changed. Jobs that are not in the file are deleted after
    a confirmation, unless --no-prune is given. If somebody else changes a job at the same time, the command ends with
    a conflict: run it again.

    If several teams have a file each, give each a label of its own, with --label or as `labels` at the top of the
    file: then all jobs of the file have it, and jobs without it are left alone.

    \b
    Examples:
      mainspring job apply jobs.toml --dry-run
      mainspring job apply jobs.toml --yes
      mainspring job apply blue.yaml --label team=blue
      mainspring job apply more-jobs.json --no-prune

    \b
    A file:
      [jobs.daily-report]
      schedule = "0 9 * * mon-fri"
      timezone = "Europe/Berlin"
      url = "https://example.com/jobs/report"
      retryPolicy = { maxAttempts = 5 }

    \b
    The same in YAML, for one team:
      labels: {team: blue}
      jobs:
        daily-report:
          schedule: "0 9 * * mon-fri"
          timezone: Europe/Berlin
          url: https://example.com/jobs/report
          retryPolicy: {maxAttempts: 5}
    """
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    wanted = read_jobs(data, form or form_of(file), labels=once_each(labels, "label"))
    chosen = settings(ctx)
    with chosen.connect() as client:
        with progress(None, "reading jobs", chosen) as advance:
            present = []
            for job in client.jobs.iterate(page_size=1000, secrets=True):
                present.append(job)
                advance(len(present))
        planned = steps(wanted, present, prune=prune)
        unchanged = len(wanted.jobs) - sum(step.kind != "delete" for step in planned)
        if chosen.output in (None, "table"):
            _tell(planned, unchanged)
        _check(client, planned, chosen)
        if not dry_run:
            _ask(planned, wanted.labels, yes=yes)
            _apply(client, planned, by=by, chosen=chosen)
            if planned and chosen.output in (None, "table"):
                counts = _counts(planned)
                click.echo(f"{counts['create']} created, {counts['update']} updated, {counts['delete']} deleted.")
    show_document(_view(planned, unchanged, dry_run=dry_run), chosen.output)
    if dry_run and planned:
        sys.exit(EXIT_DIFFERENT)


def _tell(planned: list[Step], unchanged: int) -> None:
    for step in planned:
        line = f"{SIGNS[step.kind]} {step.kind} {step.name}"
        if step.wanted is not None and step.kind == "create":
            line += f"   {step.wanted.job.schedule}   {step.wanted.job.timezone}"
        click.echo(printable(line))
        for change in step.changes:
            click.echo(printable(f"    {change.field}: {_json(change.old)} → {_json(change.new)}"))
    counts = _counts(planned)
    click.echo(f"{counts['create']} to create, {counts['update']} to update, {counts['delete']} to delete, ", nl=False)
    click.echo(f"{unchanged} unchanged.")


def _counts(planned: list[Step]) -> dict[str, int]:
    return {kind: sum(step.kind == kind for step in planned) for kind in SIGNS}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _ask(planned: list[Step], labels: Mapping[str, str], *, yes: bool) -> None:
    deletions = sum(step.kind == "delete" for step in planned)
    if deletions and not yes:
        what = f"{counted(deletions, 'job')}{' with ' * bool(labels)}{cell(labels)}"
        confirm(f"Delete {what} that {'is' if deletions == 1 else 'are'} not in the file?")


def _check(client: Client, planned: list[Step], chosen: Globals) -> None:
    """Have the server look at everything before anything is changed. Raises `InvalidInput` with all it objects to."""
    wrong: list[FieldError] = []
    with progress(len(planned), "checking", chosen) as advance:
        for done, step in enumerate(planned, start=1):
            try:
                _write(client, step, by="", dry_run=True)
            except InvalidInput as error:
                found = error.errors or (FieldError("", error.detail),)
                wrong += [FieldError(f"/jobs/{step.name}{field.pointer}", field.detail) for field in found]
            advance(done)
    if wrong:
        raise InvalidInput(
            f"The server does not accept these jobs: {counted(len(wrong), 'mistake')}", errors=tuple(wrong)
        )


def _apply(client: Client, planned: list[Step], *, by: str, chosen: Globals) -> None:
    with progress(len(planned), "applying", chosen) as advance:
        for done, step in enumerate(planned):
            try:
                _write(client, step, by=by, dry_run=False)
                _pause_or_resume(client, step, by=by)
            except (MainspringError, KeyboardInterrupt) as error:
                error.add_note(
                    f"Stopped at {step.name}: {done} of {len(planned)} changes were made, the others were not. "
                    "Run the command again to make them."
                )
                raise
            advance(done + 1)


def _write(client: Client, step: Step, *, by: str, dry_run: bool) -> None:
    """Create, update or delete a job; a dry run asks the server whether it would."""
    if step.wanted is None:
        if not dry_run:
            client.jobs.delete(step.name)
        return
    job = step.wanted.job
    if step.present is None:
        client.jobs.create(
            job.name, job.schedule, paused=job.paused, note=job.note, by=by or job.by, dry_run=dry_run, **content(job)
        )
        return
    changed = {change.field for change in step.changes}
    is_broken = step.present.state == "broken"  # then nobody knows what it holds: all of it is written
    fields = [field for field, wire in CONTENT.items() if is_broken or wire in changed]
    if fields:
        generation = UNSET if is_broken else step.present.generation
        client.jobs.update(
            job.name, if_generation=generation, schedule=job.schedule, dry_run=dry_run, **content(job, fields)
        )


def _pause_or_resume(client: Client, step: Step, *, by: str) -> None:
    changed = {change.field for change in step.changes}
    if step.wanted is None or not changed & {"paused", "note"}:
        return
    job = step.wanted.job
    if job.paused:
        client.jobs.pause(job.name, note=job.note, by=by or job.by)
    else:
        client.jobs.resume(job.name, by=by or job.by)


def _view(planned: list[Step], unchanged: int, *, dry_run: bool) -> ApplyView:
    return ApplyView(
        created=tuple(step.name for step in planned if step.kind == "create"),
        updated=tuple(UpdatedJob(name=step.name, changes=step.changes) for step in planned if step.kind == "update"),
        deleted=tuple(step.name for step in planned if step.kind == "delete"),
        unchanged=unchanged,
        dry_run=dry_run,
    )
