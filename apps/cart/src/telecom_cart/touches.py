"""When carts were last read. It is remembered here and written now and then, so that no reader waits for a write."""

from __future__ import annotations

from dataclasses import replace

from telecom_cart.model import Cart
from telecom_cart.repository import Repository


class Touches:
    def __init__(self) -> None:
        self._at: dict[str, int] = {}

    def touched(self, cart: Cart, *, now: int) -> Cart:
        """The cart, as it is after it was read now."""
        if now <= cart.accessed_at:
            return cart
        self._at[cart.user_id] = now
        return replace(cart, accessed_at=now)

    async def write(self, repository: Repository) -> int:
        """Write what was read since the last time. A process killed before that loses a minute of it, and no cart."""
        written = 0
        for user_id in list(self._at):
            at = self._at.pop(user_id)

            def accessed(cart: Cart | None, at: int = at) -> Cart | None:
                return cart if cart is None or cart.accessed_at >= at else replace(cart, accessed_at=at)

            try:
                await repository.change(user_id, accessed)
            except BaseException:
                self._at.setdefault(user_id, at)
                raise
            written += 1
        return written
