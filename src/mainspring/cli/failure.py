"""How errors reach the user: one clear line, the fields that are wrong, a hint, and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click

from mainspring.cli.globals import TOKEN_SOURCE
from mainspring.errors import (
    ConfigError,
    Conflict,
    FieldError,
    Forbidden,
    InvalidInput,
    MainspringError,
    NetworkError,
    NotFound,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsafeTarget,
)
from mainspring.text import printable, synonym

EXIT_INTERRUPTED: Final = 130
EXIT_CODES: Final[tuple[tuple[type[MainspringError], int], ...]] = (
    (ConfigError, 2),
    (InvalidInput, 2),
    (TooLarge, 2),
    (UnsafeTarget, 2),
    (NotFound, 3),
    (Unauthenticated, 4),
    (Forbidden, 4),
    (Conflict, 5),
    (Unavailable, 6),
    (RateLimited, 6),
    (NetworkError, 6),
)

HOW_TO_FIND_IT: Final = (
    "Set MAINSPRING_DATA_DIR to the server's data directory, where its token is, or run the command beside it "
    "(.mainspring). That token is only sent to a server on this machine. For another server, set --token-file or "
    "MAINSPRING_TOKEN."
)
"""The token."""
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def reported_as_exit_code(*, verbose: bool = False) -> Iterator[None]:
    """Whatever ends a command too early ends here. With `verbose`, what nobody expected keeps its traceback."""
    try:
        yield
        sys.stdout.flush()
    except MainspringError as error:
        report(error)
        sys.exit(exit_code(error))
    except click.ClickException as error:
        report_usage(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as error:
        click.echo(err=True)  # behind the ^C of the terminal
        for note in getattr(error, "__notes__", ()):
            click.echo(printable(note), err=True)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if verbose:
            raise
        report_output(error)
        sys.exit(1)


@contextmanager
def named_as_options(words: Mapping[str, str]) -> Iterator[None]:
    """What the server calls by the names of the API, in those of the command's options."""
    try:
        yield
    except MainspringError as error:
        for theirs, ours in words.items():
            error.detail = error.detail.replace(theirs, ours)
            error.errors = tuple(
                FieldError(field.pointer, field.detail.replace(theirs, ours)) for field in error.errors
            )
        raise


def exit_code(error: MainspringError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


def report(error: MainspringError) -> None:
    # Where fields are named, the detail repeats what is wrong with them, or a part of it.
    _say_error(str(type(error).__doc__) if error.errors else error.detail)
    lines = [f"  {text}" for text in field_texts(error.errors)]
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


def report_usage(error: click.ClickException) -> None:
    """An error of the command line itself: as click shows it, in our colours."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"Try '{error.ctx.command_path} --help' for help.\n", err=True)
    _say_error(_synonym_text(error) or error.format_message().replace("\n\t", " "))  # click lists choices one a line


def _synonym_text(error: click.ClickException) -> str:
    """click knows which names are alike, but not which words mean the same. Empty if there is no such word."""
    meant = ""
    if isinstance(error, click.exceptions.NoSuchCommand) and error.ctx and isinstance(error.ctx.command, click.Group):
        meant = synonym(error.command_name, error.ctx.command.list_commands(error.ctx))
    elif isinstance(error, click.NoSuchOption) and error.ctx:
        options = {name.removeprefix("--"): name for param in error.ctx.command.params for name in param.opts}
        meant = options.get(synonym(error.option_name.removeprefix("--"), options), "")
    return f"{error.message} Did you mean '{meant}'?" if meant else ""


def report_output(error: OSError) -> None:
    """What could not be read or written. Raises it again if whoever read has enough: click knows how to end then."""
    if error.errno == errno.EPIPE:
        raise error
    _say_error(_words(error))
    _drop_output()


def field_texts(errors: Sequence[FieldError]) -> list[str]:
    return [f"{field.pointer or '/'}: {field.detail}" for field in errors]


def _say_error(text: str) -> None:
    plain = False if os.environ.get("NO_COLOR") else None  # else the context decides, and whether this is a terminal
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {printable(text)}", err=True, color=plain)


def _words(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in _UNWRITABLE:
        return f"The output could not be written: {error.strerror}"
    return f"Reading or writing failed: {error.strerror}"


def _drop_output() -> None:
    """What could not be written would be tried again at the very end, and fail again, in Python's own words."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _hint(error: MainspringError) -> str:
    if isinstance(error, NetworkError) and not error.outcome_unknown:
        return "Is the server running? Start it with `mainspring serve`, or choose another with --url."
    return _token_hint() if isinstance(error, Unauthenticated) else ""


def _token_hint() -> str:
    ctx = click.get_current_context(silent=True)
    source = ctx.meta.get(TOKEN_SOURCE) if ctx is not None else ""
    if source:
        return f"The token was taken from {source}. Is it the one of this server?"
    directory = os.environ.get("MAINSPRING_DATA_DIR")
    if directory and not Path(directory).is_dir():
        return f"MAINSPRING_DATA_DIR names a directory that does not exist: {directory}"
    return HOW_TO_FIND_IT
