"""Sums of a cart, in minor units. Taxes that are not determined are no taxes of zero."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from telecom_cart.taxes import TaxLine


@dataclass(frozen=True)
class Totals:
    currency: str
    subtotal: int
    taxes: tuple[TaxLine, ...] | None
    """None: nobody has said which province it is."""

    @property
    def tax(self) -> int | None:
        return None if self.taxes is None else sum(line.amount for line in self.taxes)

    @property
    def total(self) -> int:
        """Without taxes as long as they are not determined."""
        return self.subtotal + (self.tax or 0)


def subtotal(prices: Iterable[tuple[int, int]]) -> int:
    """The sum of prices times quantities."""
    return sum(price * quantity for price, quantity in prices)
