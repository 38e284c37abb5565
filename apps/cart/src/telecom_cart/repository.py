"""The documents in the store. Every change is compare-and-set on the version, so any number of instances may run."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from mainspring import Mainspring
from mainspring.errors import Conflict
from telecom_cart.errors import OperationTimeout
from telecom_cart.model import Attempt, Cart, Listed, Order, Unknown, listed_key, order_id_of

ATTEMPTS_KEPT_SECONDS: Final = 90 * 86_400.0
_TRIES: Final = 50

Before = Callable[[Cart | None], Awaitable[None]]


class Repository:
    def __init__(self, ms: Mainspring) -> None:
        self._ms = ms
        self.carts = ms.records("carts", Cart)
        """By user: everybody has one at most."""
        self.orders = ms.records("orders", Order)
        self.attempts = ms.records("attempts", Attempt)
        """Closed ones, by reference."""
        self.listed = ms.records("orders-by-user", Listed)
        """By user, the newest one first: `listed_key`."""
        self.unknown = ms.records("unknown-checkouts", Unknown)
        """By reference. The cart itself says whether it still is."""
        self._proofs = ms.records("written-at", int)
        """One, of the last time that anybody has tried to write."""

    def now_ms(self) -> int:
        return round(self._ms.now().timestamp() * 1000)

    def new_id(self) -> str:
        return secrets.token_hex(10)

    async def reach(self) -> None:
        """Raises, if the store cannot be read."""
        await self.carts.get("-")  # which nobody is called

    async def prove(self) -> None:
        """Raises, if the store cannot be written: it may be readable, and full."""
        await self._proofs.put("health", self.now_ms())

    async def cart(self, user_id: str) -> Cart | None:
        found = await self.carts.get(user_id)
        return None if found is None else found.value

    async def change(
        self, user_id: str, decide: Callable[[Cart | None], Cart | None], *, before: Before | None = None
    ) -> Cart | None:
        """Replace a cart by what `decide` makes of it, however often it has to be asked; it raises to refuse.

        The same cart, or None, means that nothing is to be written. `before` is awaited before each try to write, with
        the cart that will be replaced.
        """
        for _ in range(_TRIES):
            found = await self.carts.get(user_id)
            present = None if found is None else found.value
            changed = decide(present)
            if changed is None or changed is present:
                return changed
            if before is not None:
                await before(present)
            try:
                return (await self.carts.put(user_id, changed, expect=found.version if found else 0)).value
            except Conflict:
                continue
        raise OperationTimeout

    async def remove(self, user_id: str, decide: Callable[[Cart], bool]) -> Cart | None:
        """Remove a cart of which `decide` says so. Answers what was removed."""
        for _ in range(_TRIES):
            found = await self.carts.get(user_id)
            if found is None or not decide(found.value):
                return None
            if await self.carts.delete(user_id, expect=found.version):
                return found.value
        raise OperationTimeout

    async def order_of(self, cart_id: str) -> Order | None:
        """What a cart became, also after it was removed."""
        found = await self.orders.get(order_id_of(cart_id))
        return None if found is None else found.value

    async def record(self, order: Order) -> Order:
        """The order of a cart: the first one that anybody recorded. A user has one cart at a time, so nobody else
        records another order of theirs meanwhile."""
        newest = await self.orders_of(order.user_id, limit=1)
        behind = [(each.position or each.at) + 1 for each in newest if each.order_id != order.id]
        order = replace(order, position=max([order.placed_at, *behind]))
        try:
            stored = (await self.orders.put(order.id, order, expect=0)).value
        except Conflict:
            present = await self.order_of(order.cart_id)
            assert present is not None, "Expected an order, which is never removed"
            stored = present
        with suppress(Conflict):  # whoever recorded it before has listed it as well
            listed = Listed(stored.id, stored.cart_id, stored.placed_at, stored.position)
            await self.listed.put(_key(stored), listed, expect=0)
        return stored

    async def orders_of(self, user_id: str, *, limit: int, after: Order | None = None) -> list[Listed]:
        """The orders of a user, the newest one first; those that are older than one of them."""
        found: list[Listed] = []
        async for document in self.listed.scan(after=_key(after) if after is not None else f"{user_id}/"):
            if len(found) == limit or not document.key.startswith(f"{user_id}/"):
                break
            found.append(document.value)
        return found

    async def keep(self, attempt: Attempt) -> None:
        """A closed attempt, for whoever asks later what happened."""
        await self.attempts.put(attempt.reference, attempt, expires_in=ATTEMPTS_KEPT_SECONDS)

    async def forget_unknown(self, reference: str) -> None:
        found = await self.unknown.get(reference)
        if found is not None:
            await self.unknown.delete(reference, expect=found.version)


def _key(order: Order) -> str:
    return listed_key(order.user_id, order.position or order.placed_at, order.id)
