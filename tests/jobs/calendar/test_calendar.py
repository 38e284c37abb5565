"""The published table of clock changes, against a brute-force scan; and the laws that hold for every calendar."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import resources

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.errors import InvalidInput
from mainspring.jobs.calendar import zone as zones
from mainspring.jobs.calendar.calendar import Calendar, Dst, is_due, spread_ms
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.calendar.schedule import Cron
from mainspring.testing.oracle.instants import instants, local_times
from tests.support.source_tree import ROOT

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

POLICIES = [
    Dst(on_gap=on_gap, on_overlap=on_overlap)
    for on_gap in ("skip", "shift")
    for on_overlap in ("first", "last", "both")
]
BY_MINUTE: dict[str, Callable[[datetime], bool]] = {
    "* * * * *": lambda at: True,
    "*/15 * * * *": lambda at: at.minute % 15 == 0,
    # In Lord Howe's gap the time that is shifted comes to lie behind the regular one.
    "20,40 2 * * *": lambda at: at.hour == 2 and at.minute in (20, 40),
    "30 2 * * *": lambda at: (at.hour, at.minute) == (2, 30),
    "0 0 * * *": lambda at: (at.hour, at.minute) == (0, 0),
    "7 0-3 * * *": lambda at: at.hour <= 3 and at.minute == 7,
    "5,35 1,2,3 * * *": lambda at: at.hour in (1, 2, 3) and at.minute in (5, 35),
    "0 9 * * fri": lambda at: at.weekday() == 4 and (at.hour, at.minute) == (9, 0),
    "45 23 * * 6-7": lambda at: at.weekday() >= 5 and (at.hour, at.minute) == (23, 45),
}
BY_SECOND: dict[str, Callable[[datetime], bool]] = {
    "* * * * * *": lambda at: True,
    "*/20 59,0 * * * *": lambda at: at.second % 20 == 0 and at.minute in (59, 0),
}
MINUTES_OF_DAY = 1440
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def check(calendar: Calendar, expected: dict[int, str], after: int, until: int) -> None:
    """Forward, backward and counted."""
    found = calendar.between(after, until, limit=100_000)
    assert found == list(expected)
    assert {at: calendar.mark(at) for at in found} == expected
    assert calendar.count(after, until) == len(found)
    backward, at = [], calendar.previous(until + 1)
    while at is not None and at > after:
        backward.append(at)
        at = calendar.previous(at)
    assert backward[::-1] == found


@pytest.mark.slow
@pytest.mark.parametrize("zone", CHANGES)
def test_every_minute_around_a_change_follows_the_table(zone: str) -> None:
    for day in CHANGES[zone]:
        noon = datetime.fromisoformat(day) + timedelta(hours=12)
        # A day more of local times on either side: what is shifted comes from as far as that.
        times = local_times(zones.load(zone), noon - timedelta(days=3), noon + timedelta(days=3), MINUTE)
        assert zone == "Asia/Kolkata" or any(local.kind != "once" for local in times[MINUTES_OF_DAY:-MINUTES_OF_DAY])
        after, until = (ms(f"{noon + timedelta(days=days)}Z") for days in (-1, 1))
        for (text, matches), dst in itertools.product(BY_MINUTE.items(), POLICIES):
            expected = {at: mark for at, mark in instants(times, matches, dst).items() if after < at <= until}
            check(Calendar(parse(text), zone, dst), expected, after, until)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.slow
def test_every_second_around_a_change_follows_the_table(zone: str) -> None:
    for day in CHANGES[zone]:
        three = datetime.fromisoformat(day) + timedelta(hours=2)
        times = local_times(zones.load(zone), three - timedelta(hours=2), three + timedelta(hours=2), SECOND)
        middle = times[len(times) // 2].first_ms
        after, until = middle - 2_000_000, middle + 2_000_000
        for (text, matches), dst in itertools.product(BY_SECOND.items(), POLICIES):
            expected = {at: mark for at, mark in instants(times, matches, dst).items() if after < at <= until}
            check(Calendar(parse(text, seconds=True), zone, dst), expected, after, until)


def _examples() -> list[list[str]]:
    guide = (ROOT / "docs" / "guides" / "schedules.md").read_text()
    table = guide.partition("| schedule | zone |")[2].partition("\n\n")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("example", _examples(), ids=lambda example: " ".join(example[:4]))
def test_the_examples_of_the_guide(example: list[str]) -> None:
    text, zone, dst, after, expected, mark = example
    calendar = Calendar(parse(text), zone, msgspec.json.decode(dst, type=Dst))
    at = calendar.next(ms(after))
    assert at is not None
    assert calendar.local(at).isoformat(timespec="minutes") == expected
    assert calendar.mark(at) == mark


def test_the_guide_has_examples() -> None:
    assert len(_examples()) >= 12


def test_a_quarterly_schedule_pauses_while_an_hour_is_repeated_unless_both_are_wanted() -> None:
    after, until = ms("2026-10-24T23:45Z"), ms("2026-10-25T02:00Z")
    text = "*/15 * * * *"
    # Between 02:45 summer time and 03:00 winter time there are 75 minutes.
    once = Calendar(parse(text), "Europe/Berlin", Dst()).between(after, until, limit=100)
    assert max(high - low for low, high in itertools.pairwise(once)) == 75 * 60_000
    for calendar in (
        Calendar(parse(text), "Europe/Berlin", Dst(on_overlap="both")),
        Calendar(parse("@every 15m"), "Europe/Berlin", Dst()),
    ):
        assert calendar.between(after, until, limit=100) == list(range(after + 900_000, until + 1, 900_000))


def test_no_zone_has_changed_its_clocks_twice_within_six_days() -> None:
    closest, widest = min(map(_closest, zones.names())), max(map(_widest, zones.names()))
    assert closest > 6 * 86_400
    assert widest <= 86_400


def _closest(name: str) -> int:
    return min((high - low for (low, _), (high, _) in itertools.pairwise(_changes(name))), default=2**62)


def _widest(name: str) -> int:
    return max((abs(moved) for _, moved in _changes(name)), default=0)


def _changes(name: str) -> list[tuple[int, int]]:
    """When and by how much the offset changes since 1970, straight from the file (RFC 8536, version 2 or later).

    Files end where a rule begins that holds ever after, with two changes a year at most.
    """
    data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    counts = struct.unpack(">6l", data[20:44])
    at = 44 + counts[3] * 5 + counts[4] * 6 + counts[5] + counts[2] * 8 + counts[1] + counts[0]
    _, _, _, size, kinds, _ = struct.unpack(">6l", data[at + 20 : at + 44])
    seconds = struct.unpack_from(f">{size}q", data, at + 44)
    indexes = data[at + 44 + size * 8 : at + 44 + size * 9]
    offsets = [struct.unpack_from(">l", data, at + 44 + size * 9 + kind * 6)[0] for kind in range(kinds)]
    steps = zip(seconds, [offsets[0], *(offsets[index] for index in indexes)], indexes, strict=False)
    return [
        (second, offsets[index] - before) for second, before, index in steps if second > 0 and offsets[index] != before
    ]


@pytest.mark.parametrize("zone", CHANGES)
def test_pieces_are_the_changes_of_the_zone(zone: str) -> None:
    end = ms("2100-01-01T00:00Z") // 1000
    changes = [change for change in _changes(zone) if change[0] < end]
    found, at = [], 0
    while at < end:
        piece = zones.piece_at(zones.load(zone), at)
        assert piece.start == at < piece.end - 86_400  # so no gap and no overlap reaches over a piece
        if at > 0 and piece.offset != piece.offset_before:
            found.append((at, piece.offset - piece.offset_before))
        at = piece.end
    assert found[: len(changes)] == changes


TEXTS = st.sampled_from(
    [
        *(
            "* * * * *",
            "*/7 * * * *",
            "30 2 * * *",
            "1-59/13 2-5 * 3,10 *",
            "0 0 29 2 *",
            "0 0 31 */2 *",
            "0 12 1 * mon",
        ),
        *("0 0 L * *", "15 10 15W * *", "0 8 LW * friL", "0 3 * * sun#2", "59 23 28-31 * ?", "H H(0-5) * * *"),
        *("@weekly", "@every 90s", "@every 7d"),
    ]
)
ZONES = st.sampled_from([*CHANGES, "UTC", "America/Los_Angeles", "Asia/Kathmandu"])
INSTANTS = st.integers(0, ms("2120-01-01T00:00Z"))


@settings(max_examples=300, deadline=None)
@given(TEXTS, ZONES, st.sampled_from(POLICIES), INSTANTS)
def test_next_and_previous_are_each_others_inverse(text: str, zone: str, dst: Dst, at: int) -> None:
    calendar = Calendar(parse(text, job="j"), zone, dst)
    following = calendar.next(at)
    assert following is not None
    assert following > at
    assert calendar.next(following - 1) == following
    before = calendar.previous(following)
    assert before is None or before <= at
    if before is not None:
        assert calendar.next(before) == following
    assert calendar.count(at, following) == 1
    assert calendar.count(at, following - 1) == 0


@settings(max_examples=100, deadline=None)
@given(TEXTS, ZONES, st.sampled_from(POLICIES), INSTANTS, st.integers(0, 40 * 86_400_000))
def test_a_range_is_listed_in_order_and_counted_without_listing(
    text: str, zone: str, dst: Dst, after: int, length: int
) -> None:
    calendar = Calendar(parse(text, job="j"), zone, dst)
    until = after + min(length, 3 * 86_400_000 if text == "* * * * *" else length)
    found = calendar.between(after, until, limit=10_000)
    assert found == sorted(set(found))
    assert all(after < at <= until for at in found)
    if len(found) < 10_000:
        assert calendar.count(after, until) == len(found)


@given(
    schedule=st.sampled_from(["* * * * *", "*/15 * * * *", "5,35 1,2,3 * * *", "0 9 * * fri"]),
    steps=st.lists(st.tuples(st.booleans(), st.integers(-3 * 86_400_000, 3 * 86_400_000)), max_size=40),
)
def test_what_a_calendar_was_asked_before_does_not_change_its_answers(
    schedule: str, steps: list[tuple[bool, int]]
) -> None:
    def calendar() -> Calendar:
        return Calendar(parse(schedule, job="", seconds=False), "Europe/Berlin", Dst())

    asked = calendar()
    change = round(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp() * 1000)
    at = change
    for goes_on, offset in steps:
        after = at if goes_on else change + offset
        found = asked.next(after)
        assert found == calendar().next(after)
        assert found is not None
        at = found


def test_an_instant_that_many_jobs_ask_for_is_looked_for_once() -> None:
    looks = 0

    class Counted(Cron):
        def first(self, local: int) -> int | None:
            nonlocal looks
            looks += 1
            return super().first(local)

    cron = parse("* * * * *", job="", seconds=False)
    assert isinstance(cron, Cron)
    calendar = Calendar(Counted(cron.seconds, cron.minutes, cron.hours, cron.days, cron.months), "UTC", Dst())
    for _ in range(100):
        for second in range(0, 60_000, 1_000):
            assert calendar.between(second, 10**9, limit=5) == [60_000 * minute for minute in range(1, 6)]
    assert looks < 10


def test_at_both_ends_of_time_there_is_nothing_more() -> None:
    calendar = Calendar(parse("0 0 1 1 *"), "Pacific/Kiritimati", Dst())
    assert calendar.previous(0) is None
    assert calendar.next(-(10**15)) == calendar.next(-1)
    assert calendar.next(ms("9999-12-29T00:00Z")) is None
    assert calendar.next(10**18) is None
    assert calendar.previous(10**18) == ms("9999-01-01T00:00+14:00")
    assert calendar.count(ms("9990-06-01T00:00Z"), 10**18) == 9


def test_a_job_is_due_when_an_instant_has_come_since_its_last_run() -> None:
    calendar = Calendar(parse("0 9 * * *"), "UTC", Dst())
    nine = ms("2026-05-05T09:00Z")
    assert not is_due(calendar, ms("2026-05-04T09:00Z"), nine - 1)
    assert is_due(calendar, ms("2026-05-04T09:00Z"), nine)
    assert not is_due(calendar, nine, nine + 1)


def test_the_spread_of_an_instant_is_stable_and_within_the_jitter() -> None:
    spreads = [spread_ms(f"job-{number}", 1_000_000, 60) for number in range(1000)]
    assert spreads == [spread_ms(f"job-{number}", 1_000_000, 60) for number in range(1000)]
    assert 0 <= min(spreads) < 1000
    assert 59_000 < max(spreads) <= 60_000
    assert spread_ms("job", 1_000_000, 0) == 0
    # Another version must not move what this one has planned.
    assert [spread_ms("daily-report", instant, 60) for instant in (0, 86_400_000)] == [28304, 52529]


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("Europe/Berln", r"did you mean Europe/Berlin.*\?"),
        ("europe/berlin", r"did you mean Europe/Berlin\?"),
        ("Berlin", r"did you mean Europe/Berlin\?"),
        ("US/Chicago", r"did you mean America/Chicago\?"),
        ("new york", r"did you mean America/New_York\?"),
        ("PST", r"did you mean America/Los_Angeles\?"),
        ("GMT+2", r"did you mean Etc/GMT-2\?"),
        ("+05:30", "got"),
        ("UTC+0", r"did you mean UTC\?"),
        ("../../etc/passwd", "got"),
        ("", "got"),
        ("Mars/Olympus_Mons" * 1000, "got"),
    ],
)
def test_an_unknown_zone_is_refused_and_another_proposed(name: str, similar: str) -> None:
    with pytest.raises(InvalidInput, match=f"^Expected an IANA time zone.*{similar}") as refused:
        Calendar(parse("@daily"), name, Dst())
    assert len(refused.value.detail) < 300


def test_policies_are_read_strictly_from_camel_case() -> None:
    assert msgspec.json.decode(b'{"onGap": "skip"}', type=Dst) == Dst(on_gap="skip", on_overlap="first")
    for wrong in (b'{"on_gap": "skip"}', b'{"onOverlap": "none"}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(wrong, type=Dst)
