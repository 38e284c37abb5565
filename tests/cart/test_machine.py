"""Random histories keep every promise, and a cart that is broken on purpose does not.

More of them: `python -m tests.cart.histories --count 5000`, or `CART_HISTORIES=5000` for this test.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cart.histories import look, play
from tests.cart.planted import PLANTED

COUNT = int(os.environ.get("CART_HISTORIES", "100"))
FOUND = {
    "order before the lock": 28,
    "retry on a new basket": 5,
    "failure cached": 5,
    "no fence": 1,
    "recovery sends again": 5,
    "read-back skipped": 8,
    "intent written after the call": 36,
    "changes while it is ordered": 9,
    "the last writer wins": 2,
    "lag counted from the intent": 23,
    "a change without an answer is repeated": 203,
    "what was closed was not ordered": 7,
    "one look that lags is believed after a refusal": 23,
    "a refusal is believed without asking": 3,
    "a failed order is proof": 51,
}
"""The first seed that finds each; `python -m tests.cart.histories --planted` searches when the cart has changed."""
PATIENT = settings(max_examples=COUNT // 2, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Instances die here all the time, and say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Listening(Random):
    """Remembers what was drawn from it."""

    def __init__(self, seed: int) -> None:
        self.drawn: list[object] = []
        super().__init__(seed)

    def getrandbits(self, bits: int, /) -> int:
        self.drawn.append((bits, found := super().getrandbits(bits)))
        return found

    def random(self) -> float:
        self.drawn.append(found := super().random())
        return found


def told(seed: int) -> tuple[list[object], list[str]]:
    chance, said = Listening(seed), list[str]()
    play(chance, said.append)
    return chance.drawn, said


@pytest.mark.parametrize("seed", [4, 8, 17, 21])
def test_a_history_is_the_same_however_often_it_is_played(seed: int) -> None:
    assert told(seed) == told(seed)


@pytest.mark.slow
def test_no_history_breaks_a_promise() -> None:
    broken = {seed: found for seed in range(COUNT) if (found := look(seed)) is not None}
    assert broken == {}


@pytest.mark.slow
@PATIENT
@given(chance=st.randoms(use_true_random=False))
def test_no_history_that_hypothesis_can_think_of_breaks_a_promise(chance: Random) -> None:
    """It draws every decision, so it goes where seeds do not, and makes what it finds short."""
    assert play(chance) is None


@pytest.mark.slow
def test_hypothesis_finds_a_planted_defect() -> None:
    @settings(PATIENT, max_examples=600, phases=[Phase.generate])
    @given(chance=st.randoms(use_true_random=False))
    def search(chance: Random) -> None:
        assert play(chance) is None

    with PLANTED["no fence"](), pytest.raises(AssertionError):
        search()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_in_a_history_that_breaks_nothing_without_it(name: str) -> None:
    assert look(FOUND[name]) is None
    with PLANTED[name]():
        assert look(FOUND[name]) is not None
