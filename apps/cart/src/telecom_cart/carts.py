"""What users do with their carts. Nothing here waits for the platform."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from telecom_cart.checks import added
from telecom_cart.closer import sealed
from telecom_cart.errors import (
    AlreadyCheckedOut,
    CartNotFound,
    FieldProblem,
    ItemNotFound,
    OrderNotFound,
    Outdated,
    ValidationFailed,
)
from telecom_cart.model import Cart, Item, Order, SyncStatus
from telecom_cart.queues import Queues
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.taxes import Province
from telecom_cart.touches import Touches
from telecom_cart.wakes import Wakes


class Carts:
    def __init__(
        self, *, repository: Repository, queues: Queues, wakes: Wakes, touches: Touches, settings: Settings
    ) -> None:
        self._repository = repository
        self._queues = queues
        self._wakes = wakes
        self._touches = touches
        self._settings = settings

    async def get(self, user_id: str) -> Cart:
        """The cart of a user; a new one if there is none, or the last one was ordered."""
        cart = await self._repository.cart(user_id)
        if cart is None or cart.order_id:
            async with self._queues.turn(user_id):
                cart = await self._repository.change(user_id, self._begun(user_id))
        assert cart is not None
        return self._touches.touched(cart, now=self._repository.now_ms())

    async def peek(self, user_id: str) -> Cart:
        """The cart of a user. `CartNotFound` if there is none."""
        cart = await self._repository.cart(user_id)
        if cart is None:
            raise CartNotFound
        return self._touches.touched(cart, now=self._repository.now_ms())

    async def add_item(self, user_id: str, item: Item, *, if_match: str | None = None) -> Cart:
        return await self._change(user_id, lambda cart: added(cart, item), if_match=if_match, begins=True)

    async def set_quantity(self, user_id: str, product_id: str, quantity: int, *, if_match: str | None = None) -> Cart:
        def decide(cart: Cart) -> tuple[Item, ...]:
            present = _present(cart, product_id)
            if quantity == 0:
                return tuple(item for item in cart.items if item is not present)
            return tuple(replace(item, quantity=quantity) if item is present else item for item in cart.items)

        return await self._change(user_id, decide, if_match=if_match)

    async def remove_item(self, user_id: str, product_id: str, *, if_match: str | None = None) -> Cart:
        return await self.set_quantity(user_id, product_id, 0, if_match=if_match)

    async def set_province(self, user_id: str, province: Province | None, *, if_match: str | None = None) -> Cart:
        def decide(present: Cart | None) -> Cart:
            cart = present or self._begun(user_id)(None)
            check_open(cart, if_match)
            if cart.province == province and present is not None:
                return cart
            return replace(cart, province=province).touched(now=self._repository.now_ms())

        async with self._queues.turn(user_id):
            changed = await self._repository.change(user_id, decide)
        assert changed is not None
        return changed

    async def delete(self, user_id: str, *, if_match: str | None = None) -> None:
        """Remove a cart, with its basket at the platform. Not while it is being ordered."""

        def decide(cart: Cart) -> bool:
            check_open(cart, if_match)
            return True

        async with self._queues.turn(user_id):
            removed = await self._repository.remove(user_id, decide)
        if removed is None:
            raise CartNotFound
        if removed.context is not None and removed.context.basket_id:
            await self._wakes.close_basket(removed.context)

    async def order(self, order_id: str) -> Order:
        found = await self._repository.orders.get(order_id)
        if found is None:
            raise OrderNotFound
        return found.value

    async def orders(self, user_id: str, *, limit: int, after: str | None = None) -> tuple[list[Order], bool]:
        """The orders of a user, the newest first, from the one behind `after` on; and whether there are more."""
        last = None
        if after is not None:
            found = await self._repository.orders.get(after)
            if found is None or found.value.user_id != user_id:
                raise ValidationFailed(errors=(FieldProblem("after", "Expected the id of an order of this user"),))
            last = found.value
        listed = await self._repository.orders_of(user_id, limit=limit + 1, after=last)
        return [await self.order(each.order_id) for each in listed[:limit]], len(listed) > limit

    def _begun(self, user_id: str) -> Callable[[Cart | None], Cart]:
        def decide(present: Cart | None) -> Cart:
            if present is not None and not present.order_id:
                return present
            now = self._repository.now_ms()
            return Cart(
                id=self._repository.new_id(),
                user_id=user_id,
                currency=self._settings.currency,
                created_at=now,
                updated_at=now,
                accessed_at=now,
            )

        return decide

    async def _change(
        self,
        user_id: str,
        change: Callable[[Cart], tuple[Item, ...]],
        *,
        if_match: str | None,
        begins: bool = False,
    ) -> Cart:
        """Change the items; the platform is told by a timer.

        A cart that is pending has one already: whoever synchronises it cannot say that it is done, because its version
        is another one after this change.
        """

        def decide(present: Cart | None) -> Cart:
            if present is None and not begins:
                raise CartNotFound
            cart = present or self._begun(user_id)(None)
            check_open(cart, if_match)
            items = change(cart)
            return cart if items == cart.items else cart.with_items(items, now=self._repository.now_ms())

        async with self._queues.turn(user_id), AsyncExitStack() as writing:

            async def wake(present: Cart | None) -> None:
                if present is None or present.sync is not SyncStatus.PENDING:
                    await writing.enter_async_context(self._wakes.before_write(user_id))

            stored = await self._repository.change(user_id, decide, before=wake)
        assert stored is not None
        return stored


def check_open(cart: Cart, if_match: str | None) -> None:
    """Whether a cart may be changed, and is what its user has seen."""
    if cart.order_id:
        raise AlreadyCheckedOut
    if cart.attempt is not None and cart.is_sealed:
        raise sealed(cart.attempt)
    if if_match is not None and if_match != cart.etag:
        raise Outdated


def _present(cart: Cart, product_id: str) -> Item:
    item = cart.item(product_id)
    if item is None:
        raise ItemNotFound
    return item
