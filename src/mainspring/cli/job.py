"""`mainspring job`: the registry of jobs, one job at a time. What has become of them is in `job_runs`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource
from msgspec import UNSET

from mainspring.cli.failure import named_as_options
from mainspring.cli.globals import Globals, connection_options, settings
from mainspring.cli.instants import instant_text
from mainspring.cli.job_apply import apply_command
from mainspring.cli.job_export import export_command
from mainspring.cli.job_runs import (
    SCHEDULE_OPTIONS,
    backfill_command,
    preview_command,
    rerun_command,
    runs_command,
    trigger_command,
)
from mainspring.cli.output import say, show, show_document, show_table
from mainspring.cli.parameters import DURATION, HEADER, JSON, LABEL, MOMENT, Whole, once_each
from mainspring.cli.policy import job_retry_options, policy_text, take_policy
from mainspring.cli.watching import present, watch_option
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import Catchup, JobPage, JobState, JobView, Method, Overlap
from mainspring.jobs.record import DEFAULT_POLICY
from mainspring.text import printable

if TYPE_CHECKING:
    from mainspring.client import JobFields

LIST_COLUMNS = (
    *("name", "state", "schedule", "timezone", "nextAt", "lastRun", "lastOutcome", "failures", "target", "remark"),
)
LIST_SPARE = ("target", "lastRun", "timezone", "remark", "schedule")
CLEARABLE = {
    "url": "url",
    "route": "route",
    "body": "body",
    "retry-policy": "retry_policy",
    "start-at": "start_at",
    "end-at": "end_at",
    "max-runs": "max_runs",
}


@click.group()
def job() -> None:
    """HTTP calls on a calendar: create, inspect, change, pause and run jobs, and see what became of each instant.

    \b
    Examples:
      mainspring job preview "30 2 * * *" --timezone Europe/Berlin
      mainspring job create report "0 9 * * mon-fri" --timezone Europe/Berlin \\
          --callback-url http://127.0.0.1:8711/report
      mainspring job runs report --state failed
      mainspring job export jobs.yaml
      mainspring job apply jobs.yaml --dry-run
    """


def _content_options(command: Any, *, is_new: bool) -> Any:
    """What a job is made of; the same for create and update, which leaves alone what is not given."""

    def text(words: str, default: str) -> str:
        return f"{words} [default: {default}]" if is_new else words

    for option in (
        click.option("--callback-url", help="URL to call; http or https."),
        click.option("--route", help="Instead of a URL: a path below the server's job_base_url."),
        click.option("--timezone", help=text("Time zone of the schedule, such as Europe/Berlin.", "UTC")),
        click.option("--seconds/--no-seconds", default=None, help="The schedule has six fields, seconds first."),
        click.option("--method", type=click.Choice(get_args(Method)), help=text("Method of the request.", "POST")),
        click.option("-H", "--header", "headers", type=HEADER, multiple=True, help="Sent with the call. Repeatable."),
        click.option("--body", type=JSON, help=text("JSON text, @file, or - for stdin.", "a description of the run")),
        click.option("--timeout", "timeout_seconds", type=DURATION, help=text("Deadline of one attempt.", "10s")),
        click.option(
            "--overlap",
            type=click.Choice(get_args(Overlap)),
            help=text("What to do while the previous run is not over.", "skip"),
        ),
        click.option(
            "--catchup", type=click.Choice(get_args(Catchup)), help=text("Which missed instants to run late.", "latest")
        ),
        click.option(
            "--catchup-window", "catchup_window_seconds", type=DURATION, help=text("How late they may be.", "1h")
        ),
        click.option(
            "--on-gap",
            type=click.Choice(["shift", "skip"]),
            help=text("What to do with times that a clock change skips.", "shift"),
        ),
        click.option(
            "--on-overlap",
            type=click.Choice(["first", "last", "both"]),
            help=text("What to do with times that occur twice.", "first"),
        ),
        click.option("--jitter", "jitter_seconds", type=DURATION, help="Spread runs randomly over this period."),
        click.option("--start-at", type=MOMENT, help="No instant before this one."),
        click.option("--end-at", type=MOMENT, help="No instant after this one."),
        click.option("--max-runs", type=int, help="Finish the job after this many runs by the calendar."),
        click.option("--label", "labels", type=LABEL, multiple=True, help="Label to find it by. Repeatable."),
        job_retry_options,
    )[::-1]:
        command = option(command)
    return command


def _take_fields(options: dict[str, Any]) -> JobFields:
    """The fields among a command's options that were given."""
    options["url"] = options.pop("callback_url")  # `url` itself is that of the server
    if options["url"] and options["route"]:
        raise click.UsageError("Expected one of --callback-url and --route, got both.")
    policy = take_policy(options)
    gap, overlap = options.pop("on_gap"), options.pop("on_overlap")
    options["headers"] = once_each(options["headers"], "header")
    options["labels"] = once_each(options["labels"], "label")
    fields: Any = {name: value for name, value in options.items() if value is not None and value != {}}
    if policy is not None:
        fields["retry_policy"] = policy
    if gap or overlap:
        fields["dst"] = Dst(on_gap=gap or "shift", on_overlap=overlap or "first")
    chosen: JobFields = fields
    return chosen


@job.command()
@click.argument("name")
@click.argument("schedule")
@click.option("--paused", is_flag=True, help="Do not run it until it is resumed.")
@click.option("--note", default="", help="A remark about it, as a note to others.")
@click.option("--by", default="", help="Who you are, as a note to others.")
@click.option("--dry-run", is_flag=True, help="Only have the server check it, and show what it would be.")
@partial(_content_options, is_new=True)
@connection_options
@click.pass_context
def create(
    ctx: click.Context, /, name: str, schedule: str, *, paused: bool, note: str, by: str, dry_run: bool, **options: Any
) -> None:
    """Create a job. With neither a URL nor a route, the route is /jobs/trigger/NAME.

    A SCHEDULE has five fields (minute, hour, day of month, month, day of week) or is a name such as @daily. Check
    it first with `mainspring job preview`. Instants before the creation are not run.

    \b
    Examples:
      mainspring job create report "0 9 * * mon-fri" --timezone Europe/Berlin \\
          --callback-url https://example.com/jobs/report
      mainspring job create clean-up "H * * * *" --route /jobs/clean-up --catchup none --timeout 2m
      mainspring job create probe "*/10 * * * * *" --seconds --callback-url http://127.0.0.1:8711/ --method GET
      mainspring job create report @daily --callback-url https://example.com/ -H 'X-Team: blue' --dry-run
    """
    fields = _take_fields(options)
    is_server_named = ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE
    if is_server_named and not fields.keys() & {"url", "callback_url", "route"}:
        raise click.UsageError("--url is the server. Set the target of the job with --callback-url or --route.")
    with settings(ctx).connect() as client, named_as_options(SCHEDULE_OPTIONS):
        view = client.jobs.create(name, schedule, paused=paused, note=note, by=by, dry_run=dry_run, **fields)
    _show(view, settings(ctx))
    if dry_run:
        say("Nothing was created.")


def _show(view: JobView, chosen: Globals) -> None:
    """People are shown the retry policy that is in force, whosever it is."""
    policy, whose = (view.retry_policy, "") if view.retry_policy else (DEFAULT_POLICY, "the default of jobs")
    text = "" if view.state == "broken" else policy_text(policy, whose=whose, then="the run is over")
    show(view, chosen, instead={"retryPolicy": text})


@job.command()
@click.argument("name")
@click.option("--schedule", help="The new schedule, in effect from now on.")
@click.option(
    "--clear", type=click.Choice(list(CLEARABLE)), multiple=True, help="Reset this field to its default. Repeatable."
)
@click.option("--if-generation", type=int, help="Only if the job has this generation; otherwise a conflict.")
@partial(_content_options, is_new=False)
@connection_options
@click.pass_context
def update(
    ctx: click.Context,
    /,
    name: str,
    schedule: str | None,
    clear: tuple[str, ...],
    if_generation: int | None,
    **options: Any,
) -> None:
    """Change a job; fields not given stay as they are. Headers, labels, the retry policy and both rules for clock
    changes are replaced as a whole. Runs that have begun continue unchanged.

    \b
    Examples:
      mainspring job update report --schedule "30 8 * * mon-fri"
      mainspring job update report --timeout 1m --retry-max-attempts 5 --if-generation 3
      mainspring job update report --clear max-runs --clear end-at
    """
    fields: Any = _take_fields(options)
    if fields.get("url") or fields.get("route"):  # a job has one target: the new one takes the place of the other
        fields = {"url": None, "route": None, **fields}
    both = [each for each in clear if fields.get(CLEARABLE[each]) is not None]
    if both:
        raise click.UsageError(f"Expected --clear {both[0]} or a new value for it, got both.")
    fields |= {CLEARABLE[each]: None for each in clear}
    if not fields and schedule is None:
        raise click.UsageError("Expected at least one option that changes the job, got none.")
    with settings(ctx).connect() as client, named_as_options(SCHEDULE_OPTIONS):
        view = client.jobs.update(
            name,
            if_generation=UNSET if if_generation is None else if_generation,
            schedule=UNSET if schedule is None else schedule,
            **fields,
        )
    _show(view, settings(ctx))


@job.command()
@click.argument("name")
@connection_options
@click.pass_context
def get(ctx: click.Context, name: str) -> None:
    """Show a job; for a broken one, its problem and what could be read of it.

    \b
    Example:
      mainspring job get report --output yaml
    """
    with settings(ctx).connect() as client:
        _show(client.jobs.get(name), settings(ctx))


@job.command()
@click.argument("name")
@connection_options
@click.pass_context
def delete(ctx: click.Context, name: str) -> None:
    """Delete a job. A call in flight continues, and the ledger of its runs stays until it expires.

    \b
    Example:
      mainspring job delete report
    """
    with settings(ctx).connect() as client:
        view = client.jobs.delete(name).job
    if not show_document(view, settings(ctx).output):
        click.echo(f"deleted {printable(name)}")


@job.command("list")
@click.option("--state", "states", type=click.Choice(get_args(JobState)), multiple=True, help="Repeatable.")
@click.option("--name-prefix", default="", help="Names starting with this.")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Has this label. Repeatable; all must match.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Jobs on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@watch_option
@connection_options
@click.pass_context
def list_jobs(
    ctx: click.Context,
    *,
    states: tuple[JobState, ...],
    name_prefix: str,
    labels: tuple[tuple[str, str], ...],
    limit: int,
    cursor: str | None,
    watches: bool,
) -> None:
    """List jobs by name, with their next and last runs by the calendar, how the last that is over ended, and how many
    have failed in a row (at most 20 are counted). The remark is the problem of a broken job, or the note of any other.

    \b
    Examples:
      mainspring job list
      mainspring job list --state broken --state paused
      mainspring job list --name-prefix billing- --label team=blue --output json
      mainspring job list --watch
    """
    with settings(ctx).connect() as client:

        def look() -> JobPage:
            return client.jobs.list(
                name_prefix=name_prefix, labels=dict(labels), states=states, limit=limit, cursor=cursor
            )

        present(look, lambda page: _draw(page, settings(ctx)), watches=watches)


def _draw(page: JobPage, chosen: Globals) -> None:
    if not show_document(page, chosen.output):
        show_table(LIST_COLUMNS, [_row(each) for each in page.jobs], chosen, spare=LIST_SPARE)
    broken = sum(each.state == "broken" for each in page.jobs)
    if broken:
        say(f"{broken} broken: a broken job does not run until its record is repaired. See `mainspring job get NAME`.")
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


def _row(view: JobView) -> tuple[str, ...]:
    return (
        view.name,
        view.state,
        view.schedule,
        view.timezone,
        instant_text(view.next_at),
        instant_text(view.last_run),
        view.last_outcome or "",
        str(view.consecutive_failures or ""),
        view.url or view.route or ("" if view.state == "broken" else f"/jobs/trigger/{view.name}"),
        view.problem or view.note,
    )


@job.command()
@click.argument("name")
@click.option("--note", default="", help="The reason, as a note to others.")
@click.option("--by", default="", help="Who you are, as a note to others.")
@connection_options
@click.pass_context
def pause(ctx: click.Context, name: str, note: str, by: str) -> None:
    """Stop running a job until it is resumed. Its instants are recorded as skipped.

    \b
    Example:
      mainspring job pause report --note "The warehouse is being moved." --by ann
    """
    with settings(ctx).connect() as client:
        _show(client.jobs.pause(name, note=note, by=by), settings(ctx))


@job.command()
@click.argument("name")
@click.option("--by", default="", help="Who you are, as a note to others.")
@connection_options
@click.pass_context
def resume(ctx: click.Context, name: str, by: str) -> None:
    """Run a paused job again, from now on. To run the instants of the pause, see `mainspring job backfill`.

    \b
    Example:
      mainspring job resume report --by ann
    """
    with settings(ctx).connect() as client:
        _show(client.jobs.resume(name, by=by), settings(ctx))


for _command in (
    trigger_command,
    rerun_command,
    preview_command,
    runs_command,
    backfill_command,
    apply_command,
    export_command,
):
    job.add_command(_command)
