"""Who asks and asks does not keep the cart from finding out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutUnknown
from telecom_cart.providers.faults import FaultKind
from tests.cart.simulated_shop import World, simulate

SLOW_SECONDS = 16.0
"""Longer than anybody waits for an answer."""


@pytest.mark.parametrize("pause", [0.1, 2.0, 20.0])
def test_a_slow_look_up_ends_however_often_it_is_asked_for_meanwhile(pause: float) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        assert world.settings.answer_seconds < SLOW_SECONDS
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DOWN, times=None)
        with pytest.raises(CheckoutUnknown):
            await world.check_out(cart_id=cart.id)
        await asyncio.sleep(1800)
        world.provider.faults.clear()
        world.fault("find_order", FaultKind.DELAY, times=None, seconds=SLOW_SECONDS)
        since = world.platform.now()
        while not isinstance(await world.try_to_check_out(cart_id=cart.id), Placed):
            assert world.platform.now() - since < 120
            await asyncio.sleep(pause)
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_a_look_goes_on_when_the_one_who_asked_for_it_goes_away() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DOWN)
        with pytest.raises(CheckoutUnknown):
            await world.check_out(cart_id=cart.id)
        world.fault("find_order", FaultKind.DELAY, seconds=3)
        asking = asyncio.create_task(world.try_to_check_out(cart_id=cart.id))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.sleep(3)
        assert await world.shop.repository.order_of(cart.id) is not None

    simulate(scenario)


def test_nothing_looks_any_more_when_the_shop_is_closed() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DOWN)
        with pytest.raises(CheckoutUnknown):
            await world.check_out(cart_id=cart.id)
        find, is_cancelled = world.provider.find_order, asyncio.Event()

        async def endless(*_: Any, **__: Any) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_cancelled.set()
                raise

        world.provider.find_order = endless  # type: ignore[method-assign]
        asking = asyncio.create_task(world.try_to_check_out(cart_id=cart.id))
        await asyncio.sleep(1)
        await world.kill()
        assert is_cancelled.is_set()
        assert isinstance(await asking, CheckoutUnknown)
        world.provider.find_order = find  # type: ignore[method-assign]
        await asyncio.sleep(120)
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario)
