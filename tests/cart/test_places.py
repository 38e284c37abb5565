"""Which shop at which platform: what was begun at one is never asked of another."""

from __future__ import annotations

import asyncio

import pytest

from telecom_cart.errors import CheckoutUnknown
from telecom_cart.model import CheckoutStatus
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import FaultKind
from telecom_cart.providers.platform import Platform
from tests.cart.simulated_shop import PHONE, World, simulate


async def switched(world: World) -> DoubleProvider:
    """Another process takes over, in front of another platform."""
    provider = DoubleProvider(Platform(world.platform.clock, run="other"))
    await world.kill(provider)
    return provider


def test_an_attempt_made_at_another_platform_is_never_asked_of_this_one() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DOWN, times=None)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        other = await switched(world)
        await world.shop.cleaner.sweep()
        await asyncio.sleep(3600)
        with pytest.raises(CheckoutUnknown):
            await world.check_out(cart_id=cart.id)
        present = await world.cart()
        assert present.checkout_status is CheckoutStatus.UNKNOWN
        assert present.attempt is not None
        assert present.attempt.unresolved.startswith("It was begun at double:, which is not served here")
        assert [entry.verb for entry in other.platform.ledger] == []

        [told] = [each async for each in world.shop.settlement.unknown()]
        assert told.user_id == "ann"
        await world.shop.settlement.settle("ann", order_number=world.live_orders[0])
        placed = await world.check_out(cart_id=cart.id)
        assert (placed.order.number, placed.order.place) == (world.live_orders[0], "double:")

    simulate(scenario)


def test_an_attempt_that_was_never_sent_is_over_whatever_platform_it_was_for() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("set_reference", FaultKind.DELAY, seconds=30)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        asking.cancel()
        other = await switched(world)
        await asyncio.sleep(70)
        placed = await world.check_out()
        assert [order.number for order in other.platform.orders] == [placed.order.number]
        assert (placed.order.provider, placed.order.place) == ("double", "double:other")
        assert world.live_orders == []

    simulate(scenario)


def test_a_basket_of_another_platform_is_left_and_made_anew_here() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        other = await switched(world)
        await asyncio.sleep(1000)
        await world.shop.cleaner.sweep()
        await asyncio.sleep(5)
        present = await world.cart()
        assert present.context is not None
        assert present.context.place == "double:other"
        assert list(other.platform.baskets) == [present.context.basket_id]
        assert {entry.basket_id for entry in other.platform.ledger} == {"", present.context.basket_id}
        assert (await world.check_out()).order.items == cart.items

    simulate(scenario)


def test_a_change_and_a_checkout_after_a_switch_ask_nothing_of_the_old_basket() -> None:
    async def scenario(world: World) -> None:
        await world.fill("ann")
        await world.fill("bob")
        other = await switched(world)
        old = set(world.platform.baskets)
        await world.check_out("ann")
        await world.shop.carts.set_quantity("bob", PHONE.product_id, 3)
        await asyncio.sleep(5)
        await world.shop.carts.delete("bob")
        await asyncio.sleep(5)
        assert not old & {entry.basket_id for entry in other.platform.ledger}
        assert len(other.platform.orders) == 1

    simulate(scenario)
