"""A gateway that sends the request for an order once more, any time later, and tells the answer to the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from telecom_cart.model import Context
from telecom_cart.provider import NotSent, PlacedOrder, Unreachable
from telecom_cart.providers.double import DoubleProvider


@dataclass(frozen=True)
class Copy:
    """A second arrival of a request. It names a basket and nothing else, so it orders whatever that has become."""

    seconds: float
    """So long after the first."""
    status: str = "created"
    """What becomes of its order, if the basket is still there."""


class CopyingDouble(DoubleProvider):
    copy: Copy | None = None
    """Of the next order that is asked for."""

    async def checkout(self, context: Context, reference: str, **named: Any) -> PlacedOrder:
        copy, self.copy = self.copy, None
        try:
            return await super().checkout(context, reference, **named)
        except (NotSent, Unreachable):
            copy = None  # there was nothing to be sent twice
            raise
        finally:
            if copy is not None:
                self._arrive(context.basket_id, copy)

    def _arrive(self, basket_id: str, copy: Copy) -> None:
        def arrive() -> None:
            made = self.platform.order(basket_id, status=copy.status)
            self.platform.note("checkout", basket_id, "copy: nothing" if made is None else f"copy: {made.number}")

        self.platform.later(copy.seconds, arrive)
