"""`mainspring admin`: what operators ask for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import click
import msgspec

from mainspring.cli.config_flags import config_options, load, sources
from mainspring.cli.doctor import doctor, drop_namespace
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.output import cell, say, show, show_document, show_rows, show_table
from mainspring.cli.watching import present, watch_option
from mainspring.cluster.messages import InstancesView, ShardsView
from mainspring.config import SECRET_SETTINGS
from mainspring.text import counted, shown_url


@click.group()
def admin() -> None:
    """Health, configuration, migrations, instances, shards, metrics.

    \b
    Examples:
      mainspring admin ready
      mainspring admin config --validate --config mainspring.toml
    """


admin.add_command(doctor)
admin.add_command(drop_namespace)


@admin.command()
@connection_options
@click.pass_context
def health(ctx: click.Context) -> None:
    """Check whether the server's process answers. Exit code 6 if it does not.

    \b
    Example:
      mainspring admin health --url http://10.1.2.3:8700
    """
    with settings(ctx).connect() as client:
        show(client.health(), settings(ctx))


@admin.command()
@connection_options
@click.pass_context
def ready(ctx: click.Context) -> None:
    """Check whether the server can do its work. Exit code 6 and the reason if it cannot.

    \b
    Example:
      mainspring admin ready && echo go
    """
    with settings(ctx).connect() as client:
        show(client.ready(), settings(ctx))


@admin.command()
@watch_option
@connection_options
@click.pass_context
def shards(ctx: click.Context, watches: bool) -> None:
    """Show which instance owns which shard. The version is the fence; it grows with every claim.

    \b
    Examples:
      mainspring admin shards --output json
      mainspring admin shards --watch
    """
    with settings(ctx).connect() as client:

        def draw(view: ShardsView) -> None:
            show_rows(view, view.shards, ("shardId", "namespace", "version", "owner"), settings(ctx))

        present(client.shards, draw, watches=watches)


@admin.command()
@watch_option
@connection_options
@click.pass_context
def instances(ctx: click.Context, watches: bool) -> None:
    """Show which instances are alive, how many shards each owns, and which one answered.

    \b
    Examples:
      mainspring admin instances
      mainspring admin instances --watch
    """
    columns = ("instance", "address", "startedAt", "leaseExpiresAt", "ownedShards", "this")
    with settings(ctx).connect() as client:

        def draw(view: InstancesView) -> None:
            show_rows(view, view.instances, columns, settings(ctx), spare=("leaseExpiresAt", "startedAt"))

        present(client.instances, draw, watches=watches)


@admin.command()
@connection_options
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print the server's metrics in Prometheus text format.

    \b
    Example:
      mainspring admin metrics | grep timers
    """
    with settings(ctx).connect() as client:
        click.echo(client.metrics(), nl=False)


@admin.command()
@click.option("--validate", is_flag=True, help="Only check; print nothing to stdout.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), help="Output format.")
@config_options
@click.pass_context
def config(ctx: click.Context, /, validate: bool, output: str | None, file: Path | None, **flags: Any) -> None:
    """Print the configuration as `mainspring serve` would see it here, and where each value comes from.

    An empty `store`, `registry` or `token_file` stands for something else, which is shown instead. Secrets are masked.
    Takes the same flags as `serve` and reports everything that `serve` would refuse, all at once, with exit code 2.
    Nothing is opened: a port in use or a database that does not respond only shows at startup.

    \b
    Examples:
      mainspring admin config
      mainspring admin config --validate --config mainspring.toml
      MAINSPRING_PORT=9000 mainspring admin config --output json
    """
    loaded = load(flags, file)
    if validate:
        say("The configuration is valid.")
        return
    values = msgspec.structs.asdict(loaded)
    values |= {name: "********" for name in SECRET_SETTINGS if values[name]}
    # What is empty stands for something: that is what is used, and shown.
    values |= {"store": loaded.shown_store_url, "token_file": str(loaded.token_path) if not loaded.token else ""}
    values |= {"registry": shown_url(loaded.registry) or loaded.shown_store_url}
    values |= {"proxy_url": shown_url(loaded.proxy_url)}
    origins = sources(flags, file)
    document = {name: {"value": value, "source": origins[name]} for name, value in values.items()}
    if not show_document(document, output or settings(ctx).output):
        rows = [(name, cell(value), origins[name]) for name, value in values.items()]
        show_table(("setting", "value", "source"), rows, settings(ctx))


@runtime_checkable
class MigratableStore(Protocol):
    """A store with a numbered schema."""

    async def migrate(self) -> list[str]:
        """Apply what is pending and name it."""
        ...

    async def pending_migrations(self) -> list[str]:
        """Name what is pending."""
        ...


@admin.command()
@click.option("--dry-run", is_flag=True, help="Only name what is pending.")
@config_options
def migrate(file: Path | None, dry_run: bool, **flags: Any) -> None:
    """Bring the schema of the store up to date. `serve` does the same when it starts.

    \b
    Examples:
      mainspring admin migrate
      mainspring admin migrate --dry-run
      mainspring admin migrate --store sqlite:////var/lib/mainspring/timers.db
    """
    loaded = load(flags, file)
    found = asyncio.run(_migrated(loaded.store_url, dry_run=dry_run))
    for name in found:
        click.echo(name)
    count = counted(len(found), "migration")
    say(f"{count} {'pending' if dry_run else 'applied'}." if found else "Nothing to migrate; the schema is up to date.")


async def _migrated(url: str, *, dry_run: bool) -> list[str]:
    from mainspring.clock import SystemClock  # noqa: PLC0415
    from mainspring.stores import timer_store_from_url  # noqa: PLC0415

    store = timer_store_from_url(url, clock=SystemClock())
    if not isinstance(store, MigratableStore):
        return []
    return await (store.pending_migrations() if dry_run else store.migrate())
