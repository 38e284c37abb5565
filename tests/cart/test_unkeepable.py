"""A provider that breaks its contract after the fact, or answers what cannot be kept: the cart keeps the contract."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutUnknown, ProviderDown
from telecom_cart.model import CheckoutStatus, Context
from telecom_cart.provider import Found, Refused
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import FaultKind
from telecom_cart.sync import Busy
from tests.cart.lying_platform import UNKEEPABLE
from tests.cart.served_cart import served
from tests.cart.simulated_shop import PHONE, World, simulate

FOREIGN = (RecursionError("deep"), ValueError("endless"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), OSError())


def after(verb: str, then: Callable[[Any], Any]) -> Callable[[World], None]:
    """Do what a verb does, and answer otherwise."""

    def change(world: World) -> None:
        truly = getattr(world.provider, verb)

        async def answer(*given: Any, **named: Any) -> Any:
            return then(await truly(*given, **named))

        setattr(world.provider, verb, answer)

    return change


def instead(provider: DoubleProvider, verb: str, error: Exception) -> None:
    """Do nothing of what a verb does."""

    async def answer(*_: Any, **__: Any) -> Any:
        raise error

    setattr(provider, verb, answer)


def raising(error: Exception) -> Callable[[Any], Any]:
    def then(_: Any) -> Any:
        raise error

    return then


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_an_order_after_which_the_provider_breaks_is_looked_for_and_found(error: Exception) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        after("checkout", raising(error))(world)
        outcome = await world.try_to_check_out()
        assert isinstance(outcome, Placed)
        assert world.live_orders == [outcome.order.number]

    simulate(scenario)


@pytest.mark.parametrize("number", UNKEEPABLE, ids=lambda number: str(number)[:9].encode("unicode_escape").decode())
def test_an_order_whose_number_cannot_be_kept_is_unknown_and_in_the_list(number: Any) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        after("checkout", lambda placed: replace(placed, number=number))(world)
        after(
            "find_order",
            lambda found: Found((replace(found.orders[0], number=number),)) if isinstance(found, Found) else found,
        )(world)
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        assert [cart.user_id async for cart in world.shop.settlement.unknown()] == ["ann"]
        cart = await world.cart()
        assert cart.attempt is not None
        assert cart.attempt.held is None
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        await world.shop.settlement.settle("ann", order_number="it-was-there")
        assert len(world.live_orders) == 1

    simulate(scenario)


@pytest.mark.parametrize("verb", ["find_order", "validate_context", "close_cart"])
@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_a_checkout_that_nobody_can_ask_about_is_unknown_and_held_by_nobody(verb: str, error: Exception) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        instead(world.provider, "checkout", error)
        after(verb, raising(error))(world)
        for _ in range(2):
            assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
            cart = await world.cart()
            assert cart.checkout_status is CheckoutStatus.UNKNOWN
            assert cart.attempt is not None
            assert cart.attempt.held is None
            await asyncio.sleep(100)

    simulate(scenario)


@pytest.mark.parametrize("basket_id", UNKEEPABLE, ids=lambda each: str(each)[:9].encode("unicode_escape").decode())
def test_a_basket_whose_id_cannot_be_kept_does_not_block_its_cart(basket_id: Any) -> None:
    async def scenario(world: World) -> None:
        after("create_cart", lambda made: Context(made.session, basket_id))(world)
        await world.fill()
        assert isinstance(await world.try_to_check_out(), ProviderDown)
        cart = await world.shop.carts.set_quantity("ann", "phone", 0)
        assert [item.product_id for item in cart.items] == ["plan-10"]
        assert cart.context is None or not cart.context.basket_id
        del world.provider.create_cart
        await asyncio.sleep(400)
        assert isinstance(await world.try_to_check_out(), Placed)

    simulate(scenario)


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
async def test_health_is_told_whatever_the_provider_raises(error: Exception) -> None:
    async with served() as cart:
        instead(cart.provider, "health", error)
        got = await cart.client.get("/health")
        assert (got.status_code, got.json()["status"], got.json()["provider"]["status"]) == (200, "degraded", "down")


def test_what_a_platform_said_is_told_to_operators_with_the_reference_and_not_to_users(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        said = Refused("The platform refused it: no-stock", told="What only operators see")
        instead(world.provider, "checkout", said)
        outcome = await world.try_to_check_out()
        assert not isinstance(outcome, Placed)
        assert "The platform refused it: no-stock" in outcome.detail
        assert "operators" not in outcome.detail
        reference = (await world.cart()).attempt.reference  # type: ignore[union-attr]
        [line] = [each.getMessage() for each in caplog.records if "What only operators see" in each.getMessage()]
        assert reference in line

    with caplog.at_level(logging.INFO, "telecom_cart"):
        simulate(scenario)


def test_a_synchronisation_that_is_tried_again_says_why() -> None:
    async def scenario(world: World) -> None:
        world.fault("create_cart", FaultKind.DELAY, seconds=10)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(2)
        with pytest.raises(Busy, match="Somebody else"):
            await world.shop.synchroniser.run("ann")

    simulate(scenario)
