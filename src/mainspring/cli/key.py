"""`mainspring key`: idempotency keys whose outcome is unknown, and what is decided about them by hand."""

from __future__ import annotations

from typing import Any, Final

import click
from msgspec import UNSET

from mainspring.cli.confirmation import confirm
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.output import say, show, show_rows
from mainspring.cli.parameters import DURATION, HEADER, JSON, TEXT, Whole
from mainspring.idempotency.messages import SettledAnswer
from mainspring.wire.arguments import request

LIST_COLUMNS: Final = ("scope", "key", "attempt", "startedAt", "reason", "result")


@click.group()
def key() -> None:
    """Idempotency keys in the server's store: list those whose outcome is unknown, and decide about them.

    A key belongs to a scope: a function, a subscriber, `http` for requests to an application, `api` for requests to
    this server. Work with an unknown outcome may have been done; it does not run again until somebody says so.

    \b
    Examples:
      mainspring key list
      mainspring key get shop.charge order-17
      mainspring key settle shop.charge order-17 --result '"receipt of 17"'
      mainspring key forget shop.charge order-18
    """


@key.command("list")
@click.option("--scope", help="Only keys of this scope.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Keys on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@connection_options
@click.pass_context
def list_keys(ctx: click.Context, scope: str | None, limit: int, cursor: str | None) -> None:
    """List keys whose outcome is unknown.

    A key whose process died is listed once somebody has asked for it again: nobody else notices.

    \b
    Examples:
      mainspring key list
      mainspring key list --scope shop.charge --output json
    """
    with settings(ctx).connect() as client:
        page = client.keys.list(scope=scope, limit=limit, cursor=cursor)
    show_rows(page, page.keys, LIST_COLUMNS, settings(ctx))
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


@key.command()
@click.argument("scope")
@click.argument("key_text", metavar="KEY")
@connection_options
@click.pass_context
def get(ctx: click.Context, scope: str, key_text: str) -> None:
    """Show what is recorded of a key.

    \b
    Example:
      mainspring key get shop.charge order-17
    """
    with settings(ctx).connect() as client:
        show(client.keys.get(scope, key_text), settings(ctx))


@key.command()
@click.argument("scope")
@click.argument("key_text", metavar="KEY")
@click.option("--result", type=JSON, help="What the function returned: JSON text, @file, or - for stdin.")
@click.option("--result-base64", help="The same, for functions that return bytes.")
@click.option("--status", type=Whole(200, 599), help="Status of the answer, for HTTP requests and deliveries.")
@click.option("-H", "--header", "headers", type=HEADER, multiple=True, help="Header of the answer. Repeatable.")
@click.option("--body", type=TEXT, help="Body of the answer: text, @file, or - for stdin.")
@click.option("--ttl", type=DURATION, default="1d", show_default=True, help="How long repeats get it.")
@connection_options
@click.pass_context
def settle(ctx: click.Context, /, scope: str, key_text: str, **options: Any) -> None:
    """Record that work with an unknown outcome was done. Repeats get what you say, as if the work had returned it.

    `key list` shows in the column `result` what is expected: json, bytes, or an answer.

    \b
    Examples:
      mainspring key settle shop.charge order-17 --result '"receipt of 17"'
      mainspring key settle http http-5dc789f8… --status 201 -H 'Content-Type: application/json' --body '{"order": 17}'
    """
    is_answer = options["status"] is not None or options["headers"] or options["body"] is not None
    given = sum((options["result"] is not None, options["result_base64"] is not None, bool(is_answer)))
    if given != 1:
        found = "several" if given else "none"
        raise click.UsageError(
            f"Expected one of --result, --result-base64 and an answer (--status, --header, --body), got {found}."
        )
    said = {"status": options["status"] or 200, "headers": dict(options["headers"]), "body": _text(options["body"])}
    answer = request(SettledAnswer, said)
    with settings(ctx).connect() as client:
        view = client.keys.settle(
            scope,
            key_text,
            result=UNSET if options["result"] is None else options["result"],
            result_base64=options["result_base64"],
            answer=answer if is_answer else UNSET,
            ttl_seconds=options["ttl"],
        )
    show(view, settings(ctx))


def _text(body: str | bytes | None) -> str:
    try:
        return body.decode() if isinstance(body, bytes) else body or ""
    except UnicodeDecodeError:
        raise click.UsageError("Expected text as --body, got bytes that are not UTF-8.") from None


@key.command()
@click.argument("scope")
@click.argument("key_text", metavar="KEY")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@click.pass_context
def forget(ctx: click.Context, scope: str, key_text: str, yes: bool) -> None:
    """Let the work of a key run again, whatever is recorded of it.

    \b
    Example:
      mainspring key forget shop.charge order-18 --yes
    """
    with settings(ctx).connect() as client:
        if not yes:
            found = client.keys.get(scope, key_text)
            confirm(f"Key {key_text} is {found.state}. Let its work run again?")
        show(client.keys.forget(scope, key_text), settings(ctx))
