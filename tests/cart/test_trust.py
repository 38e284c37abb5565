"""How far a look-up that is said to be strong is believed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from telecom_cart.errors import CheckoutFailed, CheckoutUnknown
from telecom_cart.model import Context
from telecom_cart.provider import Absent, Found, PlacedOrder, Unsure
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import FaultKind
from tests.cart.simulated_shop import World, simulate


class Blind(DoubleProvider):
    """A shop whose orders do not carry our reference where they are looked for."""

    is_blind = True

    async def checkout(self, context: Context, reference: str, **named: Any) -> PlacedOrder:
        placed = await super().checkout(context, reference, **named)
        return replace(placed, is_findable=not self.is_blind)

    async def find_order(self, context: Context, reference: str, **named: Any) -> Found | Absent | Unsure:
        return Absent() if self.is_blind else await super().find_order(context, reference, **named)


def test_that_orders_are_not_found_by_their_references_is_known_after_a_restart_and_to_other_instances() -> None:
    async def scenario(world: World) -> None:
        await world.kill(Blind(world.platform))
        await world.fill("bob")
        await world.check_out("bob")
        assert "not found by our references" in await world.shop.trust.doubt()
        await world.kill(Blind(world.platform, faults=world.provider.faults))
        cart = await world.fill("ann")
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        with pytest.raises(CheckoutUnknown):
            await world.check_out("ann")
        await asyncio.sleep(3600)
        with pytest.raises(CheckoutUnknown):
            await world.check_out("ann", cart_id=cart.id)
        assert len(world.live_orders) == 2

    simulate(scenario)


def test_a_look_up_that_was_mended_is_believed_for_what_began_after_that() -> None:
    async def scenario(world: World) -> None:
        provider = Blind(world.platform)
        await world.kill(provider)
        await world.fill("bob")
        await world.check_out("bob")
        old = await world.fill("ann")
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        with pytest.raises(CheckoutUnknown):
            await world.check_out("ann")
        provider.is_blind = False
        await world.fill("cid")
        await world.check_out("cid")
        assert await world.shop.trust.doubt() == ""
        await asyncio.sleep(3600)
        with pytest.raises(CheckoutUnknown):
            await world.check_out("ann", cart_id=old.id)
        await world.fill("dan")
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        with pytest.raises(CheckoutFailed):
            await world.check_out("dan")

    simulate(scenario)


def test_what_began_before_a_look_up_was_mended_is_not_believed_although_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        provider = Blind(world.platform, faults=world.provider.faults)
        await world.kill(provider)
        await world.fill("bob")
        await world.check_out("bob")
        old = await world.fill("ann")
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        with pytest.raises(CheckoutUnknown):
            await world.check_out("ann")
        truly = world.ms.now
        monkeypatch.setattr(world.ms, "now", lambda: truly() - timedelta(hours=10))
        provider.is_blind = False
        await world.fill("cid")
        await world.check_out("cid")
        provider.is_blind = True  # for what was ordered while it was
        for _ in range(30):
            assert isinstance(await world.try_to_check_out("ann", cart_id=old.id), CheckoutUnknown)
            await asyncio.sleep(5)
        assert len(world.live_orders) == 3

    simulate(scenario)
