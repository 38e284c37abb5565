"""The search is searched: what is planted is found, by the rule that is meant to find it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.testing.oracle.judge import RULES
from mainspring.testing.simulation.simulate import simulate
from mainspring.testing.simulation.swarm import draw_plan
from tests.testing.simulation.planted import PLANTED
from tests.testing.simulation.planted_defect import found_at, is_clean

FOUND = {
    "service.first_version: versions begin again": 29,
    "carrier.conclude: ignores the delivery": 0,
    "service.delete: acknowledges stale": 0,
    "service._change: acknowledges stale": 5,
    "record.schedule: keeps the delivery": 0,
    "decision.lost: repeats at-most-once": 84,
    "ownership.claim: takes from the living": 956,
    "plan._begin: no fence": 38,
    "plan._finish: no fence": 19,
    "plan._claim: any version": 4,
    "dispatcher: ignores the lease": 146,
    "ownership.renew: counts from after the write": 256,
    "lanes.free_slots: ignores the limit": 0,
    "lanes._make_room: forgets none": 8,
    "unsent.has_room: always": 1,
    "unsent.has_room: the oldest give way": 1,
    "slots.free: nothing is kept": 333,
    "fenced.begin: a shard fails the batch": 514,
    "window.leave: a lane in neither list": 75,
    "window.passed: drops what a step back left": 512,
    "ownership.check: forgets doubt": 164,
    "agenda.note: the position stays": 77,
    "agenda.advance: passes what was noted": 77,
    "dispatcher._recheck: forgets the next row": 122,
    "lanes.record: allows none": 18,
}
"""The first seed that finds each; `python -m tests.testing.simulation.planted` looks for it."""


def test_every_planted_defect_names_a_rule_and_is_found() -> None:
    assert {planted.rule for planted in PLANTED.values()} <= set(RULES)
    assert FOUND.keys() == PLANTED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    assert is_clean(FOUND[name])
    assert found_at(PLANTED[name], [FOUND[name]]) == FOUND[name]


def test_versions_that_begin_again_are_found_in_sqlite_too() -> None:
    """Where rows that are only created go past the plan that decides about all others."""
    name = "service.first_version: versions begin again"
    plan = draw_plan(FOUND[name])
    plan = replace(plan, world=replace(plan.world, sqlite=True))
    assert not simulate(plan).violations
    with PLANTED[name].in_place():
        assert PLANTED[name].rule in {violation.rule for violation in simulate(plan).violations}
