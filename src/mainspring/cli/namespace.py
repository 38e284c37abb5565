"""`mainspring namespace`."""

from __future__ import annotations

from typing import Any

import click
from msgspec import UNSET

from mainspring.cli.globals import connection_options, settings
from mainspring.cli.output import say, show, show_rows
from mainspring.cli.parameters import Whole
from mainspring.cli.policy import retry_options, take_policy

COLUMNS = ("name", "shardCount", "firstShard", "hostLimit", "historyRetentionDays", "createdAt")


@click.group()
def namespace() -> None:
    """Create, inspect and change namespaces, each with its own timer ids, shards, secret and defaults.

    \b
    Examples:
      mainspring namespace create billing --shard-count 256
      mainspring namespace get billing
    """


@namespace.command()
@click.argument("name")
@click.option(
    "--shard-count", type=int, default=16, show_default=True, help="Cannot be changed later: 16, 256, 1024, 4096."
)
@click.option("--secret", help="whsec_ and 24 to 64 bytes in base64. [default: generated]")
@click.option("--host-limit", type=int, help="Calls in flight to one destination host.")
@click.option("--history-retention-days", type=int, default=7, show_default=True, help="How long attempts are kept.")
@retry_options
@connection_options
@click.pass_context
def create(ctx: click.Context, /, name: str, **options: Any) -> None:
    """Create a namespace.

    \b
    Examples:
      mainspring namespace create billing
      mainspring namespace create bulk --shard-count 256 --retry-max-attempts 20 --host-limit 32
    """
    policy = take_policy(options)
    with settings(ctx).connect() as client:
        show(client.namespaces.create(name, retry_policy=policy, **options), settings(ctx))


@namespace.command()
@click.argument("name")
@connection_options
@click.pass_context
def get(ctx: click.Context, name: str) -> None:
    """Show a namespace with its signing secret.

    \b
    Example:
      mainspring namespace get default
    """
    with settings(ctx).connect() as client:
        show(client.namespaces.get(name), settings(ctx))


@namespace.command("list")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Namespaces on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@connection_options
@click.pass_context
def list_namespaces(ctx: click.Context, limit: int, cursor: str | None) -> None:
    """List namespaces by name.

    \b
    Example:
      mainspring namespace list --output json
    """
    with settings(ctx).connect() as client:
        page = client.namespaces.list(limit=limit, cursor=cursor)
    show_rows(page, page.namespaces, COLUMNS, settings(ctx))
    if page.next_cursor:
        say(f"There are more: --cursor {page.next_cursor}")


@namespace.command()
@click.argument("name")
@click.option("--secret", help="The new secret; the previous one stays in use alongside it.")
@click.option("--host-limit", type=int, help="Calls in flight to one destination host.")
@click.option("--no-host-limit", is_flag=True, help="Return to the server's own limit.")
@click.option("--history-retention-days", type=int, help="How long attempts are kept.")
@retry_options
@connection_options
@click.pass_context
def update(ctx: click.Context, /, name: str, **options: Any) -> None:
    """Change a namespace; fields not given stay as they are. The retry policy is replaced as a whole.

    \b
    Examples:
      mainspring namespace update billing --retry-max-attempts 3
      mainspring namespace update billing --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
    """
    policy = take_policy(options)
    if options["no_host_limit"] and options["host_limit"] is not None:
        raise click.UsageError("Expected one of --host-limit and --no-host-limit, got both.")

    if policy is None and all(value in (None, False) for value in options.values()):
        raise click.UsageError("Expected at least one option that changes the namespace, got none.")

    def given(name: str) -> Any:
        return UNSET if options[name] is None else options[name]

    with settings(ctx).connect() as client:
        view = client.namespaces.update(
            name,
            retry_policy=policy or UNSET,
            secret=given("secret"),
            host_limit=None if options["no_host_limit"] else given("host_limit"),
            history_retention_days=given("history_retention_days"),
        )
    show(view, settings(ctx))
