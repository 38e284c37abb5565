"""Programs with idempotent work and locks, from seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring.testing.simulation.plan import read_plan
from mainspring.testing.simulation.search import look
from mainspring.testing.simulation.simulate import simulate
from tests.testing.simulation.planted_defect import found_at, is_clean
from tests.testing.simulation.planted_keys import PLANTED
from tests.testing.simulation.searches import expect_no_finding

SEEDS = (3, 23, 57)
IN_THE_SUITE = 200
CASES = Path(__file__).parent / "cases"
_DIGESTS = """
import sys
from mainspring.testing.simulation.search import look
print(*(look(int(seed), "idempotency").digest for seed in sys.argv[1:]))
"""


def test_a_seed_has_one_history_in_any_process() -> None:
    here = [look(seed, "idempotency").digest for seed in SEEDS]
    assert len(set(here)) == len(SEEDS)
    told = subprocess.run(
        [sys.executable, "-c", _DIGESTS, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert told.stdout.split() == here


@pytest.mark.slow
def test_work_is_done_once_and_locks_have_one_holder_in_two_hundred_histories() -> None:
    expect_no_finding(range(IN_THE_SUITE), "idempotency")


FOUND_AT = {
    "uncertain.add: forgets tokens": 21,
    "uncertain._withdraw: never looks again": 57,
    "core._failed: frees when cancelled": 2,
    "holder.is_held: takes anybody's claim": 7,
    "locks._is_free: half the lease": 61,
    "locks._take: a late answer is a lock": 830,
    "locks.put_record: proves nothing": 1,
}
"""The first seeds that find what is planted, as `python -m tests.testing.simulation.planted_keys` tells them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_by_its_rule(name: str) -> None:
    first = FOUND_AT[name]
    assert is_clean(first, "idempotency")
    assert found_at(PLANTED[name], range(max(0, first - 2), first + 1), "idempotency") == first


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("a claim comes late into the place of one that was removed", "uncertain._withdraw: never looks again"),
        ("a lock is taken with a lease that has ended", "locks._take: a late answer is a lock"),
    ],
)
def test_a_kept_history_still_finds_the_defect_that_it_was_kept_for(case: str, name: str) -> None:
    with PLANTED[name].in_place():
        broken = simulate(read_plan(CASES / f"{case}.json")).violations
    assert {violation.rule for violation in broken} == {PLANTED[name].rule}
