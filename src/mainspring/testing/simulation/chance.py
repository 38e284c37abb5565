"""Chance, as plans are drawn with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mainspring.testing.simulation.draws import Draws

T = TypeVar("T")


class Chance:
    """Draws of a plan, under its own labels."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def one(self, label: str, among: Sequence[T]) -> T:
        return self._draws.choose(f"plan/{label}", among)

    def number(self, label: str, low: int, high: int) -> int:
        return low + self._draws.draw(f"plan/{label}", high - low + 1)

    def percent(self, label: str, percent: float) -> bool:
        return self._draws.chance(f"plan/{label}", percent)

    def some(self, label: str, among: Sequence[T]) -> list[T]:
        """Each of them with a chance of one half."""
        return [thing for place, thing in enumerate(among) if self._draws.draw(f"plan/{label}/{place}", 2)]

    def weighted(self, label: str, weights: dict[str, int]) -> str:
        left = self._draws.draw(f"plan/{label}", sum(weights.values()))
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        raise AssertionError
