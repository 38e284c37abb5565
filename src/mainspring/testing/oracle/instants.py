"""Instants by brute force: every local second or minute is looked at, and resolved by `datetime` itself.

Shares nothing with the code under test but the zone's data and the names of policies. By PEP 495, `fold=0` gives the
offset from before a change and `fold=1` the one from after it, for local times that are left out as well as for
repeated ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from mainspring.jobs.calendar.calendar import Dst

FIELDS: Final = 6
SUNDAY_AGAIN: Final = 7
BOUNDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, SUNDAY_AGAIN))
LONGEST_CHANGE: Final = timedelta(hours=3)


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


def matcher(schedule: str, *, seconds: bool = False) -> Callable[[datetime], bool] | None:
    """Whether a local time matches a schedule of numbers, `*`, lists, ranges and steps; None: it is of another kind."""
    if schedule.startswith("@every ") and schedule.endswith("s"):
        step = int(schedule.removeprefix("@every ").removesuffix("s"))
        return lambda local: round(local.replace(tzinfo=UTC).timestamp()) % step == 0
    fields = schedule.split() if seconds else ["0", *schedule.split()]
    if len(fields) != FIELDS or not all(set(field) <= set("0123456789*,-/") for field in fields):
        return None
    values = [_values(field, *bounds) for field, bounds in zip(fields, BOUNDS, strict=True)]
    either = not fields[3].startswith("*") and not fields[5].startswith("*")

    def matches(local: datetime) -> bool:
        day, weekday = local.day in values[3], local.isoweekday() % 7 in values[5]
        return (
            local.second in values[0]
            and local.minute in values[1]
            and local.hour in values[2]
            and local.month in values[4]
            and ((day or weekday) if either else (day and weekday))
        )

    return matches


def _values(field: str, first: int, last: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        if span == "*":
            low, high = str(first), str(last)
        found.update(range(int(low), int(high or low) + 1, int(step or "1")))
    return {value % 7 for value in found} if last == SUNDAY_AGAIN else found


def instants_between(
    matches: Callable[[datetime], bool], *, after: int, until: int, zone: ZoneInfo, dst: Dst, is_fixed: bool = False
) -> set[int]:
    """Every instant after one and up to another, in milliseconds. `is_fixed`: intervals know no zone."""
    if is_fixed:
        zone = ZoneInfo("UTC")
    start = datetime.fromtimestamp(after // 1000, zone).replace(tzinfo=None) - LONGEST_CHANGE
    stop = datetime.fromtimestamp(until // 1000, zone).replace(tzinfo=None) + LONGEST_CHANGE
    steady = zone.utcoffset(start) == zone.utcoffset(stop)
    if steady:
        seconds = range(after // 1000 + 1, until // 1000 + 1)
        return {second * 1000 for second in seconds if matches(datetime.fromtimestamp(second, zone))}
    found = instants(local_times(zone, start, stop, timedelta(seconds=1)), matches, dst)
    return {instant for instant in found if after < instant <= until}
