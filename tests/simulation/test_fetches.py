"""Fetches in simulated histories: seeds keep their promises, and planted defects are found by their rules."""

from __future__ import annotations

import pytest

from mainspring.testing.simulation.search import look
from tests.simulation.planted_fetches import PLANTED
from tests.simulation.planting import found_at

FOUND = {
    "executor.take: ignores the mark": 148,
    "ledger.settle: overwrites": 13,
    "carrier.carry: drops an untaken result": 1,
    "record.settled: expires while it is offered": 0,
    "ledger.add: a crash leaves no row": 165,
    "ledger._give_row: ignores STALE": 0,
}
"""The first seed that finds each."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    assert found_at(PLANTED[name], [FOUND[name]], "fetches") is not None


@pytest.mark.parametrize("seed", sorted({*range(12), *FOUND.values()}))
def test_fetches_keep_their_promises(seed: int) -> None:
    assert look(seed, "fetches").violations == []


def test_a_seed_of_fetches_has_one_history() -> None:
    assert look(3, "fetches").digest == look(3, "fetches").digest
