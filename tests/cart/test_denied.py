"""What a person found is true when he looked: it ends a checkout only if nothing could be made of its basket since."""

from __future__ import annotations

import asyncio

import pytest

from telecom_cart.checkout import attempt_of
from telecom_cart.errors import CheckoutUnknown
from telecom_cart.model import AttemptOutcome, CheckoutStatus
from telecom_cart.provider import Lookup
from telecom_cart.providers.faults import FaultKind
from tests.cart.simulated_shop import World, simulate

LOOKUPS = pytest.mark.parametrize("lookup", [Lookup(), Lookup(20.0), Lookup(None)], ids=str)
ATOMIC = pytest.mark.parametrize("is_atomic", [True, False], ids=["atomic", "not_atomic"])


async def deny(world: World) -> None:
    await world.shop.settlement.settle("ann", order_number=None)
    await asyncio.sleep(30)


@LOOKUPS
@ATOMIC
def test_an_order_that_was_made_after_a_person_looked_is_not_made_again(lookup: Lookup, is_atomic: bool) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 20.0 if lookup.lag_seconds != 0 else 0.0
        world.fault("find_order", FaultKind.DOWN, times=None)
        world.fault("checkout", FaultKind.APPLY_LATER, seconds=300)  # who sends was frozen
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await asyncio.sleep(290)
        assert world.live_orders == []  # a person looks
        await asyncio.sleep(60)
        assert len(world.live_orders) == 1
        await deny(world)
        assert attempt_of(await world.cart()).is_over
        assert (await world.cart()).checkout_status is CheckoutStatus.UNKNOWN
        with pytest.raises(CheckoutUnknown):
            await world.check_out(cart_id=cart.id)
        await asyncio.sleep(3600)
        assert (await world.cart()).checkout_status is CheckoutStatus.UNKNOWN
        world.provider.faults.clear()
        await asyncio.sleep(400)
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=lookup, is_atomic=is_atomic)


@LOOKUPS
@ATOMIC
def test_who_looks_again_when_its_basket_is_gone_is_believed(lookup: Lookup, is_atomic: bool) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("find_order", FaultKind.DOWN, times=None)
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        world.platform.expire()
        await deny(world)
        assert attempt_of(await world.cart()).is_over
        await deny(world)
        assert attempt_of(await world.cart()).closing is AttemptOutcome.NOT_MADE
        world.provider.faults.clear()
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=lookup, is_atomic=is_atomic)


@ATOMIC
def test_a_look_up_that_comes_back_ends_what_a_person_could_not(is_atomic: bool) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("find_order", FaultKind.DOWN, times=None)
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        world.platform.expire()
        await deny(world)
        world.provider.faults.clear()
        await asyncio.sleep(400)
        assert attempt_of(await world.cart()).closing is AttemptOutcome.NOT_MADE
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(20.0), is_atomic=is_atomic)


def test_an_order_that_is_accepted_when_a_person_looks_and_made_later_is_not_made_again() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 600
        world.fault("checkout", FaultKind.PROCESSING_THEN_DROP, seconds=9)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        assert world.live_orders == []  # a person looks
        await deny(world)
        assert len(world.live_orders) == 1
        assert attempt_of(await world.cart()).is_over
        await world.shop.settlement.settle("ann", order_number=world.live_orders[0])
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(None), is_atomic=False)


def test_an_order_that_can_be_seen_by_now_stands_against_what_a_person_found_again() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 600
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        assert attempt_of(await world.cart()).is_over
        await asyncio.sleep(500)
        world.platform.lookup_lag_seconds = 0
        await deny(world)
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(None))
