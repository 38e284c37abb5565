"""`mainspring job trigger`, `rerun`, `preview`, `runs` and `backfill`: what a job will do, does and did."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

import click
from msgspec import UNSET

from mainspring.cli.failure import named_as_options
from mainspring.cli.globals import Globals, connection_options, settings
from mainspring.cli.instants import clock_text, instant_text, local_text
from mainspring.cli.output import WriteInstant, say, show, show_document, show_table
from mainspring.cli.parameters import DURATION, JSON, MOMENT, Whole
from mainspring.cli.progress import spinner
from mainspring.cli.watching import Stream, follow, follow_option
from mainspring.errors import NotFound
from mainspring.jobs.calendar.calendar import Dst, Mark
from mainspring.jobs.messages import InstantView, RunKind, RunState, RunView
from mainspring.text import NAME

if TYPE_CHECKING:
    from mainspring.client import Client, RunsWhere

POLL_SECONDS: Final = 0.25
PAGE: Final = 1000
FINAL: Final = get_args(RunState)[-5:]
MARKS: Final[dict[Mark, str]] = {
    "": "",
    "gap": "moved: the clock skips the scheduled time",
    "first": "the first of two: the clock is set back",
    "last": "the second of two: the clock is set back",
}
SCHEDULE_OPTIONS: Final = {"`seconds: true`": "--seconds", "`startAt` and `endAt`": "--start-at and --end-at"}
"""What is said of a schedule by the names of the API, as options."""
RUN_COLUMNS: Final = ("scheduledAt", "launchId", "kind", "state", "late", "attempts", "status", "duration", "reason")
RUN_SPARE: Final = ("attempts", "late", "duration", "status", "kind")


@click.command("trigger")
@click.argument("name")
@click.option(
    "--body", type=JSON, help="Sent this once instead of the job's own body: JSON text, @file, or - for stdin."
)
@click.option("--by", default="", help="Who you are, as a note to others.")
@click.option("--wait", is_flag=True, help="Wait until it is over; the exit code is 1 unless it succeeded.")
@click.option("--wait-for", type=DURATION, default=600.0, help="Longest wait, with --wait. [default: 10m]")
@connection_options
@click.pass_context
def trigger_command(ctx: click.Context, name: str, *, body: Any, by: str, wait: bool, wait_for: float) -> None:
    """Run a job now, in addition to its calendar, even if it is paused or running.

    \b
    Examples:
      mainspring job trigger report
      mainspring job trigger report --wait --body '{"day": "2026-11-01"}'
    """
    with settings(ctx).connect() as client:
        run = client.jobs.trigger(name, body=body, by=by)
        _show_run(client, run, wait_for if wait else None, settings(ctx))


@click.command("rerun")
@click.argument("launch_id")
@click.option("--by", default="", help="Who you are, as a note to others.")
@click.option("--wait", is_flag=True, help="Wait until it is over; the exit code is 1 unless it succeeded.")
@click.option("--wait-for", type=DURATION, default=600.0, help="Longest wait, with --wait. [default: 10m]")
@connection_options
@click.pass_context
def rerun_command(ctx: click.Context, launch_id: str, *, by: str, wait: bool, wait_for: float) -> None:
    """Run a run again that failed, was cancelled, or whose outcome is unknown: under its own instant, now.

    LAUNCH_ID is shown by `mainspring job runs`. The run stays in the ledger as it is; the new one is listed after it.
    If the outcome is unknown, the receiver may have acted: check first.

    \b
    Examples:
      mainspring job rerun report@1793520000000
      mainspring job rerun report@1793520000000 --wait --by ann
    """
    with settings(ctx).connect() as client:
        run = client.jobs.rerun(launch_id, by=by)
        _show_run(client, run, wait_for if wait else None, settings(ctx))


def _show_run(client: Client, run: RunView, wait_seconds: float | None, chosen: Globals) -> None:
    """Show a run that was asked for; after a wait, if that is wanted, its end decides about the exit code."""
    if wait_seconds is not None:
        run = _wait_until_over(client, run, wait_seconds, chosen)
    show(run, chosen)
    if wait_seconds is not None and run.state not in FINAL:
        say(f"Not over after {wait_seconds:g} s. It continues; see `mainspring job runs {run.name}`.")
    if wait_seconds is not None and run.state != "succeeded":
        sys.exit(1)


def _wait_until_over(client: Client, run: RunView, seconds: float, chosen: Globals) -> RunView:
    """The same run, later. The ledger is asked for its one instant, so this costs the same for every job."""
    deadline = time.monotonic() + seconds
    with spinner(f"{run.name}: {run.state}", chosen) as tell:
        while run.state not in FINAL and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            until = run.scheduled_at + timedelta(milliseconds=1)
            found = client.jobs.iterate_runs(run.name, kinds=(run.kind,), since=run.scheduled_at, until=until)
            run = next((each for each in found if each.launch_id == run.launch_id), run)
            tell(f"{run.name}: {run.state}, attempt {run.attempts}")
    return run


@click.command("preview")
@click.argument("name_or_schedule")
@click.option("--name", help="With a schedule: name of the job, from which H is derived.")
@click.option("--timezone", help="Time zone of the schedule, such as Europe/Berlin.")
@click.option("--seconds/--no-seconds", default=None, help="The schedule has six fields, seconds first.")
@click.option("--on-gap", type=click.Choice(["shift", "skip"]), help="What to do with times that a clock change skips.")
@click.option(
    "--on-overlap", type=click.Choice(["first", "last", "both"]), help="What to do with times that occur twice."
)
@click.option("--from", "from_", type=MOMENT, help="Instants after this one. [default: now]")
@click.option("--count", type=Whole(1, 1000), default=10, show_default=True, help="Number of instants.")
@connection_options
@click.pass_context
def preview_command(ctx: click.Context, /, name_or_schedule: str, **options: Any) -> None:
    """Show the next instants of a job, or of a schedule you want to try.

    An argument that cannot be a name (it has spaces, or starts with @) is a schedule. Clock changes are explained in
    words.

    \b
    Examples:
      mainspring job preview report
      mainspring job preview "30 2 * * *" --timezone Europe/Berlin --from 2027-03-26T00:00:00Z
      mainspring job preview @daily --timezone America/New_York --on-overlap both --count 100
      mainspring job preview "H H(0-5) * * *" --name clean-up
    """
    is_schedule = re.match(NAME, name_or_schedule) is None
    if options["name"] and not is_schedule:
        raise click.UsageError("Expected a schedule with --name, got the name of a job.")
    gap, overlap = options["on_gap"], options["on_overlap"]
    name = options["name"] if is_schedule else name_or_schedule
    with settings(ctx).connect() as client, named_as_options(SCHEDULE_OPTIONS):
        # Of two rules the one that is not given stays as it is.
        base = client.jobs.get(name).dst if (gap or overlap) and not is_schedule else Dst()
        view = client.jobs.preview(
            name,
            schedule=name_or_schedule if is_schedule else UNSET,
            timezone=options["timezone"] or UNSET,
            seconds=UNSET if options["seconds"] is None else options["seconds"],
            dst=Dst(gap or base.on_gap, overlap or base.on_overlap) if gap or overlap else UNSET,
            from_=options["from_"],
            count=options["count"],
        )
    if not show_document(view, settings(ctx).output):
        table = [("UTC", view.timezone, "day", "clock change"), *map(_instant_row, view.instants)]
        if view.timezone == "UTC":  # one column says it all
            table = [(utc, *others) for utc, _, *others in table]
        show_table(table[0], table[1:], settings(ctx))
    if len(view.instants) < options["count"]:
        say("There are no more.")


def _instant_row(instant: InstantView) -> tuple[str, ...]:
    local = datetime.fromisoformat(instant.local)
    return clock_text(instant.at), clock_text(local), f"{local:%a}", MARKS[instant.mark]


@click.command("runs")
@click.argument("name", required=False)
@click.option("--state", "states", type=click.Choice(get_args(RunState)), multiple=True, help="Repeatable.")
@click.option("--kind", "kinds", type=click.Choice(get_args(RunKind)), multiple=True, help="Repeatable.")
@click.option("--since", type=MOMENT, help="Scheduled at or after this instant.")
@click.option("--until", type=MOMENT, help="Scheduled before this instant.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Entries on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@follow_option
@connection_options
@click.pass_context
def runs_command(
    ctx: click.Context, /, name: str | None, limit: int, cursor: str | None, follows: bool, **options: Any
) -> None:
    """Show what became of each instant of a job, newest first; without a name, of all jobs together.

    Consecutive instants skipped for the same reason are one entry. `late` is measured from the planned moment. With
    --follow entries come oldest first, and a run is shown again whenever its state changes; a backfill, whose instants
    are past, is not.

    \b
    Examples:
      mainspring job runs report
      mainspring job runs report --state failed --state unknown --since 2026-11-01T00:00:00Z
      mainspring job runs --state skipped --output json
      mainspring job runs report --follow
    """
    where: Any = {each: value for each, value in options.items() if value}
    chosen: RunsWhere = where
    if follows and cursor is not None:
        raise click.UsageError("Expected one of --cursor and --follow, got both.")
    with settings(ctx).connect() as client:
        page = client.jobs.runs(name, limit=limit, cursor=cursor, **chosen)
        if not page.runs and not page.next_cursor and cursor is None:
            _say_why_empty(client, name)
        if follows:
            _follow(client, name, page.runs, chosen, settings(ctx))
            return
    if not show_document(page, settings(ctx).output):
        show_table(RUN_COLUMNS, [_run_row(run) for run in page.runs], settings(ctx), spare=RUN_SPARE)
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


def _follow(client: Client, name: str | None, first: Sequence[RunView], where: RunsWhere, chosen: Globals) -> None:
    """Whatever may still change is scheduled no earlier than the oldest run that is not over, or else than the newest.
    A state that was asked for may be a later one: until then the run has to be known."""
    states = where.pop("states", ())
    window = where.copy()
    _move(window, first)
    waiting = [first]

    def look() -> Sequence[RunView]:
        found = waiting.pop() if waiting else [*client.jobs.iterate_runs(name, page_size=PAGE, **window)]
        _move(window, found)
        return sorted(found, key=lambda run: run.scheduled_at, reverse=True)

    stream = Stream(RUN_COLUMNS, chosen, lambda run: _run_row(run, local_text))

    def show_chosen(found: Sequence[RunView]) -> None:
        stream.show([run for run in found if not states or run.state in states])

    follow(look, show_chosen, key=lambda run: (run.launch_id, run.state, run.count))


def _move(window: RunsWhere, found: Sequence[RunView]) -> None:
    """Begin the next look where something may still change."""
    if not found:
        window.setdefault("since", datetime.now(UTC) - timedelta(minutes=1))
        return
    open_ones = [run.scheduled_at for run in found if run.state not in FINAL]
    window["since"] = min(open_ones, default=max(run.scheduled_until or run.scheduled_at for run in found))


def _say_why_empty(client: Client, name: str | None) -> None:
    """The ledger outlives its job: only if both are missing was there none."""
    try:
        if name is not None:
            client.jobs.get(name)
        say("No run was found.")
    except NotFound as error:
        if client.jobs.runs(name, limit=1).runs:
            say("No such run was found.")
        else:
            raise NotFound(f"{error.detail}, and has no runs") from error


def _run_row(run: RunView, write: WriteInstant = instant_text) -> tuple[str, ...]:
    reason = run.reason
    if run.count > 1 and run.scheduled_until is not None:
        reason += f" ({run.count} instants until {local_text(run.scheduled_until)})"
    return (
        write(run.scheduled_at),
        run.launch_id,
        run.kind,
        run.state,
        duration_text(run.late_ms),
        str(run.attempts or ""),
        str(run.status or ""),
        duration_text(run.duration_ms),
        reason,
    )


def duration_text(ms: int | None) -> str:
    """Milliseconds for people: 12ms, 3.4s, 5m 6s, 7h 8m."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms}ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f}s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes}m {seconds}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


@click.command("backfill")
@click.argument("name")
@click.option("--since", type=MOMENT, required=True, help="From this instant on.")
@click.option("--until", type=MOMENT, required=True, help="Before this instant; not in the future.")
@click.option("--dry-run", is_flag=True, help="Only count the instants.")
@click.option("--by", default="", help="Who you are, as a note to others.")
@connection_options
@click.pass_context
def backfill_command(
    ctx: click.Context, name: str, *, since: datetime, until: datetime, dry_run: bool, by: str
) -> None:
    """Run the instants of a past range that were not run, one after another. `launched` are those it runs, or would.

    \b
    Examples:
      mainspring job backfill report --since 2026-11-01T00:00:00Z --until 2026-11-08T00:00:00Z --dry-run
      mainspring job backfill report --since 2026-11-01T00:00:00Z --until 2026-11-08T00:00:00Z --by ann
    """
    with settings(ctx).connect() as client:
        show(client.jobs.backfill(name, since=since, until=until, dry_run=dry_run, by=by), settings(ctx))
