"""Instants by brute force: every local second or minute around a change of clocks, resolved by `datetime` itself.

Shares nothing with the code under test but the zone's data. By PEP 495, `fold=0` gives the offset from before a change
and `fold=1` the one from after it, for local times that are left out as well as for repeated ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from mainspring.jobs.calendar import Dst

CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Europe/Dublin": ("2026-03-29", "2026-10-25"),
    "America/Sao_Paulo": ("2018-02-18", "2018-11-04"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),
    "Asia/Tehran": ("2022-03-22", "2022-09-22"),
    "Pacific/Apia": ("2011-12-30", "2012-04-01"),
    "America/St_Johns": ("2006-04-02", "2006-10-29"),
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),
    "Asia/Kolkata": ("2026-03-29",),
}
"""Days on which the clocks change: ahead and back, by half an hour to two hours, at midnight and at one minute past it,
with negative daylight saving; a day that does not exist; and a zone where nothing happens."""


@dataclass(frozen=True)
class Local:
    """A local time and the instants that it has."""

    time: datetime
    kind: str
    first_ms: int
    last_ms: int


def local_times(zone: ZoneInfo, start: datetime, stop: datetime, step: timedelta) -> list[Local]:
    found = []
    while start < stop:
        before, after = start.replace(tzinfo=zone), start.replace(tzinfo=zone, fold=1)
        kind = "once"
        if before.utcoffset() != after.utcoffset():
            exists = before.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == start
            kind = "twice" if exists else "never"
        found.append(Local(start, kind, *(round(at.timestamp() * 1000) for at in (before, after))))
        start += step
    return found


def instants(times: list[Local], matches: Callable[[datetime], bool], dst: Dst) -> dict[int, str]:
    """The instants of a schedule in order, each with its mark."""
    found: dict[int, str] = {}
    for local in times:
        if not matches(local.time):
            continue
        if local.kind == "never":
            if dst.on_gap == "shift":
                found.setdefault(local.first_ms, "gap")
        elif local.kind == "twice":
            if dst.on_overlap in ("first", "both"):
                found[local.first_ms] = "first"
            if dst.on_overlap in ("last", "both"):
                found[local.last_ms] = "last"
        else:
            found[local.first_ms] = ""
    return dict(sorted(found.items()))
