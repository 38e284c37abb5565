"""How errors reach the user: one clear line, the fields that are wrong, a hint, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from mainspring.errors import (
    ConfigError,
    Conflict,
    FieldError,
    Forbidden,
    MainspringError,
    NetworkError,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from mainspring.text import printable

EXIT_CODES: tuple[tuple[type[MainspringError], int], ...] = (
    (ConfigError, 2),
    (NotFound, 3),
    (Unauthenticated, 4),
    (Forbidden, 4),
    (Conflict, 5),
    (Unavailable, 6),
    (RateLimited, 6),
    (NetworkError, 6),
)

HINTS: tuple[tuple[type[MainspringError], str], ...] = (
    (
        Unauthenticated,
        "Set --token-file or MAINSPRING_TOKEN, or run the command where the server's data directory (.mainspring) is. "
        "The token found there is only sent to a server on this machine.",
    ),
)


@contextmanager
def reported_as_exit_code() -> Iterator[None]:
    try:
        yield
    except MainspringError as error:
        report(error)
        sys.exit(exit_code(error))


def exit_code(error: MainspringError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


def report(error: MainspringError) -> None:
    # Where fields are named, the detail repeats what is wrong with them, or a part of it.
    lines = [f"Error: {type(error).__doc__ if error.errors else error.detail}"]
    lines += [f"  {text}" for text in field_texts(error.errors)]
    lines += list(getattr(error, "__notes__", []))
    if error.outcome_unknown:
        lines.append("The request may have taken effect nevertheless: check before you repeat it.")
    hint = _hint(error)
    if hint:
        lines.append(f"Hint: {hint}")
    if error.request_id:
        lines.append(f"Request id: {error.request_id}")
    for line in lines:
        click.echo(printable(line), err=True)


def field_texts(errors: Sequence[FieldError]) -> list[str]:
    return [f"{field.pointer or '/'}: {field.detail}" for field in errors]


def _hint(error: MainspringError) -> str:
    if isinstance(error, NetworkError) and not error.outcome_unknown:
        return "Is the server running? Start it with `mainspring serve`, or choose another with --url."
    return next((hint for kind, hint in HINTS if isinstance(error, kind)), "")
