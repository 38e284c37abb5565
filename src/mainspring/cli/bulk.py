"""Acting on all timers that match: counted first, asked about, then done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.cli.globals import settings
from mainspring.cli.output import say, show

if TYPE_CHECKING:
    from mainspring.client import Where
    from mainspring.client._sync.timers import Timers


def act_on_many(
    timers: Timers, verb: str, where: Where, *, everything: bool, dry_run: bool, yes: bool, ctx: click.Context
) -> None:
    act = {"delete": timers.bulk_delete, "park": timers.bulk_park, "resume": timers.bulk_resume}[verb]
    if dry_run or not yes:
        counted = act(all=everything, dry_run=True, **where)
        if dry_run:
            show(counted, settings(ctx))
            return
        if counted.matched == 0:
            say("No timer matches.")
            show(counted, settings(ctx))
            return
        click.confirm(f"{verb.capitalize()} {counted.matched} timers?", abort=True, err=True)
    show(act(all=everything, **where), settings(ctx))
