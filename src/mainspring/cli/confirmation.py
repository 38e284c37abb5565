"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys

import click


def confirm(question: str) -> None:
    """Returns if the answer is yes. Without anybody to answer, `--yes` is what says so."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as error:
        # click makes one of all three: no, Ctrl-C, and an input that has ended.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        if isinstance(error.__context__, EOFError) and not sys.stdin.isatty():
            click.echo(err=True)  # behind the question
            raise click.UsageError("Expected an answer on stdin, got none. Without a terminal, give --yes.") from None
        raise
