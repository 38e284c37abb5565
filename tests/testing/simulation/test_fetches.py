"""Fetches in simulated histories: seeds keep their promises, and planted defects are found by their rules."""

from __future__ import annotations

import pytest

from mainspring.testing.simulation.search import look
from tests.support.expired_req_ids import expect_fetches_of_expired_req_ids
from tests.testing.simulation.planted_defect import found_at, is_clean
from tests.testing.simulation.planted_fetches import PLANTED, STALE_ROW
from tests.testing.simulation.searches import expect_no_finding

SEEDS = sorted({*range(51), *(53, 58, 61, 84, 150, 183), *(165, 300)} - {1, 12, 14, 15, 16, 21, 22, 30, 31, 35, 36, 44})
"""Without those of the largest worlds; some beyond are crash points, and some find what is planted."""

FOUND = {
    "executor.take: ignores the mark": 300,
    "registry.end: overwrites": 19,
    "carrier.carry: drops an untaken result": 1,
    "record.ended: expires while it is offered": 1,
    "registry.add: a crash leaves no row": 165,
    "service.other_request: finds none": 1,
    "places._room: hosts share nothing": 9,
}
"""The first seed that finds each."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    assert is_clean(FOUND[name], "fetches")
    assert found_at(PLANTED[name], [FOUND[name]], "fetches") is not None


@pytest.mark.slow
def test_a_row_that_is_left_because_another_is_there_is_found_by_the_test_of_it() -> None:
    with STALE_ROW.in_place(), pytest.raises((AssertionError, ExceptionGroup)):
        expect_fetches_of_expired_req_ids()


@pytest.mark.slow
def test_a_call_is_made_once_and_its_result_is_brought_in_forty_histories() -> None:
    expect_no_finding(SEEDS, "fetches")


def test_a_seed_of_fetches_has_one_history() -> None:
    assert look(3, "fetches").digest == look(3, "fetches").digest
