"""`mainspring namespace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import click
from msgspec import UNSET

from mainspring.cli.confirmation import confirm
from mainspring.cli.failure import named_as_options
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.instants import instant_text
from mainspring.cli.output import say, show, show_rows
from mainspring.cli.parameters import Whole
from mainspring.cli.policy import retry_options, take_policy
from mainspring.cli.watching import present, watch_option
from mainspring.errors import Conflict, MainspringError
from mainspring.namespaces.messages import DeletionView, NamespacePage, NamespaceView, RangeView, ReshardView
from mainspring.text import counted, printable

V = TypeVar("V")

COLUMNS = ("name", "shardCount", "firstShard", "hostLimit", "historyRetentionDays", "createdAt")
DELETION_OPTIONS = {"ask for `force`": "give --force", "for `cancel`": "--cancel"}
SPARE = ("firstShard", "hostLimit", "historyRetentionDays")


@click.group()
def namespace() -> None:
    """Create, inspect, change and delete namespaces, each with its own timer ids, shards, secret and defaults, and give
    them more shards.

    \b
    Examples:
      mainspring namespace create billing --shard-count 256
      mainspring namespace get billing
    """


@namespace.command()
@click.argument("name")
@click.option(
    "--shard-count",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    help="16, 256, 1024 or 4096, as a guide. Can be raised.",
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
        view = client.namespaces.get(name)
    show(view, settings(ctx))
    if view.deleting:
        say(f"It is being deleted: it takes no timers and calls none. To go on: mainspring namespace delete {name}")
    if view.earlier:
        say(f"{_shards_text(view)}. What is left in the earlier ones: mainspring namespace reshard {name}")


def _remarks(view: NamespaceView) -> str:
    return "; ".join(["being deleted"] * view.deleting + [_shards_text(view)] * bool(view.earlier))


def _shards_text(view: NamespaceView) -> str:
    """Of a namespace that has been given more."""
    earlier = " and ".join(f"{one.shard_count} from {one.first_shard} on" for one in view.earlier)
    since = "soon" if view.since is None else f"from {instant_text(view.since)} on"
    return f"New timers go to {counted(view.shard_count, 'shard')} {since}; earlier shards: {earlier}"


@namespace.command("list")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="Namespaces on this page.")
@click.option("--cursor", help="Continue from the previous page.")
@watch_option
@connection_options
@click.pass_context
def list_namespaces(ctx: click.Context, limit: int, cursor: str | None, watches: bool) -> None:
    """List namespaces by name.

    \b
    Example:
      mainspring namespace list --output json
    """
    with settings(ctx).connect() as client:

        def look() -> NamespacePage:
            return client.namespaces.list(limit=limit, cursor=cursor)

        def draw(page: NamespacePage) -> None:
            show_rows(page, page.namespaces, COLUMNS, settings(ctx), spare=SPARE, remarks=_remarks)
            if page.next_cursor:
                say(f"There are more: --cursor {page.next_cursor}")

        present(look, draw, watches=watches)


@namespace.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete its timers with it.")
@click.option("--dry-run", is_flag=True, help="Only show what there is to delete.")
@click.option("--cancel", is_flag=True, help="Keep it: call off a deletion that has not deleted anything yet.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@click.pass_context
def delete(ctx: click.Context, /, name: str, *, force: bool, dry_run: bool, cancel: bool, yes: bool) -> None:
    """Delete a namespace and its history, with its timers if that is forced.

    Takes at least ten seconds, and longer for many timers. If it is interrupted, run it again and it goes on: until it
    is through, the namespace is shown as being deleted, takes no timers and calls none. As long as nothing has been
    deleted, --cancel keeps it instead. Jobs and fetches belong to no namespace and stay.

    \b
    Examples:
      mainspring namespace delete trial --dry-run
      mainspring namespace delete trial --force --yes
      mainspring namespace delete trial --cancel
    """
    if cancel and (force or dry_run):
        raise click.UsageError("Expected --cancel alone, got it with --force or --dry-run.")
    with settings(ctx).connect() as client, named_as_options(DELETION_OPTIONS):
        if not dry_run and not cancel and not yes:
            found = client.namespaces.delete(name, dry_run=True)
            if found.timers and not force:
                raise Conflict(f"Namespace {name!r} has {_timers(found)}: --force deletes them with it")
            what = f" with {_timers(found)}" if force else ""
            confirm(f"Delete namespace {name}{what} and its history?")
        seen = _Seen(_deletion_text)
        with _resumable(lambda: _stopped_deletion(name, seen.last, force=force)):
            view = client.namespaces.delete(name, force=force, dry_run=dry_run, cancel=cancel, progress=seen)
    if dry_run or cancel or settings(ctx).output not in (None, "table"):
        show(view, settings(ctx))
    else:
        click.echo(f"deleted {printable(name)}, with {_timers(view)}")
    if view.cancelled:
        say(f"Namespace {name} is kept: it takes timers and calls them.")


@contextmanager
def _resumable(how_it_stands: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Of a command that is repeated until it is through: tells whoever interrupts it how things stand, and whoever
    loses the connection that repeating it is all there is to do."""
    try:
        yield
    except KeyboardInterrupt:
        for line in ("", *how_it_stands()):  # the terminal shows ^C
            say(line)
        raise
    except MainspringError as error:
        if error.outcome_unknown or error.retryable:
            error.outcome_unknown = False  # whatever has become of the last step, the same command goes on from there
            error.add_note("Run the same command again: it goes on from where this one was.")
        raise


def _stopped_deletion(name: str, last: DeletionView | None, *, force: bool) -> Sequence[str]:
    lines = [
        f"Namespace {name} {'may be' if last is None else 'is'} marked as being deleted: then it takes no timers and "
        "calls none.",
        f"To go on:   mainspring namespace delete {name}{' --force' * force}",
    ]
    if last is None or last.closing_until is not None:
        lines.append(f"To keep it: mainspring namespace delete {name} --cancel")
    return lines


def _timers(view: DeletionView | RangeView) -> str:
    return f"{'at least ' * view.counts_are_minimum}{counted(view.timers, 'timer')}"


def _deletion_text(view: DeletionView) -> str:
    if view.closing_until is not None:
        return f"Waiting until no instance adds timers: {instant_text(view.closing_until)}"
    return f"Deleted {_timers(view)}; {view.shards_done} of {view.shard_count} shards are empty."


class _Seen(Generic[V]):
    """How far something has come, said whenever that is news."""

    def __init__(self, text_of: Callable[[V], str]) -> None:
        self._text_of = text_of
        self._said = ""
        self.last: V | None = None

    def __call__(self, view: V) -> None:
        self.last = view
        if (text := self._text_of(view)) != self._said:
            self._said = text
            say(text)


@namespace.command()
@click.argument("name")
@click.option(
    "--shard-count",
    type=click.IntRange(1, 4096),
    help="How many new timers are spread over. [default: as many as now]",
)
@click.option("--dry-run", is_flag=True, help="Change nothing: check whether it can be done, and show what there is.")
@connection_options
@click.pass_context
def reshard(ctx: click.Context, name: str, shard_count: int | None, dry_run: bool) -> None:
    """Give a namespace more shards while it is in use, and show how many timers are left in the earlier ones.

    Timers stay where they are until they end; new ones go to the new shards, about ten seconds from now. If it is
    interrupted, run it again. Run it again later to see what is left, and to remove shards that nothing is in.

    \b
    Examples:
      mainspring namespace reshard billing --shard-count 256 --dry-run
      mainspring namespace reshard billing --shard-count 256
      mainspring namespace reshard billing
    """
    seen = _Seen(_since_text)
    with settings(ctx).connect() as client, _resumable(lambda: _stopped_reshard(name, seen.last)):
        view = client.namespaces.reshard(name, shard_count=shard_count, dry_run=dry_run, progress=seen)
    show(view, settings(ctx))
    if dry_run and shard_count not in (None, view.shard_count):
        say(f"It can get {counted(shard_count or 0, 'shard')}. Nothing was changed.")
    for one in view.earlier:
        which = f"The earlier {counted(one.shard_count, 'shard')} from {one.first_shard} on"
        if one.kept_until is None:
            say(f"{which}: {_timers(one)} left.")
        else:
            say(f"{which}: no timers; kept for the history until {instant_text(one.kept_until)}.")


def _stopped_reshard(name: str, last: ReshardView | None) -> Sequence[str]:
    if last is None or last.since is None:
        return ["It may be about to get more shards. Nothing is lost: run the same command again to see it through."]
    return [f"{_since_text(last)} That needs this command no more.", f"To look: mainspring namespace reshard {name}"]


def _since_text(view: ReshardView) -> str:
    return f"New timers go to {counted(view.shard_count, 'shard')} from {instant_text(view.since)} on."


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
