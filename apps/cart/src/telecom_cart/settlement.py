"""What a person decides, because nothing else can. The platform is not asked here.

That there is no order is true when it was looked for. Somebody who was frozen before sending may still make one: so the
cart is open again only when whoever serves it has closed the basket (`Recovery`). If that was gone by then, it may have
been ordered after the person looked, who has to look again (`Attempt.is_over`).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from telecom_cart.closer import Closer
from telecom_cart.errors import CartNotFound, ValidationFailed
from telecom_cart.model import Cart, CheckoutStatus
from telecom_cart.provider import PlacedOrder
from telecom_cart.recovery import DENIED
from telecom_cart.repository import Repository
from telecom_cart.wakes import Wakes

LOOK_NOW: Final = "The basket is gone: look now, and you see all that there will be."
"""What whoever settles is told, once it is so."""
WAKE_SECONDS: Final = 0.5
"""Until whoever serves the cart closes its basket. What is decided is written within that, or found by the next try."""
_NUMBER: Final = re.compile(r"[!-~]{1,100}")


class Settlement:
    def __init__(self, *, repository: Repository, closer: Closer, wakes: Wakes) -> None:
        self._repository = repository
        self._closer = closer
        self._wakes = wakes

    async def unknown(self) -> AsyncIterator[Cart]:
        """The carts whose checkout is unknown. An entry that was left behind is removed."""
        async for document in self._repository.unknown.scan():
            cart = await self._repository.cart(document.value.user_id)
            if cart is None or cart.attempt is None or cart.attempt.reference != document.key or not cart.is_sealed:
                await self._repository.forget_unknown(document.key)
            elif cart.checkout_status is CheckoutStatus.UNKNOWN:
                yield cart

    async def count(self) -> int:
        return len([cart async for cart in self.unknown()])

    async def settle(self, user_id: str, *, order_number: str | None) -> None:
        """It is this order, or there is none. Not while somebody is still at it, and may order."""
        if order_number is not None and not _NUMBER.fullmatch(order_number):
            raise ValidationFailed("Expected the number of an order: 1 to 100 visible characters.")
        cart = await self._repository.cart(user_id)
        if cart is None or cart.attempt is None or cart.checkout_status is not CheckoutStatus.UNKNOWN:
            raise CartNotFound("This user has no checkout that needs a decision.")
        if order_number is not None:
            await self._closer.ordered(cart, cart.attempt, [PlacedOrder(order_number, "settled", is_live=True)])
        else:
            await self._deny(cart, cart.attempt.reference)

    async def _deny(self, cart: Cart, reference: str) -> None:
        def denied(present: Cart | None) -> Cart | None:
            if present is None or present.attempt is None or not present.attempt.is_open:
                return None
            if present.attempt.reference != reference:
                return None
            return replace(
                present,
                attempt=replace(
                    present.attempt,
                    denied=True,
                    needs_person=False,
                    unresolved=f"{DENIED} Its basket is being closed.",
                ),
            )

        await self._wakes.recover(cart.user_id, cart.id, reference, in_seconds=WAKE_SECONDS)
        await self._repository.change(cart.user_id, denied)
