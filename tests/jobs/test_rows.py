"""What the rows of clocks and runs say: pure functions of what they stand for."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mainspring.jobs.clock_state import first_state
from mainspring.jobs.ledger import launch_id, planned, stamp_of
from mainspring.jobs.record import Definition, Job, calendar_of
from mainspring.jobs.rows import CLOCKS, RUNS, Errand, clock_row, hastened, read_state, run_row
from mainspring.model import Namespace, Timer

NOW: Final = 1_700_000_000_000
MINUTE: Final = 60_000
DEFINITION: Final = Definition(schedule="* * * * *", created_at=NOW)
CALENDAR: Final = calendar_of("job", DEFINITION.terms)
JOB: Final = Job(
    name="job",
    version=1,
    seal="",
    definition=DEFINITION,
    calendar=CALENDAR,
    url="http://t/",
    terms=DEFINITION.terms,
    policy=DEFINITION.policy,
)


def namespace(name: str) -> Namespace:
    return Namespace(name=name, first_shard=0, shard_count=16, created_at=NOW, updated_at=NOW, secrets=())


def a_run_row(instant: int, *upcoming: int) -> Timer:
    run = planned(JOB, instant, "scheduled", previous="", now=NOW, delivery_id="msg_1")
    identity = launch_id("job", stamp_of(instant))
    return run_row(identity, JOB, run, namespace(RUNS), upcoming=upcoming, body=UNSET, now=NOW)


def test_a_clock_knows_what_it_was_told_and_is_due_now() -> None:
    state = first_state(DEFINITION)
    row = clock_row("job", state, namespace(CLOCKS), delivery_id="msg_1", now=NOW)
    assert (row.due_at, read_state(row)) == (NOW, state)


def test_a_run_is_told_the_instants_that_follow_on_its_own() -> None:
    instants = [NOW + minute * MINUTE for minute in range(10)]
    errand = msgspec.json.decode(a_run_row(NOW + 2 * MINUTE, *instants).payload or "", type=Errand)
    assert errand.next_at == tuple(instants[3:8])


def test_a_run_whose_instant_is_past_is_due_now_and_keeps_its_instant() -> None:
    row = a_run_row(NOW - MINUTE)
    assert (row.due_at, row.detail.execute_at) == (NOW, NOW - MINUTE)


def test_a_row_that_is_to_come_is_hastened_and_one_that_has_begun_keeps_its_instant() -> None:
    row = a_run_row(NOW + MINUTE)
    for attempts, execute_at in ((0, NOW), (1, NOW + MINUTE)):
        soon = hastened(replace(row, attempts=attempts), NOW)
        assert (soon.due_at, soon.detail.execute_at) == (NOW, execute_at)


def test_a_row_that_is_due_is_not_put_off_by_being_hastened() -> None:
    row = replace(a_run_row(NOW), due_at=NOW - MINUTE)
    assert hastened(row, NOW) == row
