"""Choosing timers: the namespace and the filter, as options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.cli.parameters import LABEL, MOMENT
from mainspring.model import State

if TYPE_CHECKING:
    from mainspring.client import Where

F = TypeVar("F", bound=Callable[..., Any])


def namespace_option(command: F) -> F:
    return click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the timers.")(
        command
    )


def filter_options(command: F) -> F:
    for option in (
        namespace_option,
        click.option(
            "--state",
            "states",
            type=click.Choice([each.value for each in State]),
            multiple=True,
            help="In this state. Repeatable.",
        ),
        click.option("--id-prefix", help="Ids starting with this."),
        click.option(
            "--label", "labels", type=LABEL, multiple=True, help="Has this label. Repeatable; all must match."
        ),
        click.option("--due-from", type=MOMENT, help="Next due at or after this instant."),
        click.option("--due-to", type=MOMENT, help="Next due before this instant."),
    )[::-1]:
        command = option(command)
    return command


def take_where(options: dict[str, Any]) -> Where:
    """The filter among a command's options: the namespace, and each condition that was given."""
    where: Where = {"namespace": options["namespace"]}
    if options["states"]:
        where["states"] = [State(state) for state in options["states"]]
    if options["id_prefix"]:
        where["id_prefix"] = options["id_prefix"]
    if options["labels"]:
        where["labels"] = dict(options["labels"])
    if options["due_from"]:
        where["due_from"] = options["due_from"]
    if options["due_to"]:
        where["due_to"] = options["due_to"]
    return where
