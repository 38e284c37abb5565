"""What a request makes of a timer, and where in the due order the timers of a filter are."""

from __future__ import annotations

from itertools import combinations

import pytest

from mainspring.model import FOREVER, State, Timer
from mainspring.store import END, START, TimerFilter
from mainspring.testing.timer_samples import NOW, timer
from mainspring.timers.record import CLOCK_STEP_MS, narrowed, parked

ROWS = [
    timer("scheduled", due_at=NOW + 9 * CLOCK_STEP_MS),
    timer("due", due_at=NOW),
    timer("retrying", due_at=NOW + 9 * CLOCK_STEP_MS, state=State.RETRYING),
    timer("running", due_at=NOW - 5, state=State.RUNNING),
    timer("begun before the clock was set back", due_at=NOW + CLOCK_STEP_MS - 1, state=State.RUNNING),
    timer("parked", due_at=FOREVER, state=State.PARKED),
]
SETS = [states for size in range(5) for states in combinations(State, size)]


def in_part(where: TimerFilter, row: Timer) -> bool:
    after, end = where.part_after(START)
    return after < (row.due_at, row.uuid) <= end


@pytest.mark.parametrize("states", SETS)
def test_a_narrowed_filter_matches_the_same_timers(states: tuple[State, ...]) -> None:
    for due_from, due_to in ((None, None), (NOW, None), (None, NOW + 1), (NOW - 9, FOREVER + 1)):
        where = TimerFilter(states=states, due_from=due_from, due_to=due_to)
        narrow = narrowed(where, now=NOW)
        assert [row for row in ROWS if narrow.matches(row)] == [row for row in ROWS if where.matches(row)]
        assert all(in_part(narrow, row) for row in ROWS if where.matches(row))


def test_parked_timers_are_looked_for_where_no_others_are() -> None:
    narrow = narrowed(TimerFilter(states=(State.PARKED,)), now=NOW)
    assert [row.timer_id for row in ROWS if in_part(narrow, row)] == ["parked"]


def test_running_timers_are_looked_for_among_those_that_were_due() -> None:
    narrow = narrowed(TimerFilter(states=(State.RUNNING,)), now=NOW)
    assert not in_part(narrow, ROWS[0])
    assert not in_part(narrow, ROWS[-1])


def test_a_filter_without_states_stays_as_it_is() -> None:
    where = TimerFilter(id_prefix="a", due_to=NOW)
    assert narrowed(where, now=NOW) == where


def test_a_parked_timer_is_where_parked_ones_are_looked_for() -> None:
    for row in ROWS[:-1]:
        after = parked(row, now=NOW)
        assert after is not None
        assert after.due_at == FOREVER < END.due_at
