"""`mainspring timer`: one timer at a time, and those that match a filter."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from mainspring.cli.bulk import act_on_many
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.output import say, show, show_rows
from mainspring.cli.parameters import DURATION, HEADER, JSON, LABEL, MOMENT, Whole
from mainspring.cli.policy import retry_options, take_policy
from mainspring.cli.selection import filter_options, namespace_option, take_where
from mainspring.cli.transfer import export_command, import_command
from mainspring.errors import NotFound
from mainspring.model import Delivery, Result
from mainspring.wire.message import View

if TYPE_CHECKING:
    from mainspring.client import Client

LIST_COLUMNS = ("timerId", "state", "nextAttemptAt", "attempts", "callbackUrl", "labels")
CHANGES = ("callback_url", "payload", "headers", "labels", "callback_timeout", "delivery")
HISTORY_COLUMNS = ("startedAt", "attempt", "outcome", "status", "durationMs", "next", "nextAt", "detail")


@click.group()
def timer() -> None:
    """Create, inspect, change, import and export timers.

    \b
    Examples:
      mainspring timer create hello --in 5s --callback-url http://127.0.0.1:8711/
      mainspring timer get hello
      mainspring timer list --state parked
      mainspring timer delete --label team=blue --dry-run
    """


def _content_options(command: Any) -> Any:
    """What a timer is made of; the same for create and update."""
    for option in (
        click.option("--in", "delay", type=DURATION, help="Due after this delay: 90, 5m, 1h30m."),
        click.option("--at", type=MOMENT, help="Due at this instant: 2026-12-01T09:00:00+01:00."),
        click.option("--payload", type=JSON, help="JSON text, @file, or - for stdin."),
        click.option("--header", "headers", type=HEADER, multiple=True, help="Sent with the callback. Repeatable."),
        click.option("--label", "labels", type=LABEL, multiple=True, help="Label to find it by. Repeatable."),
        click.option("--callback-timeout", type=DURATION, help="Deadline of one attempt, 1s to 30m."),
        click.option(
            "--delivery",
            type=click.Choice([each.value for each in Delivery]),
            help="What to risk: repeating the call, or losing it.",
        ),
        retry_options,
    )[::-1]:
        command = option(command)
    return command


def _take_time(options: dict[str, Any]) -> tuple[datetime | None, float | None]:
    at, delay = options.pop("at"), options.pop("delay")
    if at is not None and delay is not None:
        raise click.UsageError("Expected one of --in and --at, got both.")
    return at, delay


@timer.command()
@click.argument("timer_id")
@click.option("--callback-url", required=True, help="URL to call; http or https.")
@namespace_option
@_content_options
@connection_options
@click.pass_context
def create(ctx: click.Context, /, timer_id: str, **options: Any) -> None:
    """Create a timer, or replace the one with this id.

    \b
    Examples:
      mainspring timer create hello --in 5s --callback-url http://127.0.0.1:8711/
      mainspring timer create invoice-7 --at 2026-12-01T09:00:00+01:00 \\
          --callback-url https://example.com/hooks/invoice --payload '{"invoice": 7}'
      mainspring timer create once --in 1h --callback-url https://example.com/ \\
          --delivery at-most-once --payload @body.json --header 'X-Team: blue' --label team=blue
    """
    at, delay = _take_time(options)
    if at is None and delay is None:
        raise click.UsageError("Expected --in or --at, got neither.")
    policy = take_policy(options)
    with settings(ctx).connect() as client:
        view = client.timers.create(
            timer_id,
            callback_url=options["callback_url"],
            execute_at=at,
            delay_seconds=delay,
            payload=options["payload"],
            namespace=options["namespace"],
            headers=dict(options["headers"]),
            labels=dict(options["labels"]),
            retry_policy=policy,
            callback_timeout_seconds=options["callback_timeout"] or 30.0,
            delivery=Delivery(options["delivery"] or Delivery.AT_LEAST_ONCE),
        )
    show(view, settings(ctx))


@timer.command()
@click.argument("timer_id")
@click.option("--callback-url", help="URL to call; http or https.")
@click.option("--if-generation", type=int, help="Only if the timer has this generation; otherwise a conflict.")
@namespace_option
@_content_options
@connection_options
@click.pass_context
def update(ctx: click.Context, /, timer_id: str, **options: Any) -> None:
    """Change a timer; fields not given stay as they are. A new time starts counting attempts afresh.

    Headers, labels and the retry policy are replaced as a whole.

    \b
    Examples:
      mainspring timer update hello --in 10m
      mainspring timer update hello --payload '{"n": 2}' --if-generation 3
    """
    at, delay = _take_time(options)
    policy = take_policy(options)

    def given(name: str) -> Any:
        return UNSET if options[name] is None else options[name]

    if at is None and delay is None and policy is None and all(options[each] in (None, ()) for each in CHANGES):
        raise click.UsageError("Expected at least one option that changes the timer, got none.")
    with settings(ctx).connect() as client:
        view = client.timers.update(
            timer_id,
            namespace=options["namespace"],
            if_generation=given("if_generation"),
            execute_at=at or UNSET,
            delay_seconds=UNSET if delay is None else delay,
            callback_url=given("callback_url"),
            payload=given("payload"),
            headers=dict(options["headers"]) or UNSET,
            labels=dict(options["labels"]) or UNSET,
            retry_policy=policy or UNSET,
            callback_timeout_seconds=given("callback_timeout"),
            delivery=Delivery(options["delivery"]) if options["delivery"] else UNSET,
        )
    show(view, settings(ctx))


@timer.command()
@click.argument("timer_id")
@namespace_option
@connection_options
@click.pass_context
def get(ctx: click.Context, timer_id: str, namespace: str) -> None:
    """Show a timer. A timer that is done no longer exists: see `timer history`.

    \b
    Examples:
      mainspring timer get hello
      mainspring timer get hello --output json
    """
    with settings(ctx).connect() as client:
        show(client.timers.get(timer_id, namespace=namespace), settings(ctx))


@timer.command("list")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Timers on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@filter_options
@connection_options
@click.pass_context
def list_timers(ctx: click.Context, /, limit: int, cursor: str | None, **options: Any) -> None:
    """List timers in due order. To get all of a large number, see `timer export`.

    \b
    Examples:
      mainspring timer list
      mainspring timer list --state parked --prefix invoice- --limit 1000
      mainspring timer list --label team=blue --due-to 2026-12-01T00:00:00Z --output yaml
    """
    with settings(ctx).connect() as client:
        page = client.timers.list(limit=limit, cursor=cursor, **take_where(options))
    show_rows(page, page.timers, LIST_COLUMNS, settings(ctx))
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


@timer.command("run-now")
@click.argument("timer_id")
@namespace_option
@connection_options
@click.pass_context
def run_now(ctx: click.Context, timer_id: str, namespace: str) -> None:
    """Make a timer due at once.

    \b
    Example:
      mainspring timer run-now hello
    """
    with settings(ctx).connect() as client:
        show(client.timers.run_now(timer_id, namespace=namespace), settings(ctx))


@timer.command()
@click.argument("timer_id")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice([each.value for each in Result]),
    multiple=True,
    help="Only these. Repeatable.",
)
@click.option("--since", type=MOMENT, help="Started at or after this instant.")
@click.option("--until", type=MOMENT, help="Started before this instant.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Attempts on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@namespace_option
@connection_options
@click.pass_context
def history(ctx: click.Context, /, timer_id: str, outcomes: tuple[str, ...], **options: Any) -> None:
    """Show the attempts of a timer, newest first, even if it is done.

    \b
    Examples:
      mainspring timer history hello
      mainspring timer history hello --outcome failed --since 2026-11-01T00:00:00Z
    """
    with settings(ctx).connect() as client:
        page = client.timers.history(timer_id, outcomes=[Result(each) for each in outcomes], **options)
        if not page.attempts and not options["cursor"]:
            _say_why_empty(client, timer_id, options["namespace"])
    show_rows(page, page.attempts, HISTORY_COLUMNS, settings(ctx))
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


def _say_why_empty(client: Client, timer_id: str, namespace: str) -> None:
    """A history outlives its timer: only if both are missing was there none."""
    try:
        client.timers.get(timer_id, namespace=namespace)
        say("No attempt was found.")
    except NotFound as error:
        if client.timers.history(timer_id, namespace=namespace, limit=1).attempts:
            say("No such attempt was found.")
        else:
            raise NotFound(f"{error.detail}, and has no history") from error


def _one_or_many(verb: str, help_text: str) -> None:
    """delete, park and resume take one id, or a filter for many."""

    @timer.command(verb, help=help_text)
    @click.argument("timer_id", required=False)
    @click.option("--all-matching", "everything", is_flag=True, help="Every timer of the namespace that matches.")
    @click.option("--dry-run", is_flag=True, help="Only count what matches.")
    @click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
    @filter_options
    @connection_options
    @click.pass_context
    def command(
        ctx: click.Context, /, timer_id: str | None, everything: bool, dry_run: bool, yes: bool, **options: Any
    ) -> None:
        namespace: str = options["namespace"]
        where = take_where(options)
        conditions = len(where) > 1
        if timer_id is not None and (conditions or everything or dry_run):
            raise click.UsageError("Expected a TIMER_ID or a filter, got both.")
        if timer_id is None and not conditions and not everything:
            raise click.UsageError("Expected a TIMER_ID, a filter such as --prefix, or --all-matching.")
        with settings(ctx).connect() as client:
            if timer_id is None:
                act_on_many(client.timers, verb, where, everything=not conditions, dry_run=dry_run, yes=yes, ctx=ctx)
                return
            view: View
            if verb == "delete":
                view = client.timers.delete(timer_id, namespace=namespace).timer
            elif verb == "park":
                view = client.timers.park(timer_id, namespace=namespace)
            else:
                view = client.timers.resume(timer_id, namespace=namespace)
        show(view, settings(ctx))


_one_or_many(
    "delete",
    """Delete a timer, or all that match a filter.

    \b
    Examples:
      mainspring timer delete hello
      mainspring timer delete --label team=blue --dry-run
      mainspring timer delete --prefix invoice- --yes
      mainspring timer delete --namespace old --all-matching
    """,
)
_one_or_many(
    "park",
    """Keep a timer, or all that match a filter, from running until resumed.

    \b
    Examples:
      mainspring timer park hello
      mainspring timer park --label target=billing
    """,
)
_one_or_many(
    "resume",
    """Let a parked timer, or all that match a filter, run again.

    \b
    Examples:
      mainspring timer resume hello
      mainspring timer resume --state parked --prefix invoice- --yes
    """,
)

timer.add_command(import_command)
timer.add_command(export_command)
