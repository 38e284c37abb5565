"""`mainspring timer`: one timer at a time, and those that match a filter."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec import UNSET

from mainspring.cli.bulk import act_on_many
from mainspring.cli.globals import Globals, connection_options, settings
from mainspring.cli.output import say, show, show_document, show_rows
from mainspring.cli.parameters import DURATION, HEADER, JSON, LABEL, MOMENT, Whole, once_each
from mainspring.cli.policy import policy_text, retry_options, take_policy
from mainspring.cli.progress import spinner
from mainspring.cli.selection import filter_options, namespace_option, take_where
from mainspring.cli.transfer import export_command, import_command
from mainspring.cli.watching import Stream, follow, follow_option, present, watch_option
from mainspring.errors import NotFound
from mainspring.model import Delivery, Result, State
from mainspring.text import printable
from mainspring.timers.messages import AttemptView, TimerPage, TimerStatsView, TimerView

if TYPE_CHECKING:
    from mainspring.client import Client

LIST_COLUMNS = ("timerId", "state", "nextAttemptAt", "attempts", "callbackUrl", "labels")
LIST_SPARE = ("labels", "attempts")
CHANGES = ("callback_url", "payload", "headers", "labels", "callback_timeout", "delivery")
HISTORY_COLUMNS = ("startedAt", "attempt", "outcome", "status", "durationMs", "next", "nextAt", "detail")
HISTORY_SPARE = ("durationMs", "nextAt", "attempt", "status")


@click.group()
def timer() -> None:
    """Create, inspect, change, import and export timers.

    \b
    Examples:
      mainspring timer create hello --in 5s --callback-url http://127.0.0.1:8711/
      mainspring timer get hello
      mainspring timer list --state parked
      mainspring timer stats
      mainspring timer delete --label team=blue --dry-run
    """


def _content_options(command: Any) -> Any:
    """What a timer is made of; the same for create and update."""
    for option in (
        click.option("--delay", "--in", "delay", type=DURATION, help="Due after this delay: 90, 5m, 1h30m."),
        click.option("--execute-at", "--at", "at", type=MOMENT, help="Due at this instant: 2026-12-01T09:00:00+01:00."),
        click.option("--payload", type=JSON, help="JSON text, @file, or - for stdin."),
        click.option(
            "-H", "--header", "headers", type=HEADER, multiple=True, help="Sent with the callback. Repeatable."
        ),
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


def _target(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Required; whoever gives --url instead is told what that is."""
    if value is not None or ctx.resilient_parsing:
        return value
    if ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--url is the server. Set the target of the timer with --callback-url.")
    raise click.MissingParameter(ctx=ctx, param=param)


@timer.command()
@click.argument("timer_id")
@click.option("--callback-url", callback=_target, help="URL to call; http or https.  [required]")
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
          --delivery at-most-once --payload @body.json -H 'X-Team: blue' -H 'X-Run: 7' --label team=blue
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
            headers=once_each(options["headers"], "header"),
            labels=once_each(options["labels"], "label"),
            retry_policy=policy,
            callback_timeout_seconds=options["callback_timeout"] or 30.0,
            delivery=Delivery(options["delivery"] or Delivery.AT_LEAST_ONCE),
        )
        _show(client, view, settings(ctx))


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
            headers=once_each(options["headers"], "header") or UNSET,
            labels=once_each(options["labels"], "label") or UNSET,
            retry_policy=policy or UNSET,
            callback_timeout_seconds=given("callback_timeout"),
            delivery=Delivery(options["delivery"]) if options["delivery"] else UNSET,
        )
        _show(client, view, settings(ctx))


def _show(client: Client, view: TimerView, chosen: Globals) -> None:
    """People are shown the retry policy that is in force, whosever it is."""
    instead = {}
    if view.retry_policy is None and chosen.output in (None, "table"):
        policy = client.namespaces.get(view.namespace).retry_policy
        instead["retryPolicy"] = policy_text(policy, whose=f"that of namespace {view.namespace}")
    show(view, chosen, instead=instead)


@timer.command()
@click.argument("timer_id")
@namespace_option
@connection_options
@click.pass_context
def get(ctx: click.Context, timer_id: str, namespace: str) -> None:
    """Show a timer. A timer that is done no longer exists: see `timer history`.

    The retry policy is the one in force. With --output json it is null if it is that of the namespace.

    \b
    Examples:
      mainspring timer get hello
      mainspring timer get hello --output json
    """
    with settings(ctx).connect() as client:
        _show(client, client.timers.get(timer_id, namespace=namespace), settings(ctx))


@timer.command()
@namespace_option
@watch_option
@connection_options
@click.pass_context
def stats(ctx: click.Context, namespace: str, watches: bool) -> None:
    """Count the timers of a namespace by state, and show when the next is due. Timers that are done are not counted.

    \b
    Examples:
      mainspring timer stats
      mainspring timer stats --namespace billing --watch
    """
    with settings(ctx).connect() as client:

        def look() -> TimerStatsView:
            return client.timers.stats(namespace=namespace)

        def draw(view: TimerStatsView) -> None:
            show(view, settings(ctx))
            if view.counts_are_minimum:
                say("There are more than were counted.")

        present(look, draw, watches=watches)


@timer.command("list")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Timers on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@filter_options
@watch_option
@connection_options
@click.pass_context
def list_timers(ctx: click.Context, /, limit: int, cursor: str | None, watches: bool, **options: Any) -> None:
    """List timers in due order. To get all of a large number, see `timer export`.

    \b
    Examples:
      mainspring timer list
      mainspring timer list --state parked --id-prefix invoice- --limit 1000
      mainspring timer list --label team=blue --due-to 2026-12-01T00:00:00Z --output yaml
      mainspring timer list --state retrying --watch
    """
    with settings(ctx).connect() as client:

        def look() -> TimerPage:
            """A server looks through a bounded number of timers for each page, maybe in vain."""
            where = take_where(options)
            page = client.timers.list(limit=limit, cursor=cursor, **where)
            if not page.timers and page.next_cursor:
                with spinner("Looking through many timers", settings(ctx)):
                    while not page.timers and page.next_cursor:
                        page = client.timers.list(limit=limit, cursor=page.next_cursor, **where)
            return page

        def draw(page: TimerPage) -> None:
            show_rows(page, page.timers, LIST_COLUMNS, settings(ctx), spare=LIST_SPARE)
            if page.next_cursor:
                say(f"There are more: --cursor {page.next_cursor}")

        present(look, draw, watches=watches)


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
        _show(client, client.timers.run_now(timer_id, namespace=namespace), settings(ctx))


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
@follow_option
@connection_options
@click.pass_context
def history(ctx: click.Context, /, timer_id: str, follows: bool, **options: Any) -> None:
    """Show the attempts of a timer, newest first, even if it is done.

    With --follow they come oldest first, and each new one when it has ended.

    \b
    Examples:
      mainspring timer history hello
      mainspring timer history hello --outcome failed --since 2026-11-01T00:00:00Z
      mainspring timer history hello --follow
    """
    options["outcomes"] = [Result(each) for each in options["outcomes"]]
    where: Any = {name: value for name, value in options.items() if value}
    if follows and "cursor" in where:
        raise click.UsageError("Expected one of --cursor and --follow, got both.")
    with settings(ctx).connect() as client:
        page = client.timers.history(timer_id, **where)
        if not page.attempts and "cursor" not in where:
            _say_why_empty(client, timer_id, options["namespace"])
        if follows:
            _follow_history(client, timer_id, where, settings(ctx))
            return
    show_rows(page, page.attempts, HISTORY_COLUMNS, settings(ctx), spare=HISTORY_SPARE)
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


def _follow_history(client: Client, timer_id: str, where: Any, chosen: Globals) -> None:
    """A timer has one attempt at a time: whatever is new began after the newest that is known."""
    newest: dict[str, datetime] = {}

    def look() -> tuple[AttemptView, ...]:
        attempts = client.timers.history(timer_id, **(where | newest)).attempts
        if attempts:
            newest["since"] = attempts[0].started_at
        return attempts

    stream = Stream(HISTORY_COLUMNS, chosen)
    follow(look, stream.show, key=lambda each: (each.started_at, each.attempt, each.delivery_id))


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
    @click.option("--all", "everything", is_flag=True, help="Every timer of the namespace that matches.")
    @click.option("--dry-run", is_flag=True, help="Only count what matches, and what would change.")
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
            raise click.UsageError("Expected a TIMER_ID, a filter such as --id-prefix, or --all.")
        with settings(ctx).connect() as client:
            if timer_id is None:
                act_on_many(client.timers, verb, where, everything=not conditions, dry_run=dry_run, yes=yes, ctx=ctx)
                return
            if verb == "delete":
                _tell_deleted(client.timers.delete(timer_id, namespace=namespace).timer, settings(ctx))
            elif verb == "park":
                _show(client, client.timers.park(timer_id, namespace=namespace), settings(ctx))
            else:
                _show(client, client.timers.resume(timer_id, namespace=namespace), settings(ctx))


def _tell_deleted(view: TimerView, chosen: Globals) -> None:
    if not show_document(view, chosen.output):
        click.echo(f"deleted {printable(view.timer_id)}")
    if view.state is State.RUNNING:
        say("An attempt was in flight: it may still reach its receiver, and is not repeated.")


_one_or_many(
    "delete",
    """Delete a timer, or all that match a filter.

    \b
    Examples:
      mainspring timer delete hello
      mainspring timer delete --label team=blue --dry-run
      mainspring timer delete --id-prefix invoice- --yes
      mainspring timer delete --namespace old --all
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
      mainspring timer resume --state parked --id-prefix invoice- --yes
    """,
)

timer.add_command(import_command)
timer.add_command(export_command)
