"""The search among jobs: kept histories hold, and each planted defect is found by its rule."""

from __future__ import annotations

import pytest

from mainspring.testing.simulation.search import look
from tests.testing.simulation.planted_defect import found_at, is_clean
from tests.testing.simulation.planted_jobs import PLANTED
from tests.testing.simulation.searches import expect_no_finding

SEEDS = sorted({*range(28)} - {14, 15, 21, 22})
"""Without those of the largest worlds."""
KEPT = {
    24: "a job that another program made is changed before its clock has looked",
    30: "a create is cut short, and another program writes the job before there is a clock",
    402: "a calendar is changed while runs of the old one are planned ahead",
    91_002_073: "a job is paused while a run waits because of which a later one was skipped",
}

FOUND = {
    "overlap.step: catch-up skips what is on time": 86,
    "row_store.add_runs: swallows a row that failed": 108,
    "ledger._enter: overwrites": 1,
    "clock_state._adopted: keeps a dead job's state": 1,
    "registry.put_last_run: writes what was not run": 1,
}
"""The first seed that finds each; `python -m tests.testing.simulation.planted_jobs` looks for it."""


@pytest.mark.slow
def test_every_instant_is_accounted_for_in_two_dozen_histories() -> None:
    expect_no_finding(SEEDS, "jobs")


@pytest.mark.parametrize("seed", KEPT)
def test_a_history_that_once_failed_holds(seed: int) -> None:
    assert look(seed, "jobs").violations == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    seed = FOUND[name]
    assert is_clean(seed, "jobs")
    assert found_at(PLANTED[name], [seed], "jobs") == seed
