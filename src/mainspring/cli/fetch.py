"""`mainspring fetch`: calls that are made at most once, and what became of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

import click
from msgspec.structs import replace

from mainspring.cli.confirmation import confirm
from mainspring.cli.globals import Globals, connection_options, settings
from mainspring.cli.output import say, show, show_document, show_rows
from mainspring.cli.parameters import DURATION, HEADER, JSON, LABEL, MOMENT, TEXT, Whole, once_each
from mainspring.cli.progress import spinner
from mainspring.cli.watching import Stream, follow, follow_option, present, watch_option
from mainspring.fetches.messages import (
    FetchPage,
    FetchResult,
    FetchState,
    FetchSummary,
    FetchView,
    Method,
    Undelivered,
)
from mainspring.text import counted

if TYPE_CHECKING:
    from mainspring.client import Client, FetchesWhere, FetchFields

LIST_COLUMNS: Final = ("reqId", "state", "delivery", "method", "url", "createdAt", "labels", "detail")
LIST_SPARE: Final = ("labels", "method", "delivery", "detail")
UNDELIVERED: Final = get_args(Undelivered)
UNDER_WAY: Final = ("pending", "running")
EXIT_FAILED: Final = 8
EXIT_UNKNOWN: Final = 9
LOOK_SECONDS: Final = 5.0
PAGE: Final = 1000


@click.group()
def fetch() -> None:
    """HTTP calls that are made at most once, with a result that is kept and delivered.

    \b
    Examples:
      mainspring fetch create http://127.0.0.1:8711/ --wait
      mainspring fetch create https://example.com/pay -X POST -d '{"amount": 12}' \\
          -H 'Content-Type: application/json' --req-id payment-42 --result-url https://example.com/hooks/paid
      mainspring fetch list --unknown
      mainspring fetch get payment-42
      mainspring fetch redeliver --all --dry-run
    """


@fetch.command()
@click.argument("target_url", metavar="TARGET_URL")
@click.option("-X", "--method", type=click.Choice(get_args(Method)), help="[default: GET, or POST with a body]")
@click.option("-H", "--header", "headers", type=HEADER, multiple=True, help="Sent with the call. Repeatable.")
@click.option("-d", "--body", type=TEXT, help="The body, as text, @file, or - for stdin.")
@click.option("--body-file", type=click.File("rb"), help="The body from a file, byte for byte; - for stdin.")
@click.option("--max-redirects", type=Whole(0, 10), help="Redirects to follow, for GET and HEAD. [default: 0]")
@click.option("--timeout", type=DURATION, help="Deadline of the whole call, 0.1s to 24h. [default: 30s]")
@click.option(
    "--req-id",
    help="Id of the fetch; repeating the request makes no second call, another one is refused. [default: generated]",
)
@click.option("--result-url", help="URL to which the signed result is sent.")
@click.option("--context", type=JSON, help="JSON text, @file, or - for stdin; returned with the result.")
@click.option("--delivery-time", type=DURATION, help="How long delivery of the result is attempted. [default: 1d]")
@click.option("--executor", metavar="POOL", help="Pool of executors that makes the call. [default: the server itself]")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Label to find it by. Repeatable.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the result and print it as curl would.")
@connection_options
@click.pass_context
def create(ctx: click.Context, /, target_url: str, waits: bool, **options: Any) -> None:
    """Request a call. It is made once or not at all, whatever crashes in between.

    With --wait, the body of the response is printed as is, and its status on stderr. Ctrl-C stops waiting, not the
    fetch; `fetch wait` resumes waiting. Exit codes with --wait:

    \b
      0  a response, whatever its status
      8  no response; the target has certainly not acted
      9  no response; the target may have acted: check before you try again

    \b
    Examples:
      mainspring fetch create http://127.0.0.1:8711/ --wait
      mainspring fetch create https://example.com/report -d q=7 --timeout 5m --req-id report-7
      mainspring fetch create https://example.com/upload --body-file photo.jpg -X PUT --executor uploads
    """
    fields = _fields(options)
    with settings(ctx).connect() as client:
        view = client.fetches.create(target_url, **fields)
        if waits:
            sys.exit(_wait(client, view, settings(ctx)))
    show(view, settings(ctx))


def _fields(options: dict[str, Any]) -> FetchFields:
    if options["body"] is not None and options["body_file"] is not None:
        raise click.UsageError("Expected one of --body and --body-file, got both.")
    fields: FetchFields = {
        "headers": once_each(options["headers"], "header"),
        "labels": once_each(options["labels"], "label"),
    }
    if options["body"] is not None:
        fields["body"] = options["body"]
    if options["body_file"] is not None:
        fields["body"] = options["body_file"].read()
    if options["method"] or "body" in fields:
        fields["method"] = options["method"] or "POST"
    if options["max_redirects"] is not None:
        fields["max_redirects"] = options["max_redirects"]
    if options["timeout"] is not None:
        fields["timeout_seconds"] = options["timeout"]
    if options["req_id"] is not None:
        fields["req_id"] = options["req_id"]
    if options["result_url"] is not None:
        fields["result_url"] = options["result_url"]
    if options["context"] is not None:
        fields["context"] = options["context"]
    if options["delivery_time"] is not None:
        fields["delivery_seconds"] = options["delivery_time"]
    if options["executor"] is not None:
        fields["executor"] = options["executor"]
    return fields


@fetch.command()
@click.argument("req_id")
@connection_options
@click.pass_context
def wait(ctx: click.Context, req_id: str) -> None:
    """Wait for the result of a fetch and print it like `fetch create --wait`, with the same exit codes.

    \b
    Examples:
      mainspring fetch wait payment-42
      mainspring fetch wait payment-42 --output json
    """
    with settings(ctx).connect() as client:
        sys.exit(_wait(client, client.fetches.get(req_id), settings(ctx)))


def _wait(client: Client, view: FetchView, chosen: Globals) -> int:
    try:
        with spinner(f"{view.method} {view.url}", chosen) as tell:
            while view.result is None:
                view = client.fetches.wait(view.req_id, LOOK_SECONDS)
                tell(f"{view.method} {view.url}: {view.state}")
    except KeyboardInterrupt:
        say(f"The fetch continues. For its result: mainspring fetch wait {view.req_id}")
        raise
    if not show_document(view, chosen.output if chosen.output != "table" else None):
        _print(view.result)
    if view.result.error is None:
        return 0
    return EXIT_FAILED if view.result.error.definite else EXIT_UNKNOWN


def _print(result: FetchResult) -> None:
    """As curl would: the body as it is; what is about it goes to stderr."""
    if result.response is None:
        say(f"{result.state}: {result.error.message if result.error else ''} ({result.req_id})")
        return
    say(f"{result.response.status} in {result.duration_ms} ms ({result.req_id})")
    sys.stdout.buffer.write(result.response.content)
    sys.stdout.buffer.flush()
    if result.response.body_problem:
        say(f"The body is not whole: {result.response.body_problem}")
    elif result.response.truncated:
        say("The body was longer: only its beginning is kept.")


@fetch.command()
@click.argument("req_id")
@connection_options
@click.pass_context
def get(ctx: click.Context, req_id: str) -> None:
    """Show a fetch, with its result if it has ended.

    \b
    Examples:
      mainspring fetch get payment-42
      mainspring fetch get payment-42 --output json
    """
    with settings(ctx).connect() as client:
        show(client.fetches.get(req_id), settings(ctx))


@fetch.command("list")
@click.option("--state", "states", type=click.Choice(get_args(FetchState)), multiple=True, help="Repeatable.")
@click.option(
    "--unknown",
    is_flag=True,
    help="Without a response, though the target may have acted: unknown, or cancelled while the call was under way. "
    "These need a person to look at them.",
)
@click.option(
    "--undelivered", is_flag=True, help="Whose result is still on its way to its origin, or did not reach it."
)
@click.option("--label", "labels", type=LABEL, multiple=True, help="Has this label. Repeatable; all must match.")
@click.option("--since", type=MOMENT, help="Created at or after this instant.")
@click.option("--until", type=MOMENT, help="Created before this instant.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Fetches on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@watch_option
@follow_option
@connection_options
@click.pass_context
def list_fetches(
    ctx: click.Context,
    /,
    *,
    unknown: bool,
    undelivered: bool,
    limit: int,
    cursor: str | None,
    watches: bool,
    follows: bool,
    **options: Any,
) -> None:
    """List fetches: those still under way first, then those that have ended.

    With --follow: those created in the last minute, or since --since, and then new ones, oldest first. A fetch is
    shown again whenever its state changes.

    \b
    Examples:
      mainspring fetch list --unknown
      mainspring fetch list --undelivered
      mainspring fetch list --state pending --state running
      mainspring fetch list --label tenant=acme --since 2026-12-01T00:00:00Z --output json
      mainspring fetch list --follow --label tenant=acme
    """
    if watches and follows:
        raise click.UsageError("Expected one of --watch and --follow, got both.")
    if follows and cursor is not None:
        raise click.UsageError("Expected one of --cursor and --follow, got both.")
    where = _where(options)
    if unknown:
        where["may_have_acted"] = True
    if undelivered:
        where["deliveries"] = UNDELIVERED
    with settings(ctx).connect() as client:
        if follows:
            _follow(client, where, settings(ctx))
            return

        def look() -> FetchPage:
            return client.fetches.list(limit=limit, cursor=cursor, **where)

        def draw(page: FetchPage) -> None:
            show_rows(page, page.fetches, LIST_COLUMNS, settings(ctx), spare=LIST_SPARE)
            if page.next_cursor:
                say(f"There are more: --cursor {page.next_cursor}")

        present(look, draw, watches=watches)


def _follow(client: Client, where: FetchesWhere, chosen: Globals) -> None:
    """Whatever may still change was created no earlier than the oldest that is under way, or else than the newest. A
    state that was asked for may be a later one: until then the fetch has to be known. Where those under way are not
    asked for, all since the beginning are looked at."""
    states = where.pop("states", ())
    window = where.copy()
    sees_all = not where.keys() & {"may_have_acted", "deliveries"}
    nothing = "Nothing yet" if "since" in where else "Nothing in the last minute, and --since looks further back"
    window.setdefault("since", datetime.now(UTC) - timedelta(minutes=1))

    def look() -> list[FetchSummary]:
        found = [*client.fetches.iterate(page_size=PAGE, **window)]
        if found and sees_all:
            open_ones = [each.created_at for each in found if each.state in UNDER_WAY]
            window["since"] = min(open_ones, default=max(each.created_at for each in found))
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    stream = Stream(LIST_COLUMNS, chosen)

    def show_chosen(found: Sequence[FetchSummary]) -> None:
        stream.show([each for each in found if not states or each.state in states])

    follow(look, show_chosen, key=lambda each: (each.req_id, each.state), nothing=nothing)


@fetch.command()
@click.argument("req_id")
@connection_options
@click.pass_context
def cancel(ctx: click.Context, req_id: str) -> None:
    """Cancel a fetch. One that has ended stays as it is; a call under way continues.

    \b
    Example:
      mainspring fetch cancel payment-42
    """
    with settings(ctx).connect() as client:
        view = client.fetches.cancel(req_id)
    show(view, settings(ctx))
    if view.result is not None and view.state != "cancelled":
        say("It had already ended: nothing was cancelled.")


@fetch.command()
@click.argument("req_id", required=False)
@click.option("--state", "states", type=click.Choice(get_args(FetchState)), multiple=True, help="Repeatable.")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Has this label. Repeatable; all must match.")
@click.option("--since", type=MOMENT, help="Created at or after this instant.")
@click.option("--until", type=MOMENT, help="Created before this instant.")
@click.option("--waiting", is_flag=True, help="Also results that wait for their next offer: make it now.")
@click.option("--all", "everything", is_flag=True, help="All results that did not reach their origins.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
@click.pass_context
def redeliver(
    ctx: click.Context,
    /,
    req_id: str | None,
    *,
    waiting: bool,
    everything: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Bring the result of a fetch to its origin again, or the results of all that match and did not reach theirs.

    A result that was given up is offered at once, and then for as long as the fetch allows (--delivery-time).

    \b
    Examples:
      mainspring fetch redeliver payment-42
      mainspring fetch redeliver --label tenant=acme --dry-run
      mainspring fetch redeliver --all --since 2026-12-01T00:00:00Z --yes
    """
    where = _where(options)
    if req_id is None and not where and not everything:
        raise click.UsageError("Expected a REQ_ID, a filter such as --label, or --all, got none of them.")
    if waiting:
        where["deliveries"] = UNDELIVERED
    with settings(ctx).connect() as client:
        if req_id is not None or dry_run or yes:
            show(client.fetches.redeliver(req_id, all=everything, dry_run=dry_run, **where), settings(ctx))
            return
        found = client.fetches.redeliver(all=everything, dry_run=True, **where)
        if found.matched:
            confirm(f"Deliver {counted(found.matched, 'result')} again?")
            found = client.fetches.redeliver(all=everything, **where)
        else:
            say("No result matches.")
            found = replace(found, dry_run=False)  # that they were counted first is our own affair
        show(found, settings(ctx))


def _where(options: dict[str, Any]) -> FetchesWhere:
    where: FetchesWhere = {}
    if options["states"]:
        where["states"] = options["states"]
    if options["labels"]:
        where["labels"] = dict(options["labels"])
    if options["since"]:
        where["since"] = options["since"]
    if options["until"]:
        where["until"] = options["until"]
    return where


@fetch.command()
@connection_options
@click.pass_context
def stats(ctx: click.Context) -> None:
    """Show fetches by state, how long recent ones took, and which executors make the calls.

    \b
    Examples:
      mainspring fetch stats
      mainspring fetch stats --output json
    """
    with settings(ctx).connect() as client:
        show(client.fetches.stats(), settings(ctx))
