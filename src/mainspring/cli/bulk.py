"""Acting on all timers that match: counted first, asked about, then done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from mainspring.cli.confirmation import confirm
from mainspring.cli.globals import settings
from mainspring.cli.output import say, show
from mainspring.text import counted

if TYPE_CHECKING:
    from mainspring.client import Where
    from mainspring.client._sync.timers import Timers


def act_on_many(
    timers: Timers, verb: str, where: Where, *, everything: bool, dry_run: bool, yes: bool, ctx: click.Context
) -> None:
    act = {"delete": timers.bulk_delete, "park": timers.bulk_park, "resume": timers.bulk_resume}[verb]
    if dry_run or not yes:
        found = act(all=everything, dry_run=True, **where)
        if dry_run:
            show(found, settings(ctx))
            return
        if found.changed == 0:
            say(f"Nothing to {verb}: {counted(found.matched, 'timer')} matched.")
            show(replace(found, dry_run=False), settings(ctx))  # that they were counted first is our own affair
            return
        confirm(f"{verb.capitalize()} {counted(found.changed, 'timer')}?")
    show(act(all=everything, **where), settings(ctx))
