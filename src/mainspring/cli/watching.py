"""`--watch` and `--follow`: a list again and again, and the entries of a list as they come.

Both ask the server every two seconds, and less often if its answers take long: they never keep it busy for more than a
tenth of the time. A server that is away for a while is waited for. Ctrl-C is how they are meant to end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import click
import msgspec
from msgspec import Struct

from mainspring.cli.globals import Globals
from mainspring.cli.instants import local_text
from mainspring.cli.output import Row, colour_of, row_of, say, yaml_text
from mainspring.errors import NetworkError, Unavailable
from mainspring.text import printable

SECONDS: Final = 2.0
SHARE: Final = 10
"""A look that takes long is followed by a pause of this many times its length."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
S = TypeVar("S", bound=Struct)
Pause = Callable[[float], None]


def watch_option(command: F) -> F:
    return click.option("--watch", "watches", is_flag=True, help="Show it again every 2 seconds, until Ctrl-C.")(
        command
    )


def follow_option(command: F) -> F:
    words = "Then show what is new, as it comes, until Ctrl-C; as lines of JSON with --output json."
    return click.option("--follow", "follows", is_flag=True, help=words)(command)


def present(look: Callable[[], T], draw: Callable[[T], None], *, watches: bool) -> None:
    """Draw what there is: once, or again and again."""
    if watches:
        watch(look, draw)
    else:
        draw(look())


def watch(look: Callable[[], T], draw: Callable[[T], None], *, pause: Pause = time.sleep) -> None:
    """On a terminal, the newest state takes the place of the one before; elsewhere it comes after it, if it differs."""
    last = b""
    is_terminal = sys.stdout.isatty()

    def show(found: T) -> None:
        nonlocal last
        encoded = msgspec.json.encode(found)
        if is_terminal:
            click.clear()
            click.echo(f"{datetime.now().astimezone():%H:%M:%S}, every {SECONDS:g} s until Ctrl-C\n")
        elif encoded == last:
            return
        elif last:
            click.echo()
        last = encoded
        draw(found)

    _repeat(lambda: show(look()), pause)


def follow(
    look: Callable[[], Iterable[T]],
    show: Callable[[Sequence[T]], None],
    *,
    key: Callable[[T], Hashable],
    nothing: str = "Nothing yet",
    pause: Pause = time.sleep,
) -> None:
    """Shows what `look` finds and has not found the time before: oldest first, although it comes newest first. `key`
    tells entries apart; an entry with another key than before is shown again. `nothing` is said if there is none at
    first."""
    known: set[Hashable] | None = None

    def step() -> None:
        nonlocal known
        found = [*look()][::-1]
        if known is None and not found:
            say(f"{nothing}; waiting until Ctrl-C.")
        show([each for each in found if key(each) not in (known or ())])
        known = {key(each) for each in found}

    _repeat(step, pause)


def _repeat(step: Callable[[], None], pause: Pause) -> None:
    is_first = True
    try:
        while True:
            began = time.monotonic()
            try:
                step()
                is_first = False
            except (NetworkError, Unavailable) as error:
                if is_first:
                    raise
                say(f"{error.detail}; trying again")
            pause(max(SECONDS, SHARE * (time.monotonic() - began)))
    except KeyboardInterrupt:
        click.echo(err=True)  # behind the ^C of the terminal


class Stream:
    """Prints entries as they come: lines of JSON, documents of YAML, or rows whose columns keep their width."""

    def __init__(self, columns: Sequence[str], chosen: Globals, to_row: Callable[[Any], Row] | None = None) -> None:
        """`to_row` makes a row of an entry, unless its fields are the cells."""
        self._columns = columns
        self._form = chosen.output
        self._to_row = to_row or (lambda entry: row_of(entry, columns, local_text))
        self._widths = [0] * len(columns)
        self._has_header = False

    def show(self, entries: Sequence[Struct]) -> None:
        if self._form == "json":
            for entry in entries:
                click.echo(msgspec.json.encode(entry))
        elif self._form == "yaml":
            for entry in entries:
                click.echo(f"---\n{yaml_text(msgspec.json.decode(msgspec.json.encode(entry)))}", nl=False)
        else:
            self._show_rows([[printable(cell) for cell in self._to_row(entry)] for entry in entries])

    def _show_rows(self, rows: Sequence[Row]) -> None:
        if rows and not self._has_header:
            self._has_header = True
            rows = [self._columns, *rows]
        from rich.cells import cell_len  # noqa: PLC0415  (heavy)

        for row in rows:
            self._widths = [max(known, cell_len(cell)) for known, cell in zip(self._widths, row, strict=True)]
        for row in rows:
            cells = zip(self._columns, row, self._widths, strict=True)
            line = "  ".join(_coloured(name, cell) + " " * (width - cell_len(cell)) for name, cell, width in cells)
            click.echo(line.rstrip())


def _coloured(name: str, cell: str) -> str:
    if name == cell:
        return click.style(cell, bold=True)
    colour = colour_of(name, cell)
    return click.style(cell, fg=colour) if colour else cell
