"""Instants for people: in the time zone of this machine, to the second, with how far away they are.

`2026-12-01 09:00:00+01 (in 5 min)`. Every table writes them like this. The part before the parenthesis can be pasted
into any option that takes an instant. Programs get RFC 3339 in UTC, as the API writes it.

How far away goes by this machine's clock, unless the server has one of its own: an emulator says what time it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import click

_CLOCK: Final = f"{__name__}.clock"


def go_by(now: datetime) -> None:
    """For the rest of this command, it is `now`."""
    if (ctx := click.get_current_context(silent=True)) is not None:
        ctx.meta[_CLOCK] = now


def _present() -> datetime:
    ctx = click.get_current_context(silent=True)
    told: datetime | None = None if ctx is None else ctx.meta.get(_CLOCK)
    return told or datetime.now(UTC)


def instant_text(instant: datetime | None, *, now: datetime | None = None) -> str:
    """Empty for none. `now` is the present, unless it is given."""
    if instant is None:
        return ""
    away = (instant - (now or _present())).total_seconds()
    return f"{local_text(instant)} ({distance_text(away)})"


def local_text(instant: datetime | None) -> str:
    """Without the distance, for what stays on the screen while time goes on."""
    return "" if instant is None else clock_text(_local(instant))


def clock_text(instant: datetime) -> str:
    """What clocks show in the time zone of an instant: `2026-12-01 09:00:00+01`, with Z for UTC."""
    offset = instant.utcoffset() or timedelta()
    minutes = round(abs(offset.total_seconds()) / 60)
    sign = "+" if offset >= timedelta() else "-"
    zone = f"{sign}{minutes // 60:02d}{f':{minutes % 60:02d}' if minutes % 60 else ''}" if minutes else "Z"
    return f"{instant:%Y-%m-%d %H:%M:%S}{zone}"


def distance_text(seconds: float) -> str:
    """`in 5 min`, `3 h ago`, `now`; rounded to the unit that tells most."""
    amount = _amount(abs(seconds))
    if amount.startswith("0 "):
        return "now"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


def _amount(seconds: float) -> str:
    for unit, size, limit in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48), ("days", 86_400, 730)):
        if (count := round(seconds / size)) < limit:
            return f"{count} {unit}"
    return f"{round(seconds / 31_556_952)} years"


def _local(instant: datetime) -> datetime:
    try:
        return instant.astimezone()
    except OverflowError:  # at the end of the year 9999, not every zone has a date left
        return instant.astimezone(UTC)
