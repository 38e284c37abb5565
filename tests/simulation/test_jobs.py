"""The search among jobs: kept histories hold, and each planted defect is found by its rule."""

from __future__ import annotations

import pytest

from mainspring.testing.simulation.search import look
from tests.simulation.planted_jobs import PLANTED

KEPT = {
    24: "a job that another program made is changed before its clock has looked",
    30: "a create is cut short, and another program writes the job before there is a clock",
    402: "a calendar is changed while launches of the old one are planned ahead",
    136: "a job is deleted while its clock has put on record what has no row",
}


@pytest.mark.parametrize("seed", KEPT)
def test_a_history_that_once_failed_holds(seed: int) -> None:
    assert look(seed, "jobs").violations == []


@pytest.mark.parametrize("name", [name for name, planted in PLANTED.items() if planted.seed is not None])
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    planted = PLANTED[name]
    assert planted.seed is not None
    assert not look(planted.seed, "jobs").violations
    with planted.patch:
        found = look(planted.seed, "jobs").violations
    assert planted.rule in {violation.rule for violation in found}
