"""Printing answers: tables for people, JSON and YAML with exactly the fields of the API for programs.

On a terminal, columns that do not fit are left out, one by one, and named: a line that wraps in the middle of an
instant can be read by nobody. Elsewhere a row is a line, however long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec
from msgspec import Raw, Struct

from mainspring.cli.globals import Globals
from mainspring.cli.instants import instant_text
from mainspring.cli.policy import policy_text
from mainspring.model import RetryPolicy
from mainspring.text import printable
from mainspring.wire.message import View

if TYPE_CHECKING:
    from rich.table import Table

GAP: Final = 2
"""Columns of the terminal between two of a table."""
WRAPS: Final = {
    **dict.fromkeys(("value", "labels", "detail", "reason", "remark", "remarks", "owner", ""), 20),
    **dict.fromkeys(("callbackUrl", "url", "target", "address"), 30),
}
"""Columns whose text may go on in the next line, and how much room they need at least, if the text is that long. A URL
needs more than prose: it is cut anywhere."""
ESSENTIAL: Final = frozenset({"field", "value"})
"""Columns that are never left out: of one thing, half of the table would say nothing."""
STATES: Final = frozenset({"state", "outcome", "lastOutcome", "lastOutcome.outcome", "result.state", "next", "status"})
"""Columns and fields with words that have a colour."""
COLOURS: Final = {
    **dict.fromkeys(("succeeded", "done", "ok", "ready", "delivered"), "green"),
    **dict.fromkeys(("failed", "broken", "dropped", "not ready"), "red"),
    **dict.fromkeys(("unknown",), "magenta"),
    **dict.fromkeys(("parked", "paused", "retrying", "retry", "waiting"), "yellow"),
    **dict.fromkeys(("running",), "cyan"),
    **dict.fromkeys(("skipped", "cancelled", "superseded", "finished"), "bright_black"),
}

V = TypeVar("V", bound=Struct)

Row = Sequence[str]
WriteInstant = Callable[[datetime | None], str]


def show(view: View, chosen: Globals, *, instead: Mapping[str, str] | None = None) -> None:
    """One thing: a line for each of its fields. `instead` has what people are shown in place of some of them."""
    if not show_document(view, chosen.output):
        rows = [(name, (instead or {}).get(name, text)) for name, text in _fields(view)]
        show_table(("field", "value"), rows, chosen)


def show_rows(
    view: View,
    rows: Iterable[V],
    columns: Sequence[str],
    chosen: Globals,
    *,
    spare: Sequence[str] = (),
    remarks: Callable[[V], str] | None = None,
) -> None:
    """Many things: a table with these fields of the rows, and what there is to say of each of them in words; programs
    get the whole view."""
    if show_document(view, chosen.output):
        return
    if remarks is None:
        show_table(columns, [row_of(row, columns) for row in rows], chosen, spare=spare)
    else:
        cells = [[*row_of(row, columns), remarks(row)] for row in rows]
        show_table([*columns, "remarks"], cells, chosen, spare=spare)


def row_of(view: Struct, columns: Sequence[str], write: WriteInstant = instant_text) -> Row:
    fields = dict(_fields(view, write=write))
    return [fields.get(column, "") for column in columns]


def show_table(columns: Sequence[str], rows: Sequence[Row], chosen: Globals, *, spare: Sequence[str] = ()) -> None:
    """`spare` are columns in the order in which they are left out, if there is no room; then those at the end."""
    from rich.console import Console  # noqa: PLC0415  (heavy)

    stdout = sys.stdout
    rows = [[printable(cell) for cell in row] for row in rows]
    console = Console(file=stdout, no_color=chosen.no_color or None, highlight=False)
    if not stdout.isatty():
        console.width = sum(_widths(columns, rows)) + GAP * len(columns) + 1
        console.print(_table(columns, rows))
        return
    kept = _fitting(columns, rows, console.width, spare)
    console.print(_table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows]))
    left_out = [column for at, column in enumerate(columns) if at not in kept and any(row[at] for row in rows)]
    if left_out:
        say(f"Not shown for lack of room: {', '.join(left_out)}.")


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    from rich.table import Table  # noqa: PLC0415  (heavy)
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for column, width in zip(columns, _widths(columns, rows), strict=True):
        narrowest = min(width, WRAPS[column]) if column in WRAPS and column not in ESSENTIAL else None
        table.add_column(column, overflow="fold", no_wrap=column not in WRAPS, min_width=narrowest)
    for row in rows:
        cells = zip(columns, row, strict=True)
        # Of one thing, the first cell of a row is the name of a field.
        table.add_row(*(Text(cell, style=colour_of(row[0] if name == "value" else name, cell)) for name, cell in cells))
    return table


def _fitting(columns: Sequence[str], rows: Sequence[Row], width: int, spare: Sequence[str]) -> list[int]:
    """Which columns there is room for, as far as there is any. A column with nothing in it needs none."""
    needs = [
        min(each, WRAPS.get(column, each)) + GAP for column, each in zip(columns, _widths(columns, rows), strict=True)
    ]
    kept = {at for at in range(len(columns)) if not rows or any(row[at] for row in rows)}
    order = [*(columns.index(column) for column in spare), *reversed(range(len(columns)))]
    order = [at for at in order if columns[at] not in ESSENTIAL]
    left_out: list[int] = []
    for at in order:
        if sum(needs[each] for each in kept) - GAP <= width or len(kept) == 1:
            break
        if at in kept:
            kept.remove(at)
            left_out.append(at)
    for at in reversed(left_out):  # a narrow one may fit where a wide one did not
        if sum(needs[each] for each in kept) + needs[at] - GAP <= width:
            kept.add(at)
    return sorted(kept)


def _widths(columns: Sequence[str], rows: Sequence[Row]) -> list[int]:
    from rich.cells import cell_len  # noqa: PLC0415  (heavy)

    return [
        max(cell_len(column), max((cell_len(row[at]) for row in rows), default=0)) for at, column in enumerate(columns)
    ]


def colour_of(name: str, text: str) -> str:
    """The colour of a word in a column or field of this name, if it has one."""
    return COLOURS.get(text, "") if name in STATES else ""


def say(text: str) -> None:
    """A remark for people, beside the answer."""
    click.echo(printable(text), err=True)


def show_document(document: object, form: str | None) -> bool:
    """As JSON or YAML; False when a table is wanted instead."""
    encoded = msgspec.json.encode(document)
    if form == "json":
        click.echo(msgspec.json.format(encoded, indent=2))
    elif form == "yaml":
        click.echo(yaml_text(msgspec.json.decode(encoded)), nl=False)
    else:
        return False
    return True


def yaml_text(value: object) -> str:
    import yaml  # noqa: PLC0415  (heavy)

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def _fields(view: Struct, before: str = "", write: WriteInstant = instant_text) -> Iterator[tuple[str, str]]:
    """The fields by their names on the wire. Those of a part have its name before their own."""
    for field, wire in zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True):
        value, name = getattr(view, field), f"{before}{wire}"
        if isinstance(value, RetryPolicy):
            yield name, policy_text(value)
        elif isinstance(value, Struct):
            yield from _fields(value, f"{name}.", write)
        else:
            yield name, write(value) if isinstance(value, datetime) else cell(value)


def cell(value: object) -> str:
    """A value in a table, in as few signs as it takes; empty for nothing."""
    match value:
        case None:
            text = ""
        case datetime():
            text = instant_text(value)
        case bool():
            text = str(value).lower()
        case float():
            text = f"{value:.15g}"
        case Enum():
            text = str(value.value)
        case Raw():
            text = "" if bytes(value) == b"null" else bytes(value).decode(errors="backslashreplace")
        case Struct():
            text = " ".join(f"{name}={part}" for name, part in _fields(value) if part)
        case dict() if all(isinstance(each, str) for each in value.values()):
            text = ", ".join(f"{name}={part}" for name, part in value.items())
        case list() | tuple() if all(isinstance(each, Struct) for each in value):
            text = "; ".join(map(cell, value))
        case dict() | list() | tuple():
            text = msgspec.json.encode(value).decode()
        case _:
            text = str(value)
    return text
