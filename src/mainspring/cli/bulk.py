"""Acting on all timers that match: counted first, asked about, then done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
        if found.matched == 0:
            say("No timer matches.")
            show(found, settings(ctx))
            return
        click.confirm(f"{verb.capitalize()} {counted(found.matched, 'timer')}?", abort=True, err=True)
    show(act(all=everything, **where), settings(ctx))
