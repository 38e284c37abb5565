"""A provider that breaks the contract: the shop says so at once, or takes it at its worst."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from mainspring import Mainspring
from telecom_cart.errors import CheckoutUnknown, ProviderDown
from telecom_cart.guarded_provider import VERBS, BadProvider
from telecom_cart.provider import Lookup, Provider
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.platform import Platform
from telecom_cart.shop import Shop
from tests.cart.served_cart import served
from tests.cart.simulated_shop import World, simulate


def lacking(**wrong: Any) -> Provider:
    provider = DoubleProvider(Platform(lambda: 0.0))
    provider.__dict__.update(wrong)
    return provider


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((verb, None) for verb in VERBS),
        ("name", ""),
        ("place", ""),
        ("place", "elsewhere"),
        ("lookup", 0),
        ("timeout_seconds", None),
        ("timeout_seconds", 0),
        ("timeout_seconds", "3"),
        ("is_atomic", None),
        ("is_atomic", 1),
    ],
)
def test_what_a_provider_lacks_is_said_when_the_shop_is_made(name: str, value: object) -> None:
    with pytest.raises(BadProvider, match=name):
        Shop(Mainspring("memory://"), lacking(**{name: value}))


def test_all_that_a_provider_lacks_is_said_at_once() -> None:
    with pytest.raises(BadProvider, match=r"a method health.*a lookup.*timeout_seconds"):
        Shop(Mainspring("memory://"), lacking(health=None, lookup=None, timeout_seconds=None))


async def fail(*_: object, **__: object) -> Any:
    raise ValueError("hunter2")


async def nothing(*_: object, **__: object) -> Any:
    return None


@pytest.mark.parametrize("broken", [fail, nothing])
def test_an_order_of_which_a_provider_says_what_it_may_not_is_unknown_and_asked_for(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        order = world.provider.checkout

        async def ordered(context: Any, reference: str, **named: Any) -> Any:
            await order(context, reference, **named)
            return await broken()

        world.provider.checkout = ordered  # type: ignore[method-assign]
        placed = await world.check_out(cart_id=cart.id)  # it was found
        assert [placed.order.number] == world.live_orders

    with caplog.at_level(logging.ERROR, "telecom_cart"):
        simulate(scenario)
    assert "checkout of the provider" in caplog.text


@pytest.mark.parametrize("broken", [fail, nothing])
def test_a_look_up_that_says_what_it_may_not_is_unsure(broken: Any) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.provider.checkout = fail  # type: ignore[method-assign]
        world.provider.find_order = broken  # type: ignore[method-assign]
        with pytest.raises(CheckoutUnknown, match="The provider failed at find_order") as raised:
            await world.check_out()
        assert "hunter2" not in str(raised.value)
        await asyncio.sleep(600)
        assert world.live_orders == []

    simulate(scenario, lookup=Lookup())


@pytest.mark.parametrize("verb", ["open_session", "create_cart", "get_cart", "set_reference"])
def test_a_verb_before_the_order_that_fails_oddly_leaves_the_cart_as_it_was(verb: str) -> None:
    async def scenario(world: World) -> None:
        setattr(world.provider, verb, fail)
        cart = await world.fill()
        with pytest.raises(ProviderDown, match=f"The provider failed at {verb}: ValueError"):
            await world.check_out()
        delattr(world.provider, verb)
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


async def test_health_that_fails_oddly_is_a_platform_that_is_down() -> None:
    async with served() as cart:
        cart.provider.health = fail  # type: ignore[method-assign]
        response = await cart.client.get("/health")
        assert (response.status_code, response.json()["status"]) == (200, "degraded")
        assert "ValueError" in response.json()["provider"]["detail"]
        assert "hunter2" not in response.text


def test_the_log_says_which_checkout_became_what(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.provider.checkout = fail  # type: ignore[method-assign]
        find, world.provider.find_order = world.provider.find_order, fail  # type: ignore[method-assign]
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await asyncio.sleep(60)
        world.provider.find_order = find  # type: ignore[method-assign]
        del world.provider.__dict__["checkout"]
        await asyncio.sleep(600)
        placed = await world.check_out(cart_id=cart.id)
        for line in (
            f"finding out what became of {cart.id}-1 of ann",
            f"what became of the checkout of ann, cart {cart.id}, is not known, and tried again",
            f"{cart.id}-1 of ann was not made: The platform has no order of it, and can make none.",
            f"{cart.id}-2 of ann is the order {placed.order.number}",
        ):
            assert line in caplog.text

    with caplog.at_level(logging.INFO, "telecom_cart"):
        simulate(scenario)
