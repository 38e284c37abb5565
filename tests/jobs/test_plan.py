"""Every instant is run or skipped, exactly once, whatever outages there were."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.jobs.calendar.calendar import Calendar, Dst
from mainspring.jobs.calendar.cron import parse
from mainspring.jobs.messages import Catchup
from mainspring.jobs.plan import MISSED_AFTER_MS, RUN_LIMIT, Plan, Planned, Skipped, plan

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOON = 20_000 * DAY + 12 * HOUR


@dataclass(frozen=True)
class Case:
    """An hourly job that was last looked at half an hour after noon."""

    text: str = "0 * * * *"
    accounted_until: int = NOON + 30 * MINUTE
    now: int = NOON
    ahead_ms: int = 0
    catchup: Catchup = "latest"
    window_ms: int = HOUR
    start_at: int | None = None
    end_at: int | None = None
    runs_left: int | None = None

    def plan(self) -> Plan:
        return plan(
            Calendar(parse(self.text, seconds=self.text.count(" ") == 5), "UTC", Dst()),
            accounted_until=self.accounted_until,
            now=self.now,
            ahead_ms=self.ahead_ms,
            catchup=self.catchup,
            window_ms=self.window_ms,
            start_at=self.start_at,
            end_at=self.end_at,
            runs_left=self.runs_left,
        )


def at(hour: int) -> int:
    return NOON + hour * HOUR


def test_an_instant_that_has_just_come_is_run() -> None:
    found = Case(now=at(1) + MISSED_AFTER_MS, catchup="none").plan()
    assert found == Plan((Planned(at(1), is_late=False),), (), at(1) + MISSED_AFTER_MS, at(2))


def test_an_instant_ahead_is_run_when_it_is_near_enough() -> None:
    assert Case(now=at(1) - 1000).plan() == Plan((), (), at(1) - 1000, at(1))
    assert Case(now=at(1) - 1000, ahead_ms=1000).plan() == Plan((Planned(at(1), is_late=False),), (), at(1), at(2))


def test_without_catchup_what_was_missed_is_skipped() -> None:
    found = Case(now=at(3) + MINUTE, catchup="none").plan()
    assert found == Plan((), (Skipped(at(1), at(3), 3, "missed"),), at(3) + MINUTE, at(4))


def test_the_latest_that_was_missed_is_run_late() -> None:
    found = Case(now=at(3) + MINUTE, window_ms=DAY).plan()
    assert found.runs == (Planned(at(3), is_late=True),)
    assert found.skipped == (Skipped(at(1), at(2), 2, "superseded"),)


def test_the_latest_may_be_one_that_is_on_time() -> None:
    found = Case(now=at(3), window_ms=DAY).plan()
    assert found.runs == (Planned(at(3), is_late=False),)
    assert found.skipped == (Skipped(at(1), at(2), 2, "superseded"),)


def test_an_instant_of_the_future_does_not_supersede() -> None:
    found = Case(now=at(3) - MINUTE, ahead_ms=MINUTE, window_ms=DAY).plan()
    assert found.runs == (Planned(at(2), is_late=True), Planned(at(3), is_late=False))
    assert found.skipped == (Skipped(at(1), at(1), 1, "superseded"),)


@pytest.mark.parametrize("catchup", ["latest", "all"])
def test_the_window_begins_with_the_instant_at_its_edge(catchup: Catchup) -> None:
    case = Case(now=at(1) + 30 * MINUTE, catchup=catchup, window_ms=30 * MINUTE)
    assert case.plan().runs == (Planned(at(1), is_late=True),)
    assert replace(case, window_ms=30 * MINUTE - 1).plan().runs == ()


@pytest.mark.parametrize("catchup", ["latest", "all"])
def test_what_is_older_than_the_window_is_skipped(catchup: Catchup) -> None:
    found = Case(now=at(5) + 30 * MINUTE, catchup=catchup, window_ms=HOUR).plan()
    assert found.runs == (Planned(at(5), is_late=True),)
    assert found.skipped == (Skipped(at(1), at(4), 4, "outside-window"),)
    nothing = Case(now=at(5) + 30 * MINUTE, catchup=catchup, window_ms=0).plan()
    assert nothing.runs == ()
    assert nothing.skipped == (Skipped(at(1), at(5), 5, "outside-window"),)


def test_all_that_was_missed_is_run_in_order() -> None:
    found = Case(now=at(3), catchup="all", window_ms=DAY).plan()
    assert found.runs == (Planned(at(1), is_late=True), Planned(at(2), is_late=True), Planned(at(3), is_late=False))
    assert found.skipped == ()


def test_more_than_a_plan_runs_is_left_to_the_next_one() -> None:
    case = Case(text="* * * * *", accounted_until=NOON, now=NOON + DAY, catchup="all", window_ms=DAY)
    first = case.plan()
    assert [run.instant for run in first.runs] == list(range(NOON + MINUTE, NOON + (RUN_LIMIT + 1) * MINUTE, MINUTE))
    assert first.accounted_until == first.runs[-1].instant
    assert first.next == first.accounted_until + MINUTE
    second = replace(case, accounted_until=first.accounted_until).plan()
    assert second.runs[0].instant == first.next
    assert len(second.runs) == 440
    assert second.accounted_until == NOON + DAY


def test_instants_before_the_start_and_after_the_end_are_not_the_jobs() -> None:
    found = Case(now=at(9), catchup="all", window_ms=DAY, start_at=at(3), end_at=at(5)).plan()
    assert [run.instant for run in found.runs] == [at(3), at(4), at(5)]
    assert (found.skipped, found.accounted_until, found.next) == ((), at(9), None)
    early = Case(now=at(1), start_at=at(3) + 1, end_at=at(5)).plan()
    assert early == Plan((), (), at(1), at(4))
    assert Case(now=at(1), start_at=at(3) + 1, end_at=at(4) - 1).plan().next is None


def test_after_the_last_run_there_is_no_next() -> None:
    case = Case(now=at(3), catchup="all", window_ms=DAY, runs_left=2)
    assert case.plan() == Plan((Planned(at(1), is_late=True), Planned(at(2), is_late=True)), (), at(2), None)
    assert replace(case, runs_left=0).plan() == Plan((), (), case.accounted_until, None)
    assert replace(case, runs_left=4).plan().next == at(4)


def test_a_clock_that_goes_back_takes_nothing_back() -> None:
    found = Case(accounted_until=at(3), now=at(1)).plan()
    assert found == Plan((), (), at(3), at(4))


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
def test_years_of_a_job_of_every_second_are_accounted_for_at_once(catchup: Catchup) -> None:
    years = 20 * 365 * DAY
    case = Case(text="* * * * * *", accounted_until=NOON, now=NOON + years, catchup=catchup, window_ms=HOUR)
    started = time.perf_counter()
    found = case.plan()
    assert time.perf_counter() - started < 2
    launched = len(found.runs)
    assert launched <= RUN_LIMIT
    assert sum(each.count for each in found.skipped) + launched == (found.accounted_until - NOON) // 1000


@settings(max_examples=150, deadline=None)
@given(
    text=st.sampled_from(["* * * * *", "*/15 * * * *", "30 2 * * *", "0 0,2,3 * * *", "@every 40s", "7 * * * mon"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    dst=st.builds(Dst, st.sampled_from(["skip", "shift"]), st.sampled_from(["first", "last", "both"])),
    start=st.sampled_from([1_774_700_000_000, 1_792_800_000_000, 1_775_300_000_000]),  # near changes of clocks
    steps=st.lists(
        st.tuples(
            st.one_of(st.integers(-HOUR, 30_000), st.integers(0, 2 * DAY)),
            st.sampled_from(["none", "latest", "all"]),
            st.sampled_from([0, 10_000, HOUR, DAY]),
            st.sampled_from([0, 1000, 90_000]),
        ),
        max_size=12,
    ),
)
@pytest.mark.slow
def test_plans_in_a_row_account_for_every_instant_exactly_once(
    text: str, zone: str, dst: Dst, start: int, steps: list[tuple[int, Catchup, int, int]]
) -> None:
    calendar = Calendar(parse(text), zone, dst)
    accounted, now = start, start
    seen: list[int] = []
    for pause, catchup, window_ms, ahead_ms in steps:
        now += pause
        found = plan(
            calendar,
            accounted_until=accounted,
            now=now,
            ahead_ms=ahead_ms,
            catchup=catchup,
            window_ms=window_ms,
            start_at=None,
            end_at=None,
            runs_left=None,
        )
        assert found.accounted_until >= accounted
        assert found.next == calendar.next(found.accounted_until)
        for run in found.runs:
            assert run.is_late == (now - run.instant > MISSED_AFTER_MS)
            assert not run.is_late or (catchup != "none" and now - run.instant <= window_ms)
        if catchup == "latest":
            assert sum(run.is_late for run in found.runs) <= 1
        for each in found.skipped:
            covered = calendar.between(each.first - 1, each.last, limit=100_000)
            assert (covered[0], covered[-1], len(covered)) == (each.first, each.last, each.count)
            seen += covered
        seen += [run.instant for run in found.runs]
        accounted = found.accounted_until
    assert sorted(seen) == calendar.between(start, accounted, limit=100_000)
    assert all(low < high for low, high in pairwise(sorted(seen)))
