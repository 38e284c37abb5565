"""Time zones as pieces of time with one offset from UTC, from the `tzdata` package only.

The machine's own files are not read: two instances whose machines were updated on different days must agree on every
instant. Pieces are found by asking for the offset day by day and then halving, a year at a time, and are kept. That
finds all, because since 1970 no zone has changed its clocks twice within six days (the tests look at every zone).
"""

from __future__ import annotations

import re
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pkgutil import get_data
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from mainspring.errors import ConfigError, wrong_field
from mainspring.jobs.calendar.schedule import DAY

END: Final = 253_402_128_000
"""9999-12-30: where zones end. `datetime` cannot say in every zone what comes after."""
_YEAR: Final = 366 * DAY
_OFFSET: Final = re.compile(r"(?:utc|gmt)?([+-])([0-9]{1,2})(?::?00)?")
_REGIONS: Final = (
    "Africa/",
    "America/",
    "Antarctica/",
    "Arctic/",
    "Asia/",
    "Atlantic/",
    "Australia/",
    "Europe/",
    "Indian/",
    "Pacific/",
)
"""Of zones that are named after a city; the other names are old or abstract."""
_ABBREVIATIONS: Final = {
    "z": "UTC",
    "bst": "Europe/London",
    "cest": "Europe/Berlin",
    "pst": "America/Los_Angeles",
    "pdt": "America/Los_Angeles",
    "mdt": "America/Denver",
    "cst": "America/Chicago",
    "cdt": "America/Chicago",
    "edt": "America/New_York",
    "ist": "Asia/Kolkata",
    "jst": "Asia/Tokyo",
    "aest": "Australia/Sydney",
    "aedt": "Australia/Sydney",
}
"""What people say, and no zone is called: the most populous place for each."""


class Piece(NamedTuple):
    """Seconds since the epoch from `start` to just before `end` have one offset.

    At either edge the clocks change, or nothing happens: years are cut where no change is near.
    """

    start: int
    end: int
    offset_before: int
    offset: int
    offset_after: int


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    return frozenset(_read("zones").decode().split())


@lru_cache(maxsize=1024)
def load(name: str) -> ZoneInfo:
    """The zone of this name. Raises `InvalidInput` that proposes others when there is none."""
    if name not in names():
        meant = _meant(name[:64])
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        detail = f'Expected an IANA time zone such as Europe/Berlin, got "{name[:64]}"{hint}'
        raise wrong_field("/timezone", detail)
    return ZoneInfo.from_file(BytesIO(_read(f"zoneinfo/{name}")), key=name)


def _meant(name: str) -> list[str]:
    """The zones that somebody may have meant: by another spelling, a city, an abbreviation or an offset."""
    wanted = name.strip().lower().replace(" ", "_")
    if offset := _OFFSET.fullmatch(wanted):
        sign, hours = "-" if offset[1] == "+" else "+", int(offset[2])  # POSIX counts them the other way round
        return [zone] if (zone := f"Etc/GMT{sign}{hours}" if hours else "UTC") in names() else []
    if wanted in _ABBREVIATIONS:
        return [_ABBREVIATIONS[wanted]]
    known = sorted(names(), key=lambda zone: (not zone.startswith(_REGIONS), zone))
    whole = {zone.lower(): zone for zone in known}
    cities = {zone.lower().rpartition("/")[2]: zone for zone in reversed(known)}
    if exact := whole.get(wanted) or cities.get(wanted):
        return [exact]
    city = wanted.rpartition("/")[2]
    close = [whole[found] for found in get_close_matches(wanted, whole, n=2, cutoff=0.75)]
    close += [cities[found] for found in get_close_matches(city, cities, n=1, cutoff=0.75)]
    return list(dict.fromkeys(close))[:3]


def _read(path: str) -> bytes:
    data = get_data("tzdata", path)
    if data is None:
        raise ConfigError(f"Expected the package tzdata with the file {path}, got none")
    return data


def piece_at(zone: ZoneInfo, second: int) -> Piece:
    """The piece that holds this second, from 0 to before `END`."""
    year = second // _YEAR
    pieces = _pieces(zone, year)
    if second < pieces[0].start:
        pieces = _pieces(zone, year - 1)
    return next(piece for piece in pieces if second < piece.end)


@lru_cache(maxsize=8192)
def _pieces(zone: ZoneInfo, year: int) -> tuple[Piece, ...]:
    start, end = _cut(zone, year), _cut(zone, year + 1)
    changes = [start]
    days = [*range(start, end, DAY), end]
    for (day, before), (next_day, after) in pairwise((day, _offset(zone, day)) for day in days):
        if before != after:
            changes.append(_change(zone, day, next_day))
    changes.append(end)
    return tuple(
        Piece(low, high, _offset(zone, low - 1), _offset(zone, low), _offset(zone, high))
        for low, high in pairwise(changes)
    )


def _cut(zone: ZoneInfo, year: int) -> int:
    """Where a year begins here: not within two days of a change, whose effect must not end at an edge without one."""
    cut = year * _YEAR
    if cut == 0 or cut >= END:
        return min(cut, END)
    while _offset(zone, cut - 2 * DAY) != _offset(zone, cut + 2 * DAY):
        cut += DAY
    return cut


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """The first second that no longer has the offset of `low`."""
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
