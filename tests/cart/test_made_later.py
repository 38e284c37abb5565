"""A platform that accepts an order and makes it later, while its basket can still be read: closing proves nothing."""

from __future__ import annotations

import asyncio

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutFailed, CheckoutUnknown
from telecom_cart.provider import Lookup
from telecom_cart.providers.faults import FaultKind
from tests.cart.simulated_shop import World, simulate

LOOKUPS = pytest.mark.parametrize("lookup", [Lookup(), Lookup(20.0), Lookup(None)], ids=str)


async def ends(world: World, cart_id: str) -> None:
    """Whoever asks and asks is never told that nothing was ordered, and gets the one order."""
    for _ in range(40):
        outcome = await world.try_to_check_out(cart_id=cart_id)
        assert isinstance(outcome, Placed | CheckoutUnknown), repr(outcome)
        if isinstance(outcome, Placed):
            break
        await asyncio.sleep(3)
    await asyncio.sleep(400)
    placed = await world.check_out(cart_id=cart_id)
    assert [placed.order.number] == world.live_orders


@LOOKUPS
def test_an_order_that_is_made_long_after_it_was_accepted_is_waited_for_and_not_made_again(lookup: Lookup) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.PROCESSING, seconds=44)
        await ends(world, cart.id)

    simulate(scenario, lookup=lookup, is_atomic=False)


@LOOKUPS
def test_an_order_that_was_accepted_is_asked_for_by_its_ticket_by_whoever_comes_next(lookup: Lookup) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.PROCESSING, seconds=100)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        await world.kill()
        asking.cancel()
        await asyncio.sleep(70)  # its time is over, and it is looked for
        outcome = await world.try_to_check_out(cart_id=cart.id)
        assert isinstance(outcome, CheckoutUnknown)
        assert "still making" in str(outcome)
        await ends(world, cart.id)

    simulate(scenario, lookup=lookup, is_atomic=False)


@pytest.mark.parametrize("lookup", [Lookup(), Lookup(20.0)], ids=str)
def test_an_order_that_was_accepted_and_whose_answer_was_lost_is_found_and_not_made_again(lookup: Lookup) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = lookup.lag_seconds or 0
        world.fault("checkout", FaultKind.PROCESSING_THEN_DROP, seconds=9)
        await ends(world, cart.id)

    simulate(scenario, lookup=lookup, is_atomic=False)


@pytest.mark.parametrize("lookup", [Lookup(20.0), Lookup(None)], ids=str)
def test_an_order_whose_basket_can_still_be_read_is_not_taken_for_not_made(lookup: Lookup) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 20
        world.platform.lingers_seconds = 6
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        await ends(world, cart.id)

    simulate(scenario, lookup=lookup, is_atomic=False)


def test_what_was_never_accepted_is_not_made_when_its_basket_is_closed_for_long_enough() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        begun = world.platform.now()
        while isinstance(outcome := await world.try_to_check_out(cart_id=cart.id), CheckoutUnknown):  # noqa: ASYNC110
            await asyncio.sleep(1)
        assert isinstance(outcome, CheckoutFailed)
        assert 30 <= world.platform.now() - begun <= 35
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(20.0), is_atomic=False)


def test_without_a_bound_a_person_decides_although_the_basket_was_closed() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        await asyncio.sleep(0)
        for seconds in (0, 3600):
            await asyncio.sleep(seconds)
            outcome = await world.try_to_check_out(cart_id=cart.id)
            assert isinstance(outcome, CheckoutUnknown)
            assert "a person has to decide" in str(outcome)
        await world.shop.settlement.settle("ann", order_number=None)
        await asyncio.sleep(60)
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(None), is_atomic=False)


def test_a_person_who_finds_no_order_that_is_still_being_made_is_not_believed_too_early() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.PROCESSING_THEN_DROP, seconds=9)
        outcome = await world.try_to_check_out()
        assert isinstance(outcome, CheckoutUnknown)
        await world.shop.settlement.settle("ann", order_number=None)
        await ends(world, cart.id)

    simulate(scenario, lookup=Lookup(None), is_atomic=False)


def test_a_person_who_finds_no_order_is_not_believed_while_the_platform_says_that_it_makes_one() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.PROCESSING, seconds=300)
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        await world.shop.settlement.settle("ann", order_number=None)
        await asyncio.sleep(120)
        assert isinstance(await world.try_to_check_out(cart_id=cart.id), CheckoutUnknown)
        await asyncio.sleep(600)
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(None), is_atomic=False)
