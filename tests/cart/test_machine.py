"""Random histories keep every promise, and a cart that is broken on purpose does not.

More of them: `python -m tests.cart.histories --count 5000`, or `CART_HISTORIES=5000` for this test.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.cart.histories import first_broken, look
from tests.cart.planted import PLANTED

COUNT = int(os.environ.get("CART_HISTORIES", "100"))
WITHIN = 600
"""So many histories find every planted defect; `python -m tests.cart.histories --planted` tells how many each."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Instances die here all the time, and say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_no_history_breaks_a_promise() -> None:
    broken = {seed: found for seed in range(COUNT) if (found := look(seed)) is not None}
    assert broken == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str) -> None:
    with PLANTED[name]():
        assert first_broken(range(WITHIN)) is not None
