"""The search is searched: what is planted is found, by the rule that is meant to find it."""

from __future__ import annotations

import pytest

from mainspring.testing.oracle.judge import RULES
from tests.simulation.planted import PLANTED, found_at

FOUND = {
    "plan: versions begin again": 39,
    "carrier.conclude: ignores the delivery": 0,
    "service.delete: acknowledges stale": 0,
    "service._change: acknowledges stale": 0,
    "changes.schedule: keeps the delivery": 0,
    "decision.lost: repeats at-most-once": 1,
    "ownership.claim: takes from the living": 90,
    "plan._begin: no fence": 71,
    "plan._finish: no fence": 19,
    "plan._claim: any version": 4,
    "dispatcher: ignores the lease": 146,
    "ownership.renew: counts from after the write": 12,
    "lanes.free_slots: ignores the limit": 0,
    "window.leave: a lane in neither list": 75,
    "ownership.check: forgets doubt": 15,
    "lanes.record: allows none": 18,
}
"""The first seed that finds each; `python -m tests.simulation.planted` looks for it."""
NOT_FOUND = {
    "agenda.note: the position stays": "the sweep finds the row at the next look; only a lone instance does not look",
    "agenda.advance: passes what was noted": "as above",
    "lanes.part_of: no last quarter": "T7 is only asked of worlds whose limits leave room for every bad destination",
    "fenced.begin: a shard fails the batch": "what may have been begun and was not sent is sent later, and not unknown",
}
"""Planted, and not found: each says why."""


def test_every_planted_defect_names_a_rule_and_is_found_or_says_why_not() -> None:
    assert {planted.rule for planted in PLANTED.values()} <= set(RULES)
    assert FOUND.keys() | NOT_FOUND.keys() == PLANTED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    assert found_at(name, [FOUND[name]]) == FOUND[name]
