"""A cart that is killed at any step orders once: every step with both providers, every fault, look-up and successor.

All combinations: `python -m tests.cart.kill_matrix`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cart.kill_matrix import FAULTS, Case, covering, simulator, try_case

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def platforms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("platforms")
    with ExitStack() as stack:
        yield {name: stack.enter_context(simulator(name, folder)) for name in ("salesforce", "shopify")}


@pytest.mark.parametrize("case", covering(), ids=str)
def test_a_cart_that_is_killed_orders_once(case: Case, platforms: dict[str, str], tmp_path: Path) -> None:
    try_case(case, platforms[case.provider], tmp_path)


def test_every_fault_look_up_and_successor_is_tried() -> None:
    cases = covering()
    assert {case.fault for case in cases} == set(FAULTS)
    for provider in ("salesforce", "shopify"):
        tried = {(case.is_strong, case.is_restart) for case in cases if case.provider == provider}
        assert len(tried) == 4
