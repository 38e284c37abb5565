"""When a schedule matches, in the local time of no particular place: which seconds of which days.

`Cron` and `Every` answer three questions about *local seconds*: seconds since 1970-01-01 00:00 by the clock on the
wall. No zone is known here; `calendar` turns local seconds into instants. Both are frozen values, and every search is
bounded: `YEARS` is more than the longest wait for a date in the Gregorian calendar.

The rule of days is that of Vixie cron: if both day of month and day of week are restricted, a day matches when either
does; a field that begins with `*` (even `*/2`), or is `?`, is not restricted, and then a day matches when both do.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

DAY: Final = 86_400
LAST: Final = 0
"""Among dates: the last day of the month, and `LAST - 3` is three days before it. No date is 0 or less."""
YEARS: Final = 41
"""29 February on a given day of the week comes after 40 years at the latest."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_END: Final = date.max.toordinal() - _EPOCH


@dataclass(frozen=True, slots=True)
class Days:
    """Which days of a month match. Sunday is 0."""

    dates: frozenset[int]
    nearest: frozenset[int]
    """Dates, each of which stands for the weekday (Monday to Friday) nearest to it in the month."""
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    """(weekday, n): the nth of its kind in the month; n = `LAST` for the last."""
    either: bool
    """Whether a date or a day of the week suffices."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Fields as sorted tuples. `parse` makes sure that at least one day ever matches."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: Days
    months: tuple[int, ...]

    def first(self, local: int) -> int | None:
        """The first match at or after this local second; None when there is none before the year 10000."""
        day, second = divmod(local, DAY)
        found = self._first_day(day)
        if found == day:
            time = self._first_time(second)
            if time is not None:
                return day * DAY + time
            found = self._first_day(day + 1)
        if found is None:
            return None
        return found * DAY + self.hours[0] * 3600 + self.minutes[0] * 60 + self.seconds[0]

    def last(self, local: int) -> int | None:
        """The last match at or before this local second; None when there is none since the year 1."""
        day, second = divmod(local, DAY)
        found = self._last_day(day)
        if found == day:
            time = self._last_time(second)
            if time is not None:
                return day * DAY + time
            found = self._last_day(day - 1)
        if found is None:
            return None
        return found * DAY + self.hours[-1] * 3600 + self.minutes[-1] * 60 + self.seconds[-1]

    def count(self, start: int, stop: int) -> int:
        """How many matches there are from `start` to just before `stop`, without looking at each."""
        if stop <= start:
            return 0
        (first_day, first_second), (last_day, last_second) = divmod(start, DAY), divmod(stop, DAY)
        each = len(self.hours) * len(self.minutes) * len(self.seconds)
        total = self._count_days(first_day, last_day) * each
        if self._first_day(first_day) == first_day:
            total -= self._rank(first_second)
        if self._first_day(last_day) == last_day:
            total += self._rank(last_second)
        return total

    def _first_time(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        if hour in self.hours:
            if minute in self.minutes:
                index = bisect_left(self.seconds, second)
                if index < len(self.seconds):
                    return hour * 3600 + minute * 60 + self.seconds[index]
            index = bisect_right(self.minutes, minute)
            if index < len(self.minutes):
                return hour * 3600 + self.minutes[index] * 60 + self.seconds[0]
        index = bisect_right(self.hours, hour)
        if index < len(self.hours):
            return self.hours[index] * 3600 + self.minutes[0] * 60 + self.seconds[0]
        return None

    def _last_time(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        if hour in self.hours:
            if minute in self.minutes:
                index = bisect_right(self.seconds, second)
                if index:
                    return hour * 3600 + minute * 60 + self.seconds[index - 1]
            index = bisect_left(self.minutes, minute)
            if index:
                return hour * 3600 + self.minutes[index - 1] * 60 + self.seconds[-1]
        index = bisect_left(self.hours, hour)
        if index:
            return self.hours[index - 1] * 3600 + self.minutes[-1] * 60 + self.seconds[-1]
        return None

    def _rank(self, second: int) -> int:
        """How many times of a day are before this second of it."""
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        rank = bisect_left(self.hours, hour) * len(self.minutes) * len(self.seconds)
        if hour in self.hours:
            rank += bisect_left(self.minutes, minute) * len(self.seconds)
            if minute in self.minutes:
                rank += bisect_left(self.seconds, second)
        return rank

    def _first_day(self, day: int) -> int | None:
        if day > _END:
            return None
        at = date.fromordinal(_EPOCH + day)
        for year in range(at.year, min(at.year + YEARS, date.max.year) + 1):
            for month in self.months:
                earliest = at.day if (year, month) == (at.year, at.month) else 1
                if (year, month) >= (at.year, at.month):
                    found = _days_of(self.days, year, month)
                    index = bisect_left(found, earliest)
                    if index < len(found):
                        return date(year, month, found[index]).toordinal() - _EPOCH
        return None

    def _last_day(self, day: int) -> int | None:
        at = date.fromordinal(_EPOCH + min(day, _END))
        for year in range(at.year, max(at.year - YEARS, date.min.year) - 1, -1):
            for month in reversed(self.months):
                latest = at.day if (year, month) == (at.year, at.month) else 31
                if (year, month) <= (at.year, at.month):
                    found = _days_of(self.days, year, month)
                    index = bisect_right(found, latest)
                    if index:
                        return date(year, month, found[index - 1]).toordinal() - _EPOCH
        return None

    def _count_days(self, start: int, stop: int) -> int:
        """How many days match from `start` to just before `stop`."""
        low, high = date.fromordinal(_EPOCH + start), date.fromordinal(_EPOCH + min(stop, _END))
        total = 0
        for year in range(low.year, high.year + 1):
            for month in self.months:
                if (low.year, low.month) <= (year, month) <= (high.year, high.month):
                    found = _days_of(self.days, year, month)
                    total += len(found)
                    if (year, month) == (low.year, low.month):
                        total -= bisect_left(found, low.day)
                    if (year, month) == (high.year, high.month):
                        total -= len(found) - bisect_left(found, high.day)
        return total


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed interval, counted from the epoch in UTC: no zone and no change of clocks moves it."""

    seconds: int

    def first(self, local: int) -> int:
        return -(-local // self.seconds) * self.seconds

    def last(self, local: int) -> int:
        return local // self.seconds * self.seconds

    def count(self, start: int, stop: int) -> int:
        return max(0, (stop - 1) // self.seconds - (start - 1) // self.seconds)


Schedule = Cron | Every


def ever_happens(days: Days, months: tuple[int, ...]) -> bool:
    """Whether there is a year with such a day. Every month begins on every day of the week in some year."""
    lengths = {month: {calendar.monthrange(year, month)[1] for year in (2023, 2024)} for month in months}
    return any(
        _matching(days, weekday, length) for month in months for length in lengths[month] for weekday in range(7)
    )


def _days_of(days: Days, year: int, month: int) -> tuple[int, ...]:
    monday_based, length = calendar.monthrange(year, month)
    return _matching(days, (monday_based + 1) % 7, length)


@lru_cache(maxsize=4096)
def _matching(days: Days, first_weekday: int, length: int) -> tuple[int, ...]:
    """The matching days of a month of this length that begins on this day of the week."""

    def weekday(day: int) -> int:
        return (first_weekday + day - 1) % 7

    def found(wanted: frozenset[int]) -> set[int]:
        return {day if day > LAST else length + day for day in wanted if -length < day <= length}

    dates = found(days.dates)
    for day in found(days.nearest):
        dates.add(_nearest_weekday(day, weekday(day), length))
    by_weekday = {day for day in range(1, length + 1) if weekday(day) in days.weekdays}
    for wanted, nth in days.nth:
        kind = [day for day in range(1, length + 1) if weekday(day) == wanted]
        if nth <= len(kind):
            by_weekday.add(kind[nth - 1])  # LAST is 0, and [-1] is the last
    return tuple(sorted(dates | by_weekday if days.either else dates & by_weekday))


def _nearest_weekday(day: int, weekday: int, length: int) -> int:
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
