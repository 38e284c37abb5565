"""Who waits for one attempt is not told of its failure while a later one orders the same cart, and may have."""

from __future__ import annotations

import asyncio

import pytest

from telecom_cart.checkout import Wish
from telecom_cart.errors import CartError, CheckoutInProgress, CheckoutUnknown, ProviderDown
from telecom_cart.providers.faults import FaultKind
from telecom_cart.shop import Shop
from tests.cart.simulated_shop import World, simulate


async def told(shop: Shop, cart_id: str) -> CartError | str:
    try:
        return (await shop.checkouts.run("ann", Wish(cart_id=cart_id))).order.number
    except CartError as error:
        return error


@pytest.mark.parametrize("slow_seconds", [20, 40])
@pytest.mark.parametrize("is_other", [True, False], ids=["another_instance", "the_same_instance"])
def test_who_waits_for_an_attempt_that_failed_is_not_told_so_while_a_later_one_orders(
    is_other: bool, slow_seconds: float
) -> None:
    async def scenario(world: World) -> None:
        shop = Shop(world.ms, world.provider, world.settings, is_only=False) if is_other else world.shop
        cart = await world.fill()
        world.fault("get_cart", FaultKind.DELAY)
        first = asyncio.create_task(told(world.shop, cart.id))
        await asyncio.sleep(0.3)
        joined = asyncio.create_task(told(shop, cart.id))
        world.fault("set_reference", FaultKind.THROTTLE, times=3)
        assert isinstance(await first, ProviderDown)
        world.provider.faults.clear()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DELAY, seconds=slow_seconds)
        again = asyncio.create_task(told(world.shop, cart.id))
        if is_other:  # it looks now and then, so it may not have seen the first one end
            assert isinstance(await joined, CheckoutInProgress | CheckoutUnknown)
        else:
            assert isinstance(await joined, ProviderDown)  # as it was at that moment
        await again
        await asyncio.sleep(100)
        assert [await told(shop, cart.id)] == world.live_orders
        await shop.__aexit__()

    simulate(scenario)


def test_a_failure_that_is_read_while_a_later_attempt_is_open_is_not_told() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("set_reference", FaultKind.THROTTLE, times=3)
        assert isinstance(await told(world.shop, cart.id), ProviderDown)
        failed = await world.cart()
        assert failed.attempt is not None
        world.provider.faults.clear()
        world.fault("checkout", FaultKind.DELAY, seconds=5)
        again = asyncio.create_task(told(world.shop, cart.id))
        await asyncio.sleep(1)
        with pytest.raises(CheckoutInProgress):
            await world.shop.checkouts._verdict(failed, failed.attempt.reference, is_replay=True)
        assert [await again] == world.live_orders
        placed = await world.shop.checkouts._verdict(failed, failed.attempt.reference, is_replay=True)
        assert [placed.order.number] == world.live_orders

    simulate(scenario)
