"""Expressions mean what the table says, checked by a naive matcher; and what is wrong is refused with the reason."""

from __future__ import annotations

import time
from calendar import monthrange
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.errors import InvalidInput
from mainspring.jobs.calendar.calendar import Calendar, Dst
from mainspring.jobs.calendar.cron import MAX_LENGTH, Cron, parse

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def listed(text: str, start: str, count: int, *, seconds: bool = False) -> list[str]:
    """The next instants in UTC, as short as they can be told apart."""
    calendar = Calendar(parse(text, job="job", seconds=seconds), "UTC", Dst())
    at = round(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() * 1000)
    return [f"{calendar.local(ms):%Y-%m-%d %H:%M:%S}" for ms in calendar.between(at, at + 10**14, limit=count)]


def days(text: str, start: str, count: int) -> list[str]:
    return [at[:10] for at in listed(f"0 0 {text}", start, count)]


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("29 2 *", "2026-01-01", ["2028-02-29", "2032-02-29"]),
        ("29 2 *", "2096-02-29", ["2104-02-29", "2108-02-29"]),
        ("L * *", "2028-01-01", ["2028-01-31", "2028-02-29"]),
        ("1,L * *", "2027-01-31", ["2027-02-01", "2027-02-28"]),
        ("L-3 * *", "2028-01-01", ["2028-01-28", "2028-02-26"]),
        ("L-30 * *", "2026-02-01", ["2026-03-01", "2026-05-01"]),  # of months with 31 days
        ("L-2W * *", "2026-05-01", ["2026-05-29", "2026-06-29"]),  # 29 May is a Friday, 28 June a Sunday
        ("LW * *", "2026-05-01", ["2026-05-29", "2026-06-30"]),  # 31 May 2026 is a Sunday
        ("15W * *", "2026-02-01", ["2026-02-16", "2026-03-16"]),  # both are Sundays
        ("1W * *", "2026-07-31", ["2026-08-03", "2026-09-01"]),  # 1 August is a Saturday, and 31 July another month
        ("31W * *", "2026-05-01", ["2026-05-29", "2026-07-31"]),  # June has no 31st
        ("* * fri#2", "2026-01-01", ["2026-01-09", "2026-02-13"]),
        ("* * 5#5", "2026-01-02", ["2026-01-30", "2026-05-29"]),
        ("* 2 mon#5", "2026-01-01", ["2044-02-29", "2072-02-29"]),
        ("* * 7L", "2026-01-01", ["2026-01-25", "2026-02-22"]),
        ("* * sat-sun", "2026-01-01", ["2026-01-03", "2026-01-04"]),
        ("* * 0", "2026-01-01", ["2026-01-04", "2026-01-11"]),
        ("* * 7", "2026-01-01", ["2026-01-04", "2026-01-11"]),
        ("? JAN-feb Mon", "2026-02-20", ["2026-02-23", "2027-01-04"]),
        ("13 * ?", "2026-01-01", ["2026-01-13", "2026-02-13"]),
    ],
)
def test_days(text: str, start: str, expected: list[str]) -> None:
    assert days(text, start, 2) == expected


def test_either_day_field_suffices_when_both_are_restricted() -> None:
    assert days("13 * fri", "2026-01-08", 3) == ["2026-01-09", "2026-01-13", "2026-01-16"]


def test_both_day_fields_must_match_when_one_begins_with_a_star() -> None:
    # Odd dates that are Mondays.
    assert days("*/2 * mon", "2026-01-01", 3) == ["2026-01-05", "2026-01-19", "2026-02-09"]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @Annually ", "0 0 1 1 *"),
        ("*/15 0-23/1 1-31 1-12 0-6", "0,15,30,45 * 1,2-31 * sun,1-6"),
        ("\t5   4 * * * ", "5 4 * * *"),
        ("*/60 */24 * * *", "0 0 * * *"),
    ],
)
def test_two_ways_to_write_the_same(name: str, same: str) -> None:
    one, other = parse(name), parse(same)
    assert listed(name, "2026-03-01", 5) == listed(same, "2026-03-01", 5)
    assert isinstance(one, Cron)
    assert isinstance(other, Cron)
    assert (one.hours, one.minutes, one.months) == (other.hours, other.minutes, other.months)


def test_equal_expressions_are_equal_and_hash_alike() -> None:
    assert {parse("0 9 * * mon"), parse("00 09 * * 1")} == {parse("0 9 * * MON")}


def test_seconds_come_first_where_they_are_allowed() -> None:
    assert listed("*/30 1 0 * * *", "2026-01-01", 2, seconds=True) == ["2026-01-01 00:01:00", "2026-01-01 00:01:30"]


def test_intervals_are_counted_from_the_epoch() -> None:
    assert listed("@every 90s", "1970-01-01", 2) == ["1970-01-01 00:01:30", "1970-01-01 00:03:00"]
    assert listed("@every 7h", "1970-01-01 20:59", 2) == ["1970-01-01 21:00:00", "1970-01-02 04:00:00"]
    assert listed("@every 1h30m", "1970-01-01", 2) == ["1970-01-01 01:30:00", "1970-01-01 03:00:00"]
    assert parse("@every 1h 30m") == parse("@every 90m")
    assert listed("@EVERY 2 d", "2026-01-01 00:00:01", 1) == ["2026-01-03 00:00:00"]


def fields(text: str, job: str) -> Cron:
    found = parse(text, job=job)
    assert isinstance(found, Cron)
    return found


def test_h_spreads_jobs_evenly_and_each_always_to_the_same_place() -> None:
    minutes = Counter(fields("H * * * *", f"job-{number}").minutes for number in range(6000))
    assert len(minutes) == 60
    assert max(minutes.values()) < 160  # 100 each, and chance
    found = fields("H H H H H", "daily-report")
    # Another version must not move jobs about.
    assert (found.minutes, found.hours, found.months) == ((14,), (7,), (4,))
    assert (found.days.dates, found.days.weekdays) == (frozenset({23}), frozenset({6}))
    assert len({fields("H H * * *", f"job-{number}").hours for number in range(500)}) == 24


def test_h_keeps_to_its_range_and_steps_through_it() -> None:
    for number in range(200):
        job = f"job-{number}"
        assert fields("H(10-19) * * * *", job).minutes[0] in range(10, 20)
        quarters = fields("H/15 * * * *", job).minutes
        assert quarters == tuple(range(quarters[0], 60, 15))
        assert len(quarters) == 4
        tens = fields("H(0-29)/10 * * * *", job).minutes
        assert tens == tuple(range(tens[0], 30, 10))
        assert len(tens) == 3
        assert max(fields("0 0 H * *", job).days.dates) <= 28
        assert fields("0 0 * * H", job).days.weekdays < set(range(7))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expected five fields (minute, hour, day of month, month, day of week), got 0"),
        ("* * * *", "got 4"),
        ("* * * * * * *", 'Expected no field for the year, got "*"; set `startAt` and `endAt`'),
        ("0 9 * * 1 2027", 'Expected no field for the year, got "2027"'),
        ("0 0 * * * *", "`seconds: true`"),
        ("60 * * * *", 'Expected minute from 0 to 59, got "60"'),
        ("* 24 * * *", 'Expected hour from 0 to 23, got "24"'),
        ("* * 0 * *", 'Expected day of month from 1 to 31, got "0"'),
        ("* * 32 * *", 'Expected day of month from 1 to 31, got "32"'),
        ("* * * 13 *", 'Expected month from 1 to 12 or jan to dec, got "13"'),
        ("* * * * 8", 'Expected day of week from 0 to 7 or sun to sat, got "8"'),
        ("* * * foo *", 'Expected month from 1 to 12 or jan to dec, got "foo"'),
        ("mon * * * *", 'Expected minute from 0 to 59, got "mon"'),
        ("-1 * * * *", 'Expected minute from 0 to 59, got "-1"'),
        ("1,,2 * * * *", 'Expected minute from 0 to 59, got ""'),
        ("1.5 * * * *", 'got "1.5"'),
        ("\u0661 * * * *", 'got "\u0661"'),
        ("¹ * * * *", 'got "¹"'),
        ("? * * * *", 'Expected minute from 0 to 59, got "?"; ? is for days only: write *'),
        ("* ? * * *", 'Expected hour from 0 to 23, got "?"; ? is for days only: write *'),
        ("0 0 L-31 * *", 'Expected day of month L, or L-1 to L-30, got "l-31"'),
        ("0 0 L-x * *", 'Expected day of month L, or L-1 to L-30, got "l-x"'),
        ("0 0 L-29 2 *", "a date that exists"),
        (
            "CRON_TZ=Europe/Berlin 0 9 * * *",
            'got "CRON_TZ=Europe/Berlin"; set `timezone` to "Europe/Berlin" and the schedule "0 9 * * *"',
        ),
        ("TZ=UTC", 'set `timezone` to "UTC"'),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO", 'got the recurrence rule "RRULE:FREQ=WEEKLY;BYDAY=MO"; write "0 9 * * mon"'),
        ("FREQ=DAILY", "recurrence rule"),
        ("5-1 * * * *", 'Expected a range of minute that ascends, got "5-1"'),
        ("* * * * fri-mon", 'Expected a range of day of week that ascends, got "fri-mon"'),
        ("*/0 * * * *", "Expected a step of minute from 1 to 60"),
        ("*/90 * * * *", 'got "*/90"; for intervals use @every'),
        ("* */25 * * *", "Expected a step of hour from 1 to 24"),
        ("5/15 * * * *", 'Expected a range before a step of minute, got "5/15"'),
        ("*/*/2 * * * *", 'Expected minute from 0 to 59, got "*/*/2"'),
        ("H(50-70) * * * *", 'Expected minute from 0 to 59, got "70"'),
        ("L * * * *", 'Expected minute from 0 to 59, got "l"'),
        ("0 0 W * *", 'Expected day of month from 1 to 31, got ""'),
        ("0 0 * * L", 'Expected day of week from 0 to 7 or sun to sat, got "l"'),
        ("0 0 * * fri#6", 'Expected day of week # 1 to 5, got "fri#6"'),
        ("0 0 30 2 *", 'Expected a date that exists, got day of month "30" in month "2"'),
        ("0 0 31 4,6,9,11 *", "Expected a date that exists"),
        ("0 0 31W feb *", "Expected a date that exists"),
        ("@reboot", "Expected a schedule in time"),
        ("@fortnightly", "Expected one of @hourly, @daily"),
        ("@every 5", "Expected an interval such as @every 90s"),
        ("@every 0s", "Expected an interval from 1 second to 366 days"),
        ("@every 999999999d", "Expected an interval from 1 second to 366 days"),
        ("@every 1.5h", "in whole seconds"),
        ("@every 500ms", "in whole seconds"),
        ("@every 5 minutes", "Expected an interval such as @every 90s"),
        (",".join(["1"] * 10_000) + " * * * *", f"at most {MAX_LENGTH} characters, got 20007"),
        ("9" * 900 + " * * * *", 'Expected minute from 0 to 59, got "9999'),
        ("*/" + "9" * 900 + " * * * *", "Expected a step of minute from 1 to 60"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason_and_at_once(text: str, reason: str) -> None:
    started = time.perf_counter()
    with pytest.raises(InvalidInput) as refused:
        parse(text, job="job")
    assert time.perf_counter() - started < 0.1
    assert reason in refused.value.detail
    assert refused.value.detail.startswith("Expected ")
    assert len(refused.value.detail) < 200


def test_h_needs_the_name_of_a_job() -> None:
    with pytest.raises(InvalidInput, match="Expected the name of a job, from which H of minute is derived, got none"):
        parse("H * * * *")


def test_with_the_flag_six_fields_are_expected() -> None:
    with pytest.raises(InvalidInput, match=r"Expected six fields \(second, minute, hour.*got 5"):
        parse("* * * * *", seconds=True)


def test_30_february_is_possible_where_a_day_of_the_week_suffices() -> None:
    assert days("30 2 mon", "2026-01-01", 1) == ["2026-02-02"]


@dataclass(frozen=True)
class Part:
    """A field as it is written, and what that means, worked out apart from the parser."""

    text: str
    values: frozenset[int]


@st.composite
def parts(draw: st.DrawFn, low: int, high: int) -> Part:
    texts, values = [], set[int]()
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, high - low + 1))
        text, some = draw(
            st.sampled_from(
                [
                    ("*", range(low, high + 1)),
                    (f"*/{step}", range(low, high + 1, step)),
                    (f"{first}", [first]),
                    (f"{first}-{last}", range(first, last + 1)),
                    (f"{first}-{last}/{step}", range(first, last + 1, step)),
                ]
            )
        )
        texts.append(text)
        values |= set(some)
    return Part(",".join(texts), frozenset(values))


EXPRESSIONS = st.tuples(parts(0, 59), parts(0, 23), parts(1, 31), parts(1, 12), parts(0, 6))


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.integers(0, 40_000), st.integers(0, 86_399))
@pytest.mark.slow
def test_random_expressions_match_what_a_naive_look_at_every_minute_finds(
    expression: tuple[Part, Part, Part, Part, Part], day: int, second: int
) -> None:
    minute, hour, date, month, weekday = expression
    text = " ".join(part.text for part in expression)
    must_be_both = date.text.startswith("*") or weekday.text.startswith("*")
    if must_be_both and all(min(date.values) > monthrange(2024, each)[1] for each in month.values):
        with pytest.raises(InvalidInput, match="a date that exists"):
            parse(text)
        return

    def matches(at: datetime) -> bool:
        by_date, by_weekday = at.day in date.values, at.isoweekday() % 7 in weekday.values
        on_day = (by_date and by_weekday) if must_be_both else (by_date or by_weekday)
        return on_day and at.month in month.values and at.hour in hour.values and at.minute in minute.values

    start = EPOCH + timedelta(days=day, seconds=second)
    minutes = [start.replace(second=0) + timedelta(minutes=number) for number in range(1, 1501)]
    after = round(start.timestamp() * 1000)
    found = Calendar(parse(text), "UTC", Dst()).between(after, after + 1500 * 60_000, limit=2000)
    assert found == [round(at.timestamp() * 1000) for at in minutes if matches(at)]
