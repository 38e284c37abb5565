"""`mainspring fetch`: calls that are made at most once, and what became of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from mainspring.cli.globals import Globals, connection_options, settings
from mainspring.cli.output import say, show, show_document, show_rows
from mainspring.cli.parameters import DURATION, HEADER, JSON, LABEL, MOMENT, TEXT, Whole
from mainspring.cli.progress import spinner
from mainspring.fetches.messages import FetchResult, FetchState, FetchView, Method

if TYPE_CHECKING:
    from mainspring.client import Client, FetchesWhere, FetchFields

LIST_COLUMNS: Final = ("reqId", "state", "method", "url", "createdAt", "labels", "detail")
EXIT_FAILED: Final = 8
EXIT_UNKNOWN: Final = 9
LOOK_SECONDS: Final = 5.0


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
    """


@fetch.command()
@click.argument("target_url", metavar="TARGET_URL")
@click.option("-X", "--method", type=click.Choice(get_args(Method)), help="[default: GET, or POST with a body]")
@click.option("-H", "--header", "headers", type=HEADER, multiple=True, help="Sent with the call. Repeatable.")
@click.option("-d", "--data", type=TEXT, help="The body, as text, @file, or - for stdin.")
@click.option("--data-file", type=click.File("rb"), help="The body from a file, byte for byte; - for stdin.")
@click.option("--max-redirects", type=Whole(0, 10), help="Redirects to follow, for GET and HEAD. [default: 0]")
@click.option("--timeout", type=DURATION, help="Deadline of the whole call, 0.1s to 30m. [default: 30s]")
@click.option("--req-id", help="Id of the fetch; repeating it makes no second call. [default: generated]")
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
      mainspring fetch create https://example.com/upload --data-file photo.jpg -X PUT --executor uploads
    """
    fields = _fields(options)
    with settings(ctx).connect() as client:
        view = client.fetches.create(target_url, **fields)
        if waits:
            sys.exit(_wait(client, view, settings(ctx)))
    show(view, settings(ctx))


def _fields(options: dict[str, Any]) -> FetchFields:
    if options["data"] is not None and options["data_file"] is not None:
        raise click.UsageError("Expected one of --data and --data-file, got both.")
    fields: FetchFields = {"headers": dict(options["headers"]), "labels": dict(options["labels"])}
    if options["data"] is not None:
        fields["body"] = options["data"]
    if options["data_file"] is not None:
        fields["body"] = options["data_file"].read()
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
    if result.response.truncated:
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
@click.option("--unknown", is_flag=True, help="Short for --state unknown: fetches that need a person to look at them.")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Has this label. Repeatable; all must match.")
@click.option("--since", type=MOMENT, help="Created at or after this instant.")
@click.option("--until", type=MOMENT, help="Created before this instant.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Fetches on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@connection_options
@click.pass_context
def list_fetches(ctx: click.Context, /, unknown: bool, limit: int, cursor: str | None, **options: Any) -> None:
    """List fetches: those still under way first, then those that have ended.

    \b
    Examples:
      mainspring fetch list --unknown
      mainspring fetch list --state pending --state running
      mainspring fetch list --label tenant=acme --since 2026-12-01T00:00:00Z --output json
    """
    where: FetchesWhere = {"states": (*options["states"], *(("unknown",) if unknown else ()))}
    if options["labels"]:
        where["labels"] = dict(options["labels"])
    if options["since"]:
        where["since"] = options["since"]
    if options["until"]:
        where["until"] = options["until"]
    with settings(ctx).connect() as client:
        page = client.fetches.list(limit=limit, cursor=cursor, **where)
    show_rows(page, page.fetches, LIST_COLUMNS, settings(ctx))
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


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
