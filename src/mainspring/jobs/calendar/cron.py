"""Reads schedules: cron expressions, their short names, and intervals.

| written | meaning |
|---|---|
| `minute hour day-of-month month day-of-week` | five fields; six, the first for seconds, only with `seconds` |
| `*`, `5`, `1-5`, `1,3,5`, `*/15`, `10-30/5` | every value, one, a range, a list, steps |
| `jan` to `dec`, `sun` to `sat` | names of months and days of the week, in any case |
| `0` and `7`, `sun` | Sunday; a range may end with it (`sat-sun`) |
| `?` | the same as `*`, for days |
| `L`, `LW`, `15W` as day of month | the last day, the last weekday, the weekday nearest to the 15th in its month |
| `L-3` as day of month | three days before the last |
| `fri#2`, `friL` as day of week | the second Friday, the last Friday |
| `H`, `H(0-29)`, `H/15`, `H(0-29)/10` | a value spread by the job's name: stable, and its own for each field |
| `@hourly @daily @midnight @weekly @monthly @yearly @annually` | at the beginning of each |
| `@every 90s`, `15m`, `1h30m`, `1d` | a fixed interval, counted from the epoch in UTC; zones do not matter |

The rule of days is in `mainspring.jobs.calendar.schedule`. Anything else is refused with `InvalidInput` that names the
field and what was expected; what other schedulers would understand is told how it is written here. That takes bounded
time: an expression has at most `MAX_LENGTH` characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from mainspring.errors import InvalidInput
from mainspring.jobs.calendar.schedule import LAST, Cron, Days, Every, Schedule, ever_happens

__all__ = ["MAX_LENGTH", "Cron", "Every", "Schedule", "parse"]

MAX_LENGTH: Final = 1000
MAX_INTERVAL_SECONDS: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    spread_high: int = 0
    """The last value that `H` takes, if not `high`: so that every month has it, and Sunday counts only once."""

    @property
    def what(self) -> str:
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.name} from {self.low} to {self.high}{names}"


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DATE: Final = _Field("day of month", 1, 31, spread_high=28)
_MONTH: Final = _Field("month", 1, 12, _MONTHS)
_WEEKDAY: Final = _Field("day of week", 0, 7, _WEEKDAYS, spread_high=6)

_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EVERY: Final = re.compile(r"@every\s+((?:[0-9]{1,9}\s*[smhd]\s*){1,4})")
_PART: Final = re.compile(r"([0-9]+)\s*([smhd])")
_YEAR: Final = re.compile(r"[0-9]{4}")
_LAST: Final = re.compile(r"l(?:-([0-9]{1,2}))?")
_ZONE: Final = re.compile(r"(?:cron_)?tz=(\S*)\s*(.*)", re.IGNORECASE | re.DOTALL)
_ITEM: Final = re.compile(
    r"(?:(?P<star>[*?])|h(?:\((?P<h_low>\w+)-(?P<h_high>\w+)\))?|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[0-9]+))?",
    re.ASCII,
)


def parse(expression: str, *, job: str = "", seconds: bool = False) -> Schedule:
    """Read an expression. `job` is what `H` is spread by; `seconds` allows a sixth field in front."""
    if len(expression) > MAX_LENGTH:
        raise InvalidInput(f"Expected a schedule of at most {MAX_LENGTH} characters, got {len(expression)}")
    text = expression.strip().lower()
    _refuse_other_forms(expression.strip())
    if text.startswith("@every"):
        return _interval(text)
    if text.startswith("@"):
        return _cron(_named(text), job)
    fields = text.split()
    if len(fields) == 7 or (len(fields) == 6 and _YEAR.fullmatch(fields[-1])):
        raise InvalidInput(
            f"Expected no field for the year, got {_quoted(fields[-1])}; set `startAt` and `endAt` to bound a job"
        )
    if len(fields) == 6 and not seconds:
        raise InvalidInput("Expected five fields, got 6; set `seconds: true` to allow a leading field for seconds")
    if len(fields) != 5 + seconds:
        wanted = "six fields (second" if seconds else "five fields ("
        wanted += ", minute" if seconds else "minute"
        raise InvalidInput(f"Expected {wanted}, hour, day of month, month, day of week), got {len(fields)}")
    return _cron(fields if seconds else ["0", *fields], job)


def _refuse_other_forms(text: str) -> None:
    """Say how it is written here, for what other schedulers understand."""
    if zone := _ZONE.match(text):
        rest = f" and the schedule {_quoted(zone[2])}" if zone[2] else ""
        raise InvalidInput(
            f"Expected a schedule without a time zone, got {_quoted(zone[0].split()[0])}; "
            f"set `timezone` to {_quoted(zone[1])}{rest}"
        )
    if text.lower().startswith(("rrule:", "freq=", "dtstart")):
        raise InvalidInput(
            f'Expected a cron expression, got the recurrence rule {_quoted(text)}; write "0 9 * * mon" for Mondays '
            "at 9, and set `startAt`, `endAt` or `maxRuns` to bound it"
        )


def _named(text: str) -> list[str]:
    if text == "@reboot":
        raise InvalidInput(
            'Expected a schedule in time, got "@reboot": a job has no machine whose start it could follow'
        )
    if text not in _SHORT:
        raise InvalidInput(f"Expected one of {', '.join(_SHORT)} or @every, got {_quoted(text)}")
    return ["0", *_SHORT[text].split()]


def _interval(text: str) -> Every:
    found = _EVERY.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"Expected an interval such as @every 90s, 15m, 1h30m or 1d, in whole seconds, got {_quoted(text)}"
        )
    interval = sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(found[1]))
    if not 1 <= interval <= MAX_INTERVAL_SECONDS:
        raise InvalidInput(f"Expected an interval from 1 second to 366 days, got {_quoted(text)}")
    return Every(interval)


def _cron(fields: list[str], job: str) -> Cron:
    second, minute, hour, date, month, weekday = fields
    months = _values(month, _MONTH, job)
    days = _days(date, weekday, job)
    if not ever_happens(days, months):
        raise InvalidInput(f"Expected a date that exists, got day of month {_quoted(date)} in month {_quoted(month)}")
    return Cron(
        seconds=_values(second, _SECOND, job),
        minutes=_values(minute, _MINUTE, job),
        hours=_values(hour, _HOUR, job),
        days=days,
        months=months,
    )


def _days(date: str, weekday: str, job: str) -> Days:
    dates: set[int] = set()
    nearest: set[int] = set()
    for item in date.split(","):
        if item.startswith("l") and not item.endswith("w"):
            dates.add(_from_last(item))
        elif item.startswith("l"):
            nearest.add(_from_last(item[:-1]))
        elif item.endswith("w"):
            nearest.add(_value(item[:-1], _DATE))
        else:
            dates.update(_item(item, _DATE, job))
    weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in weekday.split(","):
        kind, found, position = item.partition("#")
        if found:
            if position not in ("1", "2", "3", "4", "5"):
                raise InvalidInput(f"Expected day of week # 1 to 5, got {_quoted(item)}")
            nth.add((_value(kind, _WEEKDAY) % 7, int(position)))
        elif len(item) > 1 and item.endswith("l"):
            nth.add((_value(item[:-1], _WEEKDAY) % 7, LAST))
        else:
            weekdays.update(value % 7 for value in _item(item, _WEEKDAY, job))
    return Days(
        dates=frozenset(dates),
        nearest=frozenset(nearest),
        weekdays=frozenset(weekdays),
        nth=frozenset(nth),
        either=not (date.startswith(("*", "?")) or weekday.startswith(("*", "?"))),
    )


def _from_last(text: str) -> int:
    """`l` or `l-3`: so many days before the last of the month."""
    found = _LAST.fullmatch(text)
    if found is None or int(found[1] or 0) > _DATE.high - 1:
        raise InvalidInput(f"Expected day of month L, or L-1 to L-30, got {_quoted(text)}")
    return LAST - int(found[1] or 0)


def _values(text: str, field: _Field, job: str) -> tuple[int, ...]:
    return tuple(sorted({value for item in text.split(",") for value in _item(item, field, job)}))


def _item(item: str, field: _Field, job: str) -> range:
    """The values of one element of a list."""
    found = _ITEM.fullmatch(item)
    if found is None:
        raise InvalidInput(f"Expected {field.what}, got {_quoted(item)}")
    if found["star"] == "?" and field not in (_DATE, _WEEKDAY):
        raise InvalidInput(f"Expected {field.what}, got {_quoted(item)}; ? is for days only: write *")
    step = _step(found["step"], field, item)
    if found["star"]:
        return range(field.low, (field.spread_high if field is _WEEKDAY else field.high) + 1, step or 1)
    if found["low"] is None:
        low, high = field.low, field.spread_high or field.high
        if found["h_low"] is not None:
            low, high = _range(found["h_low"], found["h_high"], field, item)
        return _spread(low, high, step, field, job)
    if found["high"] is None:
        if step is not None:
            raise InvalidInput(f"Expected a range before a step of {field.name}, got {_quoted(item)}")
        value = _value(found["low"], field)
        return range(value, value + 1)
    low, high = _range(found["low"], found["high"], field, item)
    return range(low, high + 1, step or 1)


def _range(low: str, high: str, field: _Field, item: str) -> tuple[int, int]:
    first, last = _value(low, field), _value(high, field)
    if field is _WEEKDAY and last == 0 < first:
        last = 7  # sat-sun
    if last < first:
        raise InvalidInput(
            f"Expected a range of {field.name} that ascends, got {_quoted(item)}; write it as two ranges"
        )
    return first, last


def _step(text: str | None, field: _Field, item: str) -> int | None:
    """A step larger than the field would match once, which is not what `*/90` minutes is meant to say."""
    if text is None:
        return None
    size = field.high - field.low + 1
    if len(text) > 4 or not 1 <= int(text) <= size:
        raise InvalidInput(
            f"Expected a step of {field.name} from 1 to {size}, got {_quoted(item)}; for intervals use @every"
        )
    return int(text)


def _spread(low: int, high: int, step: int | None, field: _Field, job: str) -> range:
    """One value of the range, or every step from one of the first: chosen by the job's name and the field."""
    if not job:
        raise InvalidInput(f"Expected the name of a job, from which H of {field.name} is derived, got none")
    digest = blake2b(f"{field.name}\0{job}".encode(), digest_size=8).digest()
    size = high - low + 1
    start = low + int.from_bytes(digest, "big") % min(step or size, size)
    return range(start, start + 1) if step is None else range(start, high + 1, step)


def _value(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if text.isascii() and text.isdigit() and len(text) <= 4 and field.low <= int(text) <= field.high:
        return int(text)
    raise InvalidInput(f"Expected {field.what}, got {_quoted(text)}")


def _quoted(text: str) -> str:
    return f'"{text[:40]}…"' if len(text) > 40 else f'"{text}"'
