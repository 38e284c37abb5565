"""An order that the platform has stored as failed is no proof that there is no other: the request may have been sent
twice. It is asked, fenced and waited for as if there was none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import Mainspring
from telecom_cart.checkout import Placed, Wish, attempt_of
from telecom_cart.errors import CartError, CheckoutFailed, CheckoutInProgress, CheckoutUnknown
from telecom_cart.model import AttemptOutcome, Item
from telecom_cart.provider import Found, Lookup
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop
from telecom_cart.simulators.server import serving
from tests.cart.shops import EVENTUAL, STRONG, salesforce_shop, shopify_shop
from tests.cart.simulated_shop import World, simulate

LOOKUPS = pytest.mark.parametrize("lookup", [Lookup(), Lookup(20.0), Lookup(None)], ids=str)
ATOMIC = pytest.mark.parametrize("is_atomic", [True, False], ids=["atomic", "not_atomic"])


def arrives_again(world: World, basket_id: str, *, seconds: float) -> None:
    """A gateway's copy of the request for an order."""
    world.platform.later(seconds, lambda: (world.platform.order(basket_id), None)[1])


async def basket_id_of(world: World) -> str:
    context = (await world.cart()).context
    assert context is not None
    return context.basket_id


async def ends(world: World, cart_id: str) -> Placed | CartError:
    """What whoever asks and asks is told in the end."""
    for _ in range(100):
        outcome = await world.try_to_check_out(cart_id=cart_id)
        if not isinstance(outcome, CheckoutUnknown | CheckoutInProgress):
            return outcome
        if not outcome.retryable:
            return outcome
        await asyncio.sleep(0.5)
    raise AssertionError("Expected an answer")


@LOOKUPS
@ATOMIC
@pytest.mark.parametrize("seconds", [0.005, 1.0, 5.0, 25.0, 300.0])
def test_a_copy_of_a_request_whose_order_has_failed_makes_no_second_order(
    lookup: Lookup, is_atomic: bool, seconds: float
) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 20.0 if lookup.lag_seconds != 0 else 0.0
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        send, basket_id = world.provider.checkout, await basket_id_of(world)

        async def copied(*given: Any, **named: Any) -> Any:
            arrives_again(world, basket_id, seconds=seconds)
            world.provider.checkout = send  # type: ignore[method-assign]
            return await send(*given, **named)

        world.provider.checkout = copied  # type: ignore[method-assign]
        outcome = await ends(world, cart.id)
        await asyncio.sleep(400)
        if isinstance(outcome, CheckoutUnknown):
            assert lookup.lag_seconds is None
            outcome = await ends(world, cart.id)
        if isinstance(outcome, CheckoutFailed):
            assert world.live_orders == []
            outcome = await world.check_out(cart_id=cart.id)
        await asyncio.sleep(400)
        assert len(world.live_orders) <= 1
        if isinstance(outcome, Placed):
            assert [outcome.order.number] == world.live_orders

    simulate(scenario, lookup=lookup, is_atomic=is_atomic)


@LOOKUPS
def test_the_basket_of_an_order_that_failed_is_closed_before_that_is_told(lookup: Lookup) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        basket_id = await basket_id_of(world)
        with pytest.raises(CheckoutFailed, match="stored as failed"):
            await world.check_out()
        assert world.platform.basket(basket_id) is None
        attempt = attempt_of(await world.cart())
        assert attempt.closing is AttemptOutcome.NOT_MADE

    simulate(scenario, lookup=lookup)


@LOOKUPS
@ATOMIC
def test_an_answer_that_names_a_failed_order_is_asked_about_and_fenced_too(lookup: Lookup, is_atomic: bool) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        order = world.platform.order
        world.platform.order = lambda basket_id, **_: order(basket_id, status="failed")  # type: ignore[method-assign]
        basket_id = await basket_id_of(world)
        outcome = await world.try_to_check_out()
        world.platform.order = order  # type: ignore[method-assign]
        assert world.platform.basket(basket_id) is None
        assert isinstance(outcome, CheckoutFailed if is_atomic else CheckoutUnknown)
        await asyncio.sleep(100)
        attempt = attempt_of(await world.cart())
        if not is_atomic and lookup.lag_seconds is None:
            assert attempt.needs_person
        else:
            assert attempt.closing is AttemptOutcome.NOT_MADE
            assert "is failed" in str(attempt.reasons)
            assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=lookup, is_atomic=is_atomic)


def test_an_order_that_was_cancelled_is_told_as_such_once_no_other_can_be_seen() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        find = world.provider.find_order

        async def cancelled(*given: Any, **named: Any) -> Any:
            for number in world.live_orders:
                world.platform.set_status(number, "cancelled")
            found = await find(*given, **named)
            assert isinstance(found, Found)
            return found

        world.provider.find_order = cancelled  # type: ignore[method-assign]
        outcome = await world.try_to_check_out(cart_id=cart.id)
        assert isinstance(outcome, CheckoutUnknown)
        assert "has failed or was cancelled, and may still make one" in str(outcome)
        await asyncio.sleep(100)
        attempt = attempt_of(await world.cart())
        assert attempt.closing is AttemptOutcome.NOT_MADE
        assert "has failed or was cancelled, and can make none" in str(attempt.reasons)

    simulate(scenario)


def test_a_failed_order_says_nothing_where_orders_are_not_found_by_their_references() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.loses_references = True
        await world.fill("bob")
        await world.check_out("bob")  # that shows it
        world.platform.loses_references = False
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        outcome = await world.try_to_check_out(cart_id=cart.id)
        assert isinstance(outcome, CheckoutUnknown)
        assert not outcome.retryable

    simulate(scenario)


@pytest.mark.anyio
@pytest.mark.parametrize("lookup", [STRONG, EVENTUAL], ids=["strong", "eventual"])
@pytest.mark.parametrize("platform", ["salesforce", "shopify"])
async def test_the_basket_of_a_failed_order_can_be_ordered_no_more_at_any_platform(
    platform: str, lookup: Lookup
) -> None:
    opened = {"salesforce": salesforce_shop, "shopify": shopify_shop}[platform]
    async with serving(platform) as (simulation, address), opened(simulation, address, lookup) as simulated:
        ms = Mainspring("memory://", allow_loopback=True)
        shop = Shop(ms, simulated.provider, Settings())
        async with ms, shop:
            cart = await shop.carts.add_item("ann", Item("phone-1", "Phone", "device", 1, 799_00))
            simulation.add_fault("checkout", Fault(FaultKind.FAILED_ORDER_400))
            with pytest.raises((CheckoutFailed, CheckoutUnknown)):
                await shop.checkouts.run("ann", Wish(cart_id=cart.id))
            stored = await shop.repository.cart("ann")
            assert stored is not None
            assert stored.attempt is not None
            assert stored.attempt.context is not None
            assert not await simulated.provider.validate_context(stored.attempt.context)
            assert len([order for order in simulated.orders() if order.is_live]) == 0
