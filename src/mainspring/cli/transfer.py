"""`mainspring timer import` and `export`: files of any size, in bounded memory, with a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from mainspring.cli.export_file import export_file
from mainspring.cli.failure import field_texts
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.lines import Format, Line, Writer, read_lines
from mainspring.cli.output import say, show
from mainspring.cli.parameters import Whole
from mainspring.cli.progress import progress
from mainspring.cli.selection import filter_options, take_where
from mainspring.delivery.secrets import HIDDEN
from mainspring.errors import MainspringError
from mainspring.model import State
from mainspring.text import counted
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.wire.message import ProblemItem, View

if TYPE_CHECKING:
    from mainspring.client import Client

BATCH_TIMERS = 500
BATCH_BYTES = 750_000
"""Below the server's default limit for a request body, together with what surrounds the timers."""


class ImportView(View, frozen=True, kw_only=True):
    """What became of the lines of a file; in a dry run, what would."""

    lines: int
    created: int
    replaced: int
    failed: int
    dry_run: bool


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "csv"]), help="[default: by the file's name; JSONL for stdin]"
)
@click.option("--from-line", type=Whole(1), default=1, help="Skip the lines before this one.")
@click.option("-n", "--namespace", help="Put all timers into this namespace. [default: what the lines say]")
@click.option("--dry-run", is_flag=True, help="Only have the server check and count the lines; nothing is created.")
@connection_options
@click.pass_context
def import_command(
    ctx: click.Context, file: str, *, form: Format | None, from_line: int, namespace: str | None, dry_run: bool
) -> None:
    """Create the timers of a file; - is stdin. A timer whose id exists is replaced, and counted apart.

    A line has the fields of `POST /v1/timers/create`. Invalid lines are reported by number and skipped; the exit
    code is then 1. An import that is interrupted, even by Ctrl-C, says at which line to continue; starting over would
    create again the timers whose calls have been made since.

    \b
    Examples:
      mainspring timer import timers.jsonl
      mainspring timer import timers.csv --dry-run
      mainspring timer import timers.jsonl --from-line 5001
      mainspring timer export | mainspring timer import - --namespace copy
      mainspring dev generate 1000 | mainspring timer import -
    """
    with click.open_file(file, "rb") as source, progress(_size(file), "importing", settings(ctx)) as advance:
        every = _watched(read_lines(source, form or _format_of(file)), source, file, advance)
        lines = (line for line in every if line.number >= from_line)
        with settings(ctx).connect() as client:
            if namespace is not None:
                client.namespaces.get(namespace)  # one that does not exist is told once, and not of every line
            view = _Import(client, namespace=namespace, dry_run=dry_run).run(lines)
    show(view, settings(ctx))
    if view.failed:
        sys.exit(1)


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, readable=False, allow_dash=True), default="-")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "csv"]), help="[default: by the file's name; JSONL for stdout]"
)
@click.option(
    "--include-parked", is_flag=True, help="Also export parked timers. Once imported, they are no longer parked."
)
@click.option("--secrets", is_flag=True, help="Include secrets, in a file that only you can read.")
@filter_options
@connection_options
@click.pass_context
def export_command(
    ctx: click.Context, /, file: str, form: Format | None, include_parked: bool, secrets: bool, **options: Any
) -> None:
    """Write timers to a file, or to stdout, as `timer import` reads them.

    A line says what was requested, not what has happened since: attempts, history and whether a timer is parked
    are not part of it. An import would run a parked timer, at its time or at once; so parked timers are left out and
    counted, unless --include-parked or --state parked is given.

    Secrets in headers and URLs are replaced by ***, and `timer import` refuses such a line. With --secrets they are
    included, in a file that only its owner can read; stdout, pipes and devices are then refused.

    A file appears only once it is complete; links are followed. Pipes and devices are written to directly.

    Timers that change while the export runs may be in it twice or not at all.

    \b
    Examples:
      mainspring timer export timers.jsonl
      mainspring timer export timers.csv --namespace billing --state parked
      mainspring timer export --id-prefix invoice- | wc -l
      mainspring timer export all.jsonl --include-parked --secrets
    """
    if secrets and file == "-":
        raise click.UsageError("Expected a FILE for --secrets, got stdout.")
    count = left_out = hidden = 0
    with_parked = include_parked or State.PARKED.value in options["states"]
    with (
        settings(ctx).connect() as client,
        export_file(file, private=secrets) as target,
        progress(None, "exporting", settings(ctx)) as advance,
    ):
        writer = Writer(target, form or _format_of(file))
        for timer in client.timers.iterate(page_size=200, secrets=secrets, **take_where(options)):
            if timer.state is State.PARKED and not with_parked:
                left_out += 1
                continue
            writer.write(timer)
            count += 1
            hidden += not secrets and _hides(timer)
            advance(count)
    if hidden:
        say(f"{counted(hidden, 'timer')} with secrets, which were left out; --secrets includes them")
    if left_out:
        say(f"{counted(left_out, 'parked timer')} left out; --include-parked includes them, no longer parked")
    if file != "-":
        say(f"{counted(count, 'timer')} written to {file}")


class _Import:
    """Sends lines in batches and counts what became of them."""

    def __init__(self, client: Client, *, namespace: str | None, dry_run: bool) -> None:
        self._client = client
        self._namespace = namespace
        self._dry_run = dry_run
        self._batch: list[tuple[int, CreateTimer]] = []
        self._bytes = 0
        self._last = 0
        self._lines = self._written = self._replaced = self._failed = 0

    def run(self, lines: Iterator[Line]) -> ImportView:
        try:
            self._take(lines)
            self._send()
        except (MainspringError, KeyboardInterrupt) as error:
            if self._lines:
                error.add_note(self._where_to_continue())
            raise
        return ImportView(
            lines=self._lines,
            created=self._written - self._replaced,
            replaced=self._replaced,
            failed=self._failed,
            dry_run=self._dry_run,
        )

    def _where_to_continue(self) -> str:
        """Behind the last line that is certainly dealt with; that of a request without an answer is not."""
        line = self._batch[0][0] if self._batch else self._last + 1
        done = "checked" if self._dry_run else "created"
        return f"{counted(self._written, 'timer')} {done}. To continue: --from-line {line}"

    def _take(self, lines: Iterator[Line]) -> None:
        for number, timer, problem in lines:
            self._lines += 1
            if timer is None:
                self._failed += 1
                _report(number, problem)
            else:
                self._add(number, timer)
            self._last = number

    def _add(self, number: int, timer: CreateTimer) -> None:
        if self._namespace is not None:
            timer = msgspec.structs.replace(timer, namespace=self._namespace)
        size = len(msgspec.json.encode(timer)) + 1
        if len(self._batch) == BATCH_TIMERS or self._bytes + size > BATCH_BYTES:
            self._send()
        self._batch.append((number, timer))
        self._bytes += size

    def _send(self) -> None:
        if not self._batch:
            return
        answer = self._client.timers.create_batch([timer for _, timer in self._batch], dry_run=self._dry_run)
        batch, self._batch, self._bytes = self._batch, [], 0
        self._written += answer.created
        self._replaced += answer.replaced
        self._failed += answer.failed
        for (number, _), item in zip(batch, answer.results, strict=True):
            if item.problem is not None:
                _report(number, item.problem)


def _report(number: int, problem: MainspringError | ProblemItem | None) -> None:
    """A line with fields that are wrong is told by them: the detail repeats them."""
    if problem is not None:
        say(f"line {number}: {'; '.join(field_texts(problem.errors)) or problem.detail}")


def _format_of(file: str) -> Format:
    return "csv" if file.lower().endswith(".csv") else "jsonl"


def _size(file: str) -> int | None:
    return Path(file).stat().st_size if Path(file).is_file() else None


def _watched(lines: Iterator[Line], source: IO[bytes], file: str, advance: Callable[[int], None]) -> Iterator[Line]:
    """The same lines; a file's progress is counted in bytes, that of stdin or a pipe in lines."""
    in_bytes = _size(file) is not None
    for count, line in enumerate(lines, 1):
        yield line
        advance(source.tell() if in_bytes else count)


def _hides(timer: TimerView) -> bool:
    return HIDDEN in timer.headers.values() or f"={HIDDEN}" in timer.callback_url
