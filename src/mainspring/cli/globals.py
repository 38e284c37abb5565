"""What holds for every command that talks to a server: where it is, and how answers are printed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from mainspring.client import Client

F = TypeVar("F", bound=Callable[..., Any])
TOKEN_HELP = "Token of the API. Visible in the process list: prefer --token-file."  # noqa: S105


@dataclass(frozen=True)
class Globals:
    """The options that may come before or after the command."""

    url: str | None = None
    token: str | None = None
    token_file: str | None = None
    output: str | None = None
    no_color: bool = False
    verbose: bool = False

    def connect(self) -> Client:
        from mainspring.client import Client  # noqa: PLC0415  (heavy)

        if self.verbose:
            logging.basicConfig(format="%(message)s")
            logging.getLogger("mainspring.client").setLevel(logging.DEBUG)
        token = self.token
        if token is None and self.token_file is not None:
            from mainspring.client.discovery import token_in  # noqa: PLC0415  (heavy)

            token = token_in(Path(self.token_file))
        return Client(self.url, token)


def settings(ctx: click.Context) -> Globals:
    found: Globals = ctx.ensure_object(Globals)
    return found


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        known = settings(ctx)
        given: dict[str, Any] = {str(param.name): value}
        ctx.obj = replace(known, **given)


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
    ):
        command = option(command)
    return command
