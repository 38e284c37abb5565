"""A cart that is killed at any step orders once: every step with both providers, every fault, look-up and successor.

All combinations: `python -m tests.cart.kill_matrix`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.cart.kill_matrix import FAULTS, Case, covering, side_by_side
from tests.cart.processes import ROOT, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Case, Future[None]]]:
    with side_by_side(covering(), tmp_path_factory.mktemp("kill-matrix")) as trials:
        yield trials


@pytest.mark.parametrize("case", covering(), ids=str)
def test_a_cart_that_is_killed_orders_once(case: Case, trials: dict[Case, Future[None]]) -> None:
    trials[case].result()


def test_every_fault_look_up_and_successor_is_tried() -> None:
    cases = covering()
    assert {case.fault for case in cases} == set(FAULTS)
    for provider in ("salesforce", "shopify"):
        tried = {(case.is_strong, case.is_restart) for case in cases if case.provider == provider}
        assert len(tried) == 4


def test_a_name_that_no_case_has_is_refused() -> None:
    command = [sys.executable, "-m", "tests.cart.kill_matrix", "nosuchcase"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "nosuchcase" in done.stderr) == (2, True)
