"""Printing answers: tables for people, JSON and YAML with exactly the fields of the API for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click
import msgspec

from mainspring.cli.globals import Globals
from mainspring.text import printable
from mainspring.wire.message import View

PIPE_WIDTH = 200
"""Columns of a table that is not printed on a terminal."""


def show(view: View, settings: Globals) -> None:
    """One thing: a line for each of its fields."""
    if not show_document(view, settings.output):
        fields = _fields(view)
        show_table(("field", "value"), [(name, cell(value)) for name, value in fields.items()], settings)


def show_rows(view: View, rows: Sequence[View], columns: Sequence[str], settings: Globals) -> None:
    """Many things: a table with these fields of the rows; programs get the whole view."""
    if not show_document(view, settings.output):
        cells = [[cell(_fields(row).get(column)) for column in columns] for row in rows]
        show_table(columns, cells, settings)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], settings: Globals) -> None:
    from rich.console import Console  # noqa: PLC0415  (heavy)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    stdout = sys.stdout
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    width = None if stdout.isatty() else PIPE_WIDTH
    Console(file=stdout, no_color=settings.no_color or None, width=width, highlight=False).print(table)


def say(text: str) -> None:
    """A remark for people, beside the answer."""
    click.echo(printable(text), err=True)


def show_document(document: object, form: str | None) -> bool:
    """As JSON or YAML; False when a table is wanted instead."""
    encoded = msgspec.json.encode(document)
    if form == "json":
        click.echo(msgspec.json.format(encoded, indent=2))
    elif form == "yaml":
        import yaml  # noqa: PLC0415  (heavy)

        click.echo(yaml.safe_dump(msgspec.json.decode(encoded), sort_keys=False, allow_unicode=True), nl=False)
    else:
        return False
    return True


def instant_text(instant: datetime | None) -> str:
    """An instant in a table: to the second in UTC, without what is the same in every line."""
    return "" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _fields(view: View) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(view), type=dict[str, object])


def cell(value: object) -> str:
    """A value in a table, as it is written in JSON and TOML; empty for nothing."""
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value).decode() if value else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
