"""The search is searched: what is planted is found, by the rule that is meant to find it."""

from __future__ import annotations

import pytest

from mainspring.testing.oracle.judge import RULES
from tests.simulation.planted import MOST, PLANTED, found_at

QUICK = ("carrier.conclude: ignores the delivery", "plan._begin: no fence", "lanes.free_slots: ignores the limit")
NOT_YET = {
    "agenda.note: the position stays": "the sweep finds the row at the next look; only a lone instance does not look",
    "agenda.advance: passes what was noted": "as above",
    "lanes.part_of: no last quarter": "T7 is only asked of worlds whose limits leave room for every bad destination",
}
"""Planted, and not found: each says why."""


def test_every_planted_defect_names_a_rule() -> None:
    assert {planted.rule for planted in PLANTED.values()} <= set(RULES)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_defect_is_found_within_a_few_seeds(name: str) -> None:
    assert found_at(name, range(30)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PLANTED if name not in NOT_YET])
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    assert found_at(name, range(MOST)) is not None
