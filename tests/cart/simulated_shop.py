"""A shop on a simulated clock, with the double as its platform: hours pass in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mainspring import Mainspring
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from telecom_cart.checkout import Placed, Wish
from telecom_cart.errors import CartError
from telecom_cart.model import Cart, Item
from telecom_cart.provider import Lookup
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import Fault, FaultKind, Faults
from telecom_cart.providers.platform import Platform, StoredBasket
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop

PHONE = Item("phone", "A phone", "device", 1, 499_00)
PLAN = Item("plan-10", "10 GB", "plan", 2, 25_00)


@dataclass
class World:
    ms: Mainspring
    platform: Platform
    provider: DoubleProvider
    settings: Settings
    shop: Shop
    first: Shop
    """Whom the job calls."""

    def fault(self, verb: str, kind: FaultKind, *, times: int | None = 1, seconds: float = 1.0) -> None:
        self.provider.faults.add(verb, Fault(kind, times, seconds))

    async def cart(self, user_id: str = "ann") -> Cart:
        cart = await self.shop.repository.cart(user_id)
        assert cart is not None
        return cart

    async def fill(self, user_id: str = "ann") -> Cart:
        """A cart with two products, known to the platform."""
        await self.shop.carts.add_item(user_id, PHONE)
        cart = await self.shop.carts.add_item(user_id, PLAN)
        await asyncio.sleep(2)
        return cart

    async def check_out(self, user_id: str = "ann", **wish: Any) -> Placed:
        return await self.shop.checkouts.run(user_id, Wish(**wish))

    async def try_to_check_out(self, user_id: str = "ann", **wish: Any) -> Placed | CartError:
        try:
            return await self.check_out(user_id, **wish)
        except CartError as error:
            return error

    async def kill(self, successor: DoubleProvider | None = None) -> None:
        """The process dies: nothing that it had in memory goes on. Another one takes its place, with its timers and
        its job, maybe in front of another platform."""
        for task in list(self.shop._tasks):
            task.cancel()
        await asyncio.sleep(0)
        self.provider = successor or self.provider
        self.shop = Shop(self.ms, self.provider, self.settings, is_only=False)
        self.shop.attend()
        self.first.cleaner = self.shop.cleaner

    @property
    def live_orders(self) -> list[str]:
        return [order.number for order in self.platform.orders if order.is_live]


def simulate(
    scenario: Callable[[World], Awaitable[None]],
    *,
    settings: Settings | None = None,
    lookup: Lookup | None = None,
    is_atomic: bool = True,
) -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with opened(loop, settings=settings, lookup=lookup, is_atomic=is_atomic) as world:
            await scenario(world)

    run_simulated(main)


@asynccontextmanager
async def opened(
    loop: SimulatedLoop,
    *,
    settings: Settings | None = None,
    lookup: Lookup | None = None,
    is_atomic: bool = True,
) -> AsyncIterator[World]:
    settings = settings or Settings()
    platform = Platform(loop.time)
    provider = DoubleProvider(platform, faults=Faults(), lookup=lookup, is_atomic=is_atomic)
    ms = Mainspring("memory://", clock=SimulatedClock(loop))
    shop = Shop(ms, provider, settings)
    async with ms, shop:
        world = World(ms, platform, provider, settings, shop, shop)
        try:
            yield world
        finally:
            await provider.close()
            if world.shop is not shop:
                await world.shop.__aexit__()


def wanted(cart: Cart) -> set[tuple[str, int, int]]:
    return {(item.product_id, item.quantity, item.price) for item in cart.items}


def verbs(world: World, after: int = 0) -> list[str]:
    return [entry.verb for entry in world.platform.ledger[after:]]


async def basket_of(world: World) -> StoredBasket | None:
    context = (await world.cart()).context
    return None if context is None else world.platform.basket(context.basket_id)


async def seen(world: World) -> set[tuple[str, int, int]]:
    basket = await basket_of(world)
    assert basket is not None
    return {(line.product_id, line.quantity, line.price) for line in world.platform.lines(basket).values()}
