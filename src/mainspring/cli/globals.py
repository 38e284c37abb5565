"""What holds for every command that talks to a server: where it is, and how answers are printed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from mainspring.client import Client

F = TypeVar("F", bound=Callable[..., Any])
TOKEN_HELP = "Token of the API. Visible in the process list: prefer --token-file."  # noqa: S105

TOKEN_SOURCE = "mainspring.cli.token_source"  # noqa: S105
"""Under this name, what named the token is among what the contexts of a command line share."""


@dataclass(frozen=True)
class Globals:
    """The options that may come before or after the command."""

    url: str | None = None
    token: str | None = None
    token_file: str | None = None
    output: str | None = None
    no_color: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        """An empty value is a shell variable that is not set: looking elsewhere could find another server or token."""
        for name in ("url", "token", "token_file"):
            if getattr(self, name) == "":
                raise click.UsageError(f"Expected a value for --{name.replace('_', '-')}, got an empty one.")

    def connect(self) -> Client:
        from mainspring.cli.timed_transport import TimedTransport  # noqa: PLC0415  (heavy)
        from mainspring.client import Client  # noqa: PLC0415

        if self.verbose:
            logging.basicConfig(format="%(message)s")
            logging.getLogger("mainspring.client").setLevel(logging.DEBUG)
        ctx = click.get_current_context(silent=True)
        if ctx is not None:  # shared by all contexts of a command line
            ctx.meta[TOKEN_SOURCE] = self._token_source
        return Client(self.url, self.chosen_token, transport=TimedTransport())

    @property
    def _token_source(self) -> str:
        """What named the token or its file; empty if it has to be found."""
        given = {
            "--token": self.token,
            "--token-file": self.token_file,
            "MAINSPRING_TOKEN": os.environ.get("MAINSPRING_TOKEN"),
            "MAINSPRING_TOKEN_FILE": os.environ.get("MAINSPRING_TOKEN_FILE"),
        }
        return next((name for name, value in given.items() if value), "")

    @property
    def chosen_token(self) -> str | None:
        """The token that the options name; None: the client looks for one."""
        if self.token is not None or self.token_file is None:
            return self.token
        from mainspring.client.discovery import token_in  # noqa: PLC0415  (heavy)

        return token_in(Path(self.token_file))


def settings(ctx: click.Context) -> Globals:
    found: Globals = ctx.ensure_object(Globals)
    return found


def _keep(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    if value is not None:
        known = settings(ctx)
        given: dict[str, Any] = {str(param.name): value}
        ctx.obj = replace(known, **given)
        if param.name == "no_color":
            ctx.color = ctx.find_root().color = False  # that of errors, too


def connection_options(command: F) -> F:
    """The global options again, after the command, where people look for them first."""
    for option in (
        click.option("--token", metavar="TOKEN", expose_value=False, callback=_keep, help=TOKEN_HELP),
        click.option(
            "--token-file", metavar="FILE", expose_value=False, callback=_keep, help="File with the token of the API."
        ),
        click.option("--url", metavar="URL", expose_value=False, callback=_keep, help="URL of the server."),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json", "yaml"]),
            expose_value=False,
            callback=_keep,
            help="Output format.",
        ),
        click.option(
            "--no-color",
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_keep,
            help="Use no colours, even on a terminal.",
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_keep,
            help="Log requests and responses to stderr.",
        ),
    ):
        command = option(command)
    return command
